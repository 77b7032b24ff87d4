"""Tool calls told while they are generated: first who is called, then the arguments as they come.

Owns: when a call has begun, which of its arguments is certain, the order of calls.
Does not own: thinking, other families, calls that are told whole (`families.py`).

A client has read what was told, so a call that was begun stays one when it breaks off: its
arguments are then what was told of them. What was not begun and is malformed stays text.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json as from_start

from claw.engine.actor import families, parse
from claw.sdk.foreign_json import from_json

Part = dict[str, Any]
"""index and arguments (new text); the first of a call has its id and name too"""
_HEAD = re.compile(
    r'<tool_call>\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*'
    r"(?=\{)")
ESCAPE = 7
"""characters after a backslash until it is known whether it began a sound escape"""
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(eq=False)
class Told:
    """The calls of one reply. `take` what is known of its body each time there is more."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    """as a message has them"""
    _spans: list[tuple[int, int]] = field(default_factory=list)
    """where calls stand in the body"""
    _at: int = 0
    """all before is done with"""
    _start: int = -1
    """of the call that has begun; -1: none"""
    _arguments: "_Arguments | None" = None

    def take(self, body: str, *, is_whole: bool = False) -> list[Part]:
        """Return what is new; `is_whole`: nothing will follow."""
        parts: list[Part] = []
        while self._arguments is not None or self._begin(body, parts):
            if self._arguments is not None and not self._go_on(body, parts, is_whole):
                break
        return parts

    def content(self, body: str) -> str:
        """Return the whole body without its calls and the white space that follows each."""
        kept, at = "", 0
        for start, end in self._spans:
            kept += body[at:start]
            at = len(body) - len(body[end:].lstrip())
        return kept + body[at:]

    def _begin(self, body: str, parts: list[Part]) -> bool:
        """Find the next call; return whether there may be more to do."""
        start = body.find(families.CALL, self._at)
        if start < 0:
            self._at = max(self._at, len(body) - len(families.CALL) + 1)
            return False
        self._at, end = start, body.find(families.CALL_END, start)
        head = _HEAD.match(body, start, len(body) if end < 0 else end)
        if head is not None and (name := _name(head[1])):
            self._add(name, parts)
            self._at, self._start, self._arguments = head.end(), start, _Arguments()
            return True
        if end < 0:
            return False
        call = families.call(body[start + len(families.CALL) : end], "arguments")
        self._at = end + len(families.CALL_END)
        if call is not None:  # in another order, or its arguments are a string
            self._add(call["function"]["name"], parts)
            self._tell(call["function"]["arguments"], parts)
            self._spans.append((start, self._at))
        return True

    def _go_on(self, body: str, parts: list[Part], is_whole: bool) -> bool:
        """Tell what is certain of the arguments; return whether the call has ended."""
        assert self._arguments is not None, "a call has begun"
        end = body.find(families.CALL_END, self._at)
        held = 0 if is_whole else parse.overlap(body, families.CALL_END)
        certain = max(self._at, len(body) - held) if end < 0 else end
        if certain > self._at:
            self._tell(self._arguments.add(body[self._at : certain]), parts)
        self._at = certain
        if end < 0 and not is_whole:
            return False
        self._at = len(body) if end < 0 else end + len(families.CALL_END)
        self._spans.append((self._start, self._at))
        self._arguments = None
        return True

    def _add(self, name: str, parts: list[Part]) -> None:
        call = {"id": families.call_id(), "type": "function",
                "function": {"name": name, "arguments": ""}}
        parts.append({"index": len(self.calls), "id": call["id"], "name": name, "arguments": ""})
        self.calls.append(call)

    def _tell(self, arguments: str, parts: list[Part]) -> None:
        if arguments:
            self.calls[-1]["function"]["arguments"] += arguments
            parts.append({"index": len(self.calls) - 1, "arguments": arguments})


def _name(said: str) -> str:
    try:
        return str(from_json(said))
    except ValueError:
        return ""


def _is_start_of_json(text: str) -> bool:
    try:
        from_start(text, allow_partial=True, allow_inf_nan=False)
    except ValueError:
        return False
    return True


@dataclass(eq=False)
class _Arguments:
    """One JSON object, piece by piece: where it ends, and its strings as clients read them.

    What was given out is always the start of valid JSON: readers of unfinished JSON raise on other.
    """

    said: str = ""
    closers: list[str] = field(default_factory=list)
    """of what is open, the innermost last"""
    is_in_string: bool = False
    is_escaped: bool = False
    is_over: bool = False
    num_open: int = 0
    """characters that an escape may still go wrong in"""

    def add(self, text: str) -> str:
        """Return what of `text` belongs to the object; nothing more after what is no JSON."""
        made: list[str] = []
        is_plain = True
        for c in text:
            if self.is_over:
                break
            is_plain = is_plain and self.is_in_string and c not in '\\"' and not self.num_open
            self.num_open = ESCAPE if c == "\\" else max(0, self.num_open - 1)
            made.append(self._string(c) if self.is_in_string else self._outside(c))
        new = "".join(made)
        if not is_plain and not _is_start_of_json(self.said + new):
            self.is_over = True
            return ""
        self.said += new
        return new

    def _outside(self, c: str) -> str:
        if c == '"':
            self.is_in_string = True
        elif c in "{[":
            self.closers.append("}" if c == "{" else "]")
        elif c in "}]":
            is_right = self.closers.pop() == c
            self.is_over = not (is_right and self.closers)
            return c if is_right else ""
        return c

    def _string(self, c: str) -> str:
        """Models write lines as they are; strict readers want them escaped."""
        if self.is_escaped:
            self.is_escaped = False
        elif c == "\\":
            self.is_escaped = True
        elif c == '"':
            self.is_in_string = False
        elif c < " ":
            return _ESCAPES.get(c, f"\\u{ord(c):04x}")
        return c
