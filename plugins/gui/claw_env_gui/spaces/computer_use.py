"""A `computer_use` tool, as vision models of the Qwen family know it: coordinates 0 to 1000.

Owns: the schema of the tool, and from its calls to actions on a screen of any size.
"""

import json
from collections.abc import Mapping
from typing import Any

from claw.sdk import Message
from claw.sdk.env import assistant

from .. import actions
from ..actions import DONE, FAIL, Action, Unreadable
from . import words

SPAN = 1000
PROMPT = """You use a computer through the tool computer_use to complete a task. Coordinates go from
(0, 0), the top left corner of the screen, to (1000, 1000), the bottom right one. End with the
action terminate: status success when the task is complete, failure when it cannot be done."""
NAMES = ("key", "type", "mouse_move", "left_click", "left_click_drag", "right_click",
         "middle_click", "double_click", "triple_click", "scroll", "hscroll", "wait", "terminate")
_CLICKS = {"left_click": ("left", 1), "right_click": ("right", 1), "middle_click": ("middle", 1),
           "double_click": ("left", 2), "triple_click": ("left", 3)}
TOOLS: tuple[dict[str, Any], ...] = ({"type": "function", "function": {
    "name": "computer_use",
    "description": "Use the mouse and the keyboard of a computer, and end the task.",
    "parameters": {
        "type": "object", "required": ["action"], "additionalProperties": False,
        "properties": {
            "action": {"type": "string", "enum": list(NAMES)},
            "coordinate": {
                "type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2,
                "description": "x and y, each from 0 to 1000; for mouse actions and scrolling"},
            "text": {"type": "string", "description": "what to type; for type"},
            "keys": {"type": "array", "items": {"type": "string"},
                     "description": "pressed together; for key"},
            "pixels": {"type": "number",
                       "description": "notches of the wheel, above 0 is up; for scroll, hscroll"},
            "time": {"type": "number", "description": "seconds; for wait"},
            "status": {"type": "string", "enum": ["success", "failure"],
                       "description": "for terminate"},
        },
    },
}},)


def read(reply: Message, size: tuple[int, int]) -> list[Action]:
    """Return the actions of the calls in a reply."""
    made: list[Action] = []
    for call in reply.get("tool_calls") or ():
        function = call.get("function") or {}
        if function.get("name") != "computer_use":
            raise Unreadable(f"no tool {function.get('name')!r}; there is computer_use"[:120])
        made += of_call(function.get("arguments"), size)
    if not made and (word := words.last_word(words.text_of(reply))):
        made.append(word)
    return made


def say(action: Action, size: tuple[int, int]) -> Message:
    """Return a message that asks for an action."""
    return assistant(calls=[("computer_use", _arguments(action, size))])


def _arguments(action: Action, size: tuple[int, int]) -> dict[str, Any]:
    a = action.args
    made: dict[str, Any] = {}
    if "x" in a:
        made["coordinate"] = [round(a["x"] * SPAN / size[0], 2), round(a["y"] * SPAN / size[1], 2)]
    match action.kind:
        case "click":
            found = [name for name, kind in _CLICKS.items()
                     if kind == (a.get("button", "left"), a.get("count", 1))]
            if found:
                return {"action": found[0], **made}
        case "move":
            return {"action": "mouse_move", **made}
        case "drag":
            return {"action": "left_click_drag", **made}
        case "scroll":
            sign = 1 if a["direction"] in ("up", "right") else -1
            name = "scroll" if a["direction"] in ("up", "down") else "hscroll"
            return {"action": name, "pixels": sign * a["count"], **made}
        case "write":
            return {"action": "type", "text": a["text"]}
        case "keys":
            return {"action": "key", "keys": [actions.said_key(name) for name in a["names"]]}
        case "wait":
            return {"action": "wait", "time": a.get("seconds", 1.0)}
        case "done" | "fail":
            status = "success" if action.kind == DONE else "failure"
            return {"action": "terminate", "status": status}
    raise ValueError(f"computer_use has no {action.kind!r}")


def of_call(arguments: Any, size: tuple[int, int]) -> list[Action]:
    """Return the actions of one call."""
    try:
        a = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the arguments are no JSON: {error}"[:200]) from None
    if not isinstance(a, Mapping) or a.get("action") not in NAMES:
        found = a.get("action") if isinstance(a, Mapping) else a
        raise Unreadable(f"no action {found!r}; there are {', '.join(NAMES)}"[:400])
    known = TOOLS[0]["function"]["parameters"]["properties"]
    if unknown := sorted(set(a) - set(known)):
        raise Unreadable(f"computer_use takes no {unknown[0]!r}; it takes {', '.join(known)}"[:300])
    return _actions(str(a["action"]), a, size)


def _actions(name: str, a: Mapping[str, Any], size: tuple[int, int]) -> list[Action]:
    where = _place(a.get("coordinate"), size)
    if name in _CLICKS:
        button, count = _CLICKS[name]
        return [Action("click", {**where, "button": button, "count": count})]
    if name in ("mouse_move", "left_click_drag"):
        if not where:
            raise Unreadable(f"{name} needs a coordinate")
        return [Action("move" if name == "mouse_move" else "drag", where)]
    if name in ("scroll", "hscroll"):
        amount = actions.number(a.get("pixels"), "pixels")
        return actions.scrolls(*((0, amount) if name == "scroll" else (amount, 0)), where)
    if name == "type":
        return [Action("write", {"text": actions.text(a.get("text"))})]
    if name == "key":
        keys = a.get("keys")
        if not isinstance(keys, list) or not keys:
            raise Unreadable(f"keys must be a list of names, not {keys!r}"[:120])
        return [Action("keys", {"names": [actions.key(k) for k in keys]})]
    if name == "wait":
        return [actions.pause(a.get("time", 1))]
    if a.get("status") not in ("success", "failure"):
        raise Unreadable("terminate needs a status: success or failure")
    return [Action(DONE if a["status"] == "success" else FAIL)]


def _place(pair: Any, size: tuple[int, int]) -> dict[str, float]:
    """Return pixels; the edge 1000 is the last one."""
    if pair is None:
        return {}
    if not isinstance(pair, list) or len(pair) != 2:
        raise Unreadable(f"a coordinate is [x, y], not {pair!r}"[:120])
    made = {}
    for axis, value, length in zip(("x", "y"), pair, size, strict=True):
        share = actions.number(value, axis)
        if not 0 <= share <= SPAN:
            raise Unreadable(f"{axis} is {share:g}; coordinates go from 0 to {SPAN}")
        made[axis] = float(min(length - 1, round(share * length / SPAN)))
    return made
