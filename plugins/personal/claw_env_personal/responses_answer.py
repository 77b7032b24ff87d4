"""Answers in the shape of OpenAI's Responses API, whole and as events.

Owns: output items (reasoning, message, function_call) and the order of their events.
Does not own: sending them (`stream`).
"""

import time
from collections.abc import Iterator
from typing import Any

from claw.sdk import EngineError, Event

from .answers import finish_of, usage_of
from .pieces import ARGUMENTS, CALL, TEXT, Pieces, pieces_of

_STARTS = {"reasoning": "response.reasoning_text", "message": "response.output_text"}


class ResponseEvents:
    """Turns the events of one answer into the events of a response."""

    is_named = True
    last = b""

    def __init__(self, body: dict[str, Any], model: str) -> None:
        self._body, self._model = body, model
        self._created = int(time.time())
        self._turn_id, self._number, self._version = "", 0, 0
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        """the item that text or arguments are being added to"""
        self._pieces = Pieces()

    # --- streamed ----------------------------------------------------------------------------

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the events of one event."""
        if not self._turn_id:
            self._turn_id, self._version = event.turn_id, event.version
            yield self._event("response.created", response=self._response("in_progress"))
            yield self._event("response.in_progress", response=self._response("in_progress"))
        for kind, piece in self._pieces.of(event):
            yield from self._of_piece(kind, piece)
        if event.type == "done":
            yield from self._close()
            response = self._ended(event)
            yield self._event(f"response.{response['status']}", response=response)

    def failure(self, error: EngineError) -> dict[str, Any]:
        """Return what a stream says when it breaks off; clients raise it."""
        said = {"message": error.message, "code": error.code, "param": error.param}
        return self._event("error", **said, error=said | {"type": error.type})

    def _of_piece(self, kind: str, piece: Any) -> Iterator[dict[str, Any]]:
        if kind == CALL:
            yield from self._call(piece)
        elif kind == ARGUMENTS:
            assert self._open is not None, "arguments follow their call"
            self._open["arguments"] += piece
            yield self._of_call("delta", delta=piece)
        else:
            yield from self._text(kind, piece)

    def _text(self, kind: str, piece: str) -> Iterator[dict[str, Any]]:
        name = "message" if kind == TEXT else "reasoning"
        if self._open is None or self._open["type"] != name:
            yield from self._close()
            self._open = self._item(name)
            empty = self._open | ({"content": []} if name == "message" else {})
            yield self._event("response.output_item.added", item=empty | {"status": "in_progress"},
                              output_index=len(self._items))
            yield self._of_part("response.content_part.added", part=_part(name, ""))
        self._open["content"][0]["text"] += piece
        yield self._of_part(f"{_STARTS[name]}.delta", delta=piece, **_no_logprobs(name))

    def _close(self) -> Iterator[dict[str, Any]]:
        item = self._open
        if item is None:
            return
        if item["type"] == "function_call":
            yield self._of_call("done", arguments=item["arguments"], name=item["name"])
        else:
            [part], name = item["content"], item["type"]
            yield self._of_part(f"{_STARTS[name]}.done", text=part["text"], **_no_logprobs(name))
            yield self._of_part("response.content_part.done", part=part)
        yield self._event("response.output_item.done", item=item, output_index=len(self._items))
        self._items.append(item)
        self._open = None

    def _call(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._close()
        self._open = self._call_item(call)
        yield self._event("response.output_item.added", output_index=len(self._items),
                          item=self._open | {"arguments": "", "status": "in_progress"})
        if said := self._open["arguments"]:
            yield self._of_call("delta", delta=said)

    def _of_call(self, what: str, **fields: Any) -> dict[str, Any]:
        assert self._open is not None, "a call is open"
        return self._event(f"response.function_call_arguments.{what}", item_id=self._open["id"],
                           output_index=len(self._items), **fields)

    def _of_part(self, type: str, **fields: Any) -> dict[str, Any]:
        assert self._open is not None, "a part has an open item"
        return self._event(type, item_id=self._open["id"], output_index=len(self._items),
                           content_index=0, **fields)

    def _event(self, type: str, **fields: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": type, "sequence_number": self._number - 1} | fields

    # --- whole -------------------------------------------------------------------------------

    def whole(self, done: Event, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer in one piece."""
        self._turn_id, self._version = done.turn_id, done.version
        for kind, piece in pieces_of(done):
            if kind == CALL:
                self._items.append(self._call_item(piece))
            else:
                item = self._item("message" if kind == TEXT else "reasoning")
                item["content"][0]["text"] = piece
                self._items.append(item)
        return self._ended(done)

    def _ended(self, done: Event) -> dict[str, Any]:
        is_cut = finish_of(done) == "length"
        used = usage_of(done)
        return self._response("incomplete" if is_cut else "completed") | {
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {
                "input_tokens": used["prompt_tokens"], "output_tokens": used["completion_tokens"],
                "total_tokens": used["total_tokens"],
                "input_tokens_details": used["prompt_tokens_details"],
                "output_tokens_details": used["completion_tokens_details"],
            },
        }

    def _response(self, status: str) -> dict[str, Any]:
        asked = self._body
        return {
            "id": f"resp_{self._turn_id}", "object": "response", "created_at": self._created,
            "status": status, "model": self._model, "output": list(self._items), "error": None,
            "incomplete_details": None, "instructions": asked.get("instructions"),
            "metadata": {"system_fingerprint": f"claw-v{self._version}"}, "usage": None,
            "parallel_tool_calls": asked.get("parallel_tool_calls") is not False,
            "previous_response_id": None, "store": False,
            "temperature": asked.get("temperature"), "top_p": asked.get("top_p"),
            "max_output_tokens": asked.get("max_output_tokens"),
            "tool_choice": asked.get("tool_choice") or "auto", "tools": asked.get("tools") or [],
            "text": {"format": {"type": "text"}}, "truncation": "disabled",
        }

    def _item(self, name: str) -> dict[str, Any]:
        id = f"{'msg' if name == 'message' else 'rs'}_{self._turn_id}_{len(self._items)}"
        about = {"role": "assistant"} if name == "message" else {"summary": []}
        return {"type": name, "id": id, "status": "completed",
                "content": [_part(name, "")]} | about

    def _call_item(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {"type": "function_call", "id": f"fc_{self._turn_id}_{len(self._items)}",
                "status": "completed", "call_id": call["id"], "name": function["name"],
                "arguments": function["arguments"]}


def _part(name: str, text: str) -> dict[str, Any]:
    if name == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _no_logprobs(name: str) -> dict[str, Any]:
    return {"logprobs": []} if name == "message" else {}
