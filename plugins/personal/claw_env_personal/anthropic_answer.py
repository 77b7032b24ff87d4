"""Answers in the shape of Anthropic's Messages API, whole and as events.

Owns: content blocks (thinking, text, tool_use) and the order of their events.
Does not own: sending them (`stream`).
"""

import json
from collections.abc import Iterator
from typing import Any

from claw.sdk import EngineError, Event
from claw.sdk.foreign_json import from_json

from .answers import finish_of, usage_of
from .errors import ANTHROPIC, body_of
from .pieces import ARGUMENTS, CALL, TEXT, Pieces, pieces_of

_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "end_turn"}


class MessageEvents:
    """Turns the events of one answer into the events of a message."""

    is_named = True
    last = b""

    def __init__(self, model: str) -> None:
        self._model = model
        self._has_begun = False
        self._index, self._open = 0, ""
        """of the block that is being written, and its kind"""
        self._pieces = Pieces()

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the events of one event."""
        if not self._has_begun:
            self._has_begun = True
            used = {"input_tokens": event.usage.get("prompt_tokens", 0), "output_tokens": 0}
            yield {"type": "message_start", "message": self._message(event, [], None, used)}
        for kind, piece in self._pieces.of(event):
            yield from self._of_piece(kind, piece)
        if event.type == "done":
            yield from self._close()
            yield {"type": "message_delta", "usage": _used(event),
                   "delta": {"stop_reason": _stop_of(event), "stop_sequence": None}}
            yield {"type": "message_stop"}

    def failure(self, error: EngineError) -> dict[str, Any]:
        """Return what a stream says when it breaks off."""
        return body_of(error, ANTHROPIC)

    def whole(self, done: Event, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer in one piece."""
        blocks = [_whole_block(kind, piece) for kind, piece in pieces_of(done)]
        return self._message(done, blocks, _stop_of(done), _used(done))

    def _message(
        self, event: Event, blocks: list[dict[str, Any]], stop: str | None, used: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{event.turn_id}", "type": "message", "role": "assistant",
            "model": self._model, "content": blocks, "stop_reason": stop, "stop_sequence": None,
            "usage": used,
        }

    def _of_piece(self, kind: str, piece: Any) -> Iterator[dict[str, Any]]:
        if kind == CALL:
            yield from self._call(piece)
        elif kind == ARGUMENTS:
            yield self._input_delta(piece)
        else:
            yield from self._text(kind, piece)

    def _text(self, kind: str, piece: str) -> Iterator[dict[str, Any]]:
        if self._open != kind:
            yield from self._close()
            self._open = kind
            yield self._on("content_block_start", content_block=_whole_block(kind, ""))
        delta = {"type": "text_delta", "text": piece} if kind == TEXT else {
            "type": "thinking_delta", "thinking": piece}
        yield self._on("content_block_delta", delta=delta)

    def _call(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._close()
        self._open = CALL
        empty = _whole_block(CALL, call) | {"input": {}}
        yield self._on("content_block_start", content_block=empty)
        if call["function"]["arguments"]:
            yield self._input_delta(json.dumps(_input(call)))

    def _input_delta(self, said: str) -> dict[str, Any]:
        return self._on("content_block_delta", delta={
            "type": "input_json_delta", "partial_json": said})

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open:
            yield self._on("content_block_stop")
            self._open = ""
            self._index += 1

    def _on(self, type: str, **fields: Any) -> dict[str, Any]:
        return {"type": type, "index": self._index} | fields


def _whole_block(kind: str, piece: Any) -> dict[str, Any]:
    if kind == CALL:
        return {"type": "tool_use", "id": piece["id"], "name": piece["function"]["name"],
                "input": _input(piece)}
    if kind == TEXT:
        return {"type": "text", "text": piece}
    return {"type": "thinking", "thinking": piece, "signature": ""}


def _input(call: dict[str, Any]) -> dict[str, Any]:
    """The input of a tool is an object here; what is none keeps its text, under one name."""
    said = call["function"]["arguments"]
    try:
        value = from_json(said or "{}", finite=True)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": said}


def _stop_of(event: Event) -> str:
    return _STOPS[finish_of(event)]


def _used(event: Event) -> dict[str, int]:
    used = usage_of(event)
    return {"input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"]}
