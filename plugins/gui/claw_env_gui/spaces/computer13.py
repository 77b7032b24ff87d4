"""OSWorld's `computer_13`: sixteen actions as JSON objects, pixels of the screen.

Owns: reading `{"action_type": "CLICK", "parameters": {"x": 10, "y": 20}}`, also with the parameters
beside the type, one object or a list of them.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from claw.sdk import Message
from claw.sdk.env import assistant

from .. import actions
from ..actions import Action, Unreadable
from . import words

TOOLS: tuple[dict[str, Any], ...] = ()
PROMPT = """You use a computer with a screen of {width} x {height} pixels to complete a task.
Each time, write one action as a JSON object in a block, and nothing after it:
```json
{{"action_type": "CLICK", "parameters": {{"x": 640, "y": 400}}}}
```
The actions: MOVE_TO {{x, y}}; CLICK {{x, y, button, num_clicks}}; MOUSE_DOWN {{button}}; MOUSE_UP
{{button}}; RIGHT_CLICK {{x, y}}; DOUBLE_CLICK {{x, y}}; DRAG_TO {{x, y}}; SCROLL {{dx, dy}} (dy
above 0 is up); TYPING {{text}}; PRESS {{key}}; KEY_DOWN {{key}}; KEY_UP {{key}}; HOTKEY {{keys}},
such as ["ctrl", "s"]. Write WAIT to wait, DONE when the task is complete, FAIL when it
cannot be done."""


def read(reply: Message, size: tuple[int, int]) -> list[Action]:
    """Return the actions of a reply."""
    text = words.text_of(reply)
    made: list[Action] = []
    for found in _objects(text):
        made += _actions(found)
    if not made and (word := words.last_word(text)):
        made.append(word)
    return made


def say(action: Action, size: tuple[int, int]) -> Message:
    """Return a message that asks for an action."""
    if action.is_end or action.kind == actions.WAIT:
        return assistant(action.kind.upper())
    return assistant(f"```json\n{json.dumps(to_dict(action))}\n```")


def to_dict(action: Action) -> dict[str, Any]:
    """Return the object that asks for an action."""
    a = dict(action.args)
    if action.kind in ("move", "drag"):
        kind = {"move": "MOVE_TO", "drag": "DRAG_TO"}[action.kind]
    elif action.kind == "click":
        kind, a["num_clicks"] = "CLICK", a.pop("count", 1)
    elif action.kind == "button":
        kind = "MOUSE_DOWN" if a.pop("down") else "MOUSE_UP"
    elif action.kind == "scroll":
        sign = 1 if a["direction"] in ("up", "right") else -1
        axis = "dy" if a["direction"] in ("up", "down") else "dx"
        kind, a = "SCROLL", {axis: sign * a["count"]}
    elif action.kind == "write":
        kind = "TYPING"
    elif action.kind == "keys":
        kind, a = "HOTKEY", {"keys": [actions.said_key(name) for name in a["names"]]}
    elif action.kind == "key":
        kind, a = ("KEY_DOWN" if a["down"] else "KEY_UP"), {"key": actions.said_key(a["name"])}
    else:
        raise ValueError(f"computer_13 has no {action.kind!r}")
    return {"action_type": kind, "parameters": a}


def of_dict(found: Mapping[str, Any]) -> Action | list[Action]:
    """Return what one object asks for."""
    kind = found.get("action_type")
    inner = found.get("parameters")
    given = dict(inner) if isinstance(inner, Mapping) else {
        k: v for k, v in found.items() if k not in ("action_type", "parameters")}
    if kind not in READERS:
        raise Unreadable(f"no action {kind!r}; there are {', '.join(READERS)}"[:400])
    takes, make = READERS[kind]
    if unknown := sorted(set(given) - set(takes)):
        raise Unreadable(f"{kind} takes no {unknown[0]!r}; "
                         f"it takes {', '.join(takes) or 'nothing'}")
    return make(given)


def _actions(found: Any) -> list[Action]:
    made: list[Action] = []
    for each in found if isinstance(found, list) else [found]:
        if isinstance(each, str) and each in words.WORDS:
            made.append(words.WORDS[each])
        elif isinstance(each, Mapping):
            action = of_dict(each)
            made += action if isinstance(action, list) else [action]
        else:
            raise Unreadable(f"an action is an object, not {each!r}"[:120])
    return made


def _objects(text: str) -> list[Any]:
    """Return the JSON of the blocks; without blocks, that of the text from its first brace on."""
    blocks = words.blocks(text)
    if not blocks and "{" in text:
        blocks = [text[text.index("{"):]]
    made = []
    for block in blocks:
        if block in words.WORDS:
            made.append(block)
            continue
        try:
            made.append(json.JSONDecoder().raw_decode(block)[0])
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"that block is no JSON: {error}"[:200]) from None
    return made


def _click(a: dict[str, Any], button: str = "left", count: int = 1) -> Action:
    return Action("click", {
        **actions.at(a.get("x"), a.get("y")), "button": actions.button(a.get("button", button)),
        "count": int(actions.number(a.get("num_clicks", count), "num_clicks"))})


def _keys(a: dict[str, Any]) -> Action:
    keys = a.get("keys")
    if not isinstance(keys, list) or not keys:
        raise Unreadable(f"keys must be a list of names, not {keys!r}"[:120])
    return Action("keys", {"names": [actions.key(k) for k in keys]})


def _needs(a: dict[str, Any]) -> dict[str, float]:
    if not (where := actions.at(a.get("x"), a.get("y"))):
        raise Unreadable("x and y are missing")
    return where


def _key(down: bool) -> Callable[[dict[str, Any]], Action]:
    return lambda a: Action("key", {"name": actions.key(a.get("key")), "down": down})


def _mouse(down: bool) -> Callable[[dict[str, Any]], Action]:
    return lambda a: Action("button", {"button": actions.button(a.get("button")), "down": down})


def _scroll(a: dict[str, Any]) -> list[Action]:
    return actions.scrolls(actions.number(a.get("dx", 0), "dx"),
                           actions.number(a.get("dy", 0), "dy"), {})


Reader = Callable[[dict[str, Any]], Action | list[Action]]
READERS: dict[Any, tuple[tuple[str, ...], Reader]] = {
    "MOVE_TO": (("x", "y"), lambda a: Action("move", _needs(a))),
    "CLICK": (("button", "x", "y", "num_clicks"), _click),
    "MOUSE_DOWN": (("button",), _mouse(True)),
    "MOUSE_UP": (("button",), _mouse(False)),
    "RIGHT_CLICK": (("x", "y"), lambda a: _click(a, "right")),
    "DOUBLE_CLICK": (("x", "y"), lambda a: _click(a, count=2)),
    "DRAG_TO": (("x", "y"), lambda a: Action("drag", _needs(a))),
    "SCROLL": (("dx", "dy"), _scroll),
    "TYPING": (("text",), lambda a: Action("write", {"text": actions.text(a.get("text"))})),
    "PRESS": (("key",), lambda a: Action("keys", {"names": [actions.key(a.get("key"))]})),
    "KEY_DOWN": (("key",), _key(True)),
    "KEY_UP": (("key",), _key(False)),
    "HOTKEY": (("keys",), _keys),
    **{word: ((), lambda a, action=action: action) for word, action in words.WORDS.items()},
}
