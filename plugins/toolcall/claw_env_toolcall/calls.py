"""Tool calls in a reply: those the engine has read, and those that stand in its text.

Owns: reply -> calls, broken ones included.
Does not own: whether a tool exists or its arguments fit (`tools.toolbox`).
"""

import re
from dataclasses import dataclass
from typing import Any

from claw.sdk import Message

from .tools import arguments

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_CALL = re.compile(r"<tool_call>(.*?)(</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Call:
    """One call. With a `problem` it cannot run: the text says why."""

    id: str
    name: str
    arguments: dict[str, Any] | None = None
    problem: str = ""


def read(reply: Message, max_calls: int = 64) -> list[Call]:
    """Return the calls of a reply in order; the first `max_calls` of them."""
    made = [_native(call) for call in reply.get("tool_calls") or ()]
    found = _CALL.finditer(text_of(reply)) if len(made) < max_calls else ()
    for match in found:
        made.append(_written(match[1], match[2] == CLOSE, len(made)))
        if len(made) >= max_calls:
            break
    return made[:max_calls]


def text_of(reply: Message) -> str:
    content = reply.get("content")
    return content if isinstance(content, str) else ""


def _native(call: Any) -> Call:
    function = call.get("function") or {}
    id, name = str(call.get("id") or ""), str(function.get("name") or "")
    given = function.get("arguments")
    try:
        value = arguments.read(given) if isinstance(given, str) else given
    except ValueError as error:
        return Call(id, name, problem=f"the arguments are not JSON: {error}")
    return _checked(id, name, value)


def _written(text: str, is_closed: bool, index: int) -> Call:
    id = f"text{index}"
    if not is_closed:
        return Call(id, "", problem=f"the tool call has no {CLOSE}")
    try:
        value = arguments.read(text)
    except ValueError as error:
        return Call(id, "", problem=f"the tool call is not JSON: {error}")
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call(id, "", problem='a tool call is {"name": ..., "arguments": {...}}')
    return _checked(id, value["name"], value.get("arguments", {}))


def _checked(id: str, name: str, value: Any) -> Call:
    if not isinstance(value, dict):
        return Call(id, name, problem="the arguments are not a JSON object")
    return Call(id, name, value)
