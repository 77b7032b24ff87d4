"""What is new in each event of an answer, whatever shape it is then written in.

Owns: the order (thinking, text, calls), and that at the end nothing of the reply is missing.
Does not own: shapes (`answers`, `responses_answer`, `anthropic_answer`).
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from claw.sdk import Event

from .errors import ours

THINKING, TEXT, CALL, ARGUMENTS = "thinking", "text", "call", "arguments"
Piece = tuple[str, Any]
"""(thinking or text, a string), or (call, {id, type, function: {name, arguments}}). A call
that is told while it is made comes without its arguments: (arguments, a string)... follow"""


class Pieces:
    """Call `of(event)` for each event of one answer."""

    def __init__(self) -> None:
        self._said = {THINKING: "", TEXT: ""}
        self._num_calls = 0

    def of(self, event: Event) -> Iterator[Piece]:
        """Yield the pieces of one event."""
        if event.type == "text":
            yield from self._new(THINKING, event.reasoning)
            yield from self._new(TEXT, event.text)
            for part in event.calls:
                if part["index"] == self._num_calls:
                    yield self._call(part["id"], part["name"])
                if part["arguments"]:
                    yield ARGUMENTS, part["arguments"]
        elif event.type == "done":
            message = event.message or {}
            yield from self._rest(THINKING, message.get("reasoning_content") or "")
            yield from self._rest(TEXT, message.get("content") or "")
            for call in (message.get("tool_calls") or ())[self._num_calls:]:
                yield CALL, call

    def _call(self, id: str, name: str) -> Piece:
        self._num_calls += 1
        return CALL, {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}

    def _new(self, kind: str, text: str) -> Iterator[Piece]:
        self._said[kind] += text
        if text:
            yield kind, text

    def _rest(self, kind: str, whole: str) -> Iterator[Piece]:
        said = self._said[kind]
        if whole.startswith(said):
            yield from self._new(kind, whole[len(said):])


def pieces_of(done: Event) -> list[Piece]:
    """Return the pieces of a whole reply."""
    message = done.message or {}
    said = [(THINKING, message.get("reasoning_content")), (TEXT, message.get("content"))]
    calls = [(CALL, call) for call in message.get("tool_calls") or ()]
    return [piece for piece in said if piece[1]] + calls


async def read(events: AsyncIterator[Event]) -> tuple[Event, list[dict[str, Any]]]:
    """Read the events to their end; return the last one and every token that was reported."""
    tokens: list[dict[str, Any]] = []
    done: Event | None = None
    async for event in events:
        tokens += event.tokens
        if event.type == "done":
            done = event
    if done is None:
        raise ours()
    return done, tokens
