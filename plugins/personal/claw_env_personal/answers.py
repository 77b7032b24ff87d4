"""Answers in OpenAI's shape, whole and in chunks.

Owns: events of the engine -> JSON objects.
Does not own: sending them.
"""

import math
import time
from collections.abc import Iterator
from typing import Any

from claw.sdk import EngineError, Event, Message

from .errors import body_of
from .pieces import ARGUMENTS, CALL, TEXT, Pieces
from .requests import ChatRequest

PREFIX = "chatcmpl-"
PREFIXES = (PREFIX, "resp_", "msg_")
UNLIKELY = -9999.0
"""what OpenAI's contract writes for a log-prob of minus infinity"""


def answer_id(turn_id: str) -> str:
    """Return the response id of a turn."""
    return PREFIX + turn_id


def turn_id_of(target: str) -> str:
    """Return the turn id in a response id of any API (or the turn id itself)."""
    for prefix in PREFIXES:
        target = target.removeprefix(prefix)
    return target


class Chunks:
    """Turns the events of one answer into chunks; all share one id and time."""

    is_named = False
    last = b"data: [DONE]\n\n"

    def __init__(self, request: ChatRequest, model: str) -> None:
        self._request, self._model = request, model
        self._created = int(time.time())
        self._id, self._version, self._num_calls = "", 0, 0
        self._pieces = Pieces()

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of one event."""
        if not self._id:
            self._id, self._version = answer_id(event.turn_id), event.version
            yield self._delta({"role": "assistant", "content": ""})
        chunks = [c for piece in self._pieces.of(event) for c in self._of_piece(*piece)]
        if self._request.logprobs and event.tokens:
            chunks = chunks or [self._delta({"content": ""})]
            chunks[-1]["choices"][0]["logprobs"] = logprobs_of(
                event.tokens, self._request.top_logprobs)
        yield from chunks
        if event.type == "done":
            yield self._delta({}, finish_of(event))
            if self._request.include_usage:
                yield self._shell([]) | {"usage": usage_of(event)}

    def failure(self, error: EngineError) -> dict[str, Any]:
        """Return what a stream says when it breaks off."""
        return body_of(error)

    def whole(self, done: Event, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer in one piece."""
        wants = self._request.logprobs
        return {
            "id": answer_id(done.turn_id), "object": "chat.completion", "created": self._created,
            "model": self._model, "system_fingerprint": f"claw-v{done.version}",
            "choices": [{
                "index": 0, "finish_reason": finish_of(done),
                "logprobs": logprobs_of(tokens, self._request.top_logprobs) if wants else None,
                "message": {"content": "", "refusal": None} | _shown(done.message or {}),
            }],
            "usage": usage_of(done),
        }

    def _of_piece(self, kind: str, piece: Any) -> Iterator[dict[str, Any]]:
        if kind == CALL:
            self._num_calls += 1
            function = piece["function"]
            yield self._call({"id": piece["id"], "type": "function",
                              "function": {"name": function["name"], "arguments": ""}})
            if function["arguments"]:
                yield self._call({"function": {"arguments": function["arguments"]}})
        elif kind == ARGUMENTS:
            yield self._call({"function": {"arguments": piece}})
        else:
            yield self._delta({"content" if kind == TEXT else "reasoning_content": piece})

    def _call(self, fields: dict[str, Any]) -> dict[str, Any]:
        return self._delta({"tool_calls": [{"index": self._num_calls - 1} | fields]})

    def _delta(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return self._shell(
            [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        )

    def _shell(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id, "object": "chat.completion.chunk", "created": self._created,
            "model": self._model, "system_fingerprint": f"claw-v{self._version}",
            "choices": choices,
        }


def _shown(message: Message) -> Message:
    names = ("role", "content", "reasoning_content", "tool_calls")
    return {"role": "assistant"} | {n: message[n] for n in names if n in message}


def finish_of(event: Event) -> str:
    """Return a finish reason that clients know. A cut reply stays `length`, calls or not."""
    if event.finish_reason == "error":
        raise EngineError(500, "The reply failed half way.", type="server_error")
    if event.finish_reason in ("length", "cancelled"):
        return "length"
    return "tool_calls" if (event.message or {}).get("tool_calls") else "stop"


def usage_of(event: Event) -> dict[str, Any]:
    """Return token counts with the details that clients look into."""
    prompt = event.usage.get("prompt_tokens", 0)
    completion = event.usage.get("completion_tokens", 0)
    return {
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": event.usage.get("cached_tokens", 0)},
        "completion_tokens_details": {"reasoning_tokens": event.usage.get("reasoning_tokens", 0)},
    }


def logprobs_of(tokens: Any, top: int) -> dict[str, Any]:
    """Return the log-probs of sampled tokens, `top` alternatives each."""
    content = [
        _one(token["token"], token.get("logprob"))
        | {"top_logprobs": [_one(*pair) for pair in list(token.get("top", ()))[:top]]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _one(token: str, logprob: float | None) -> dict[str, Any]:
    return {"token": token, "bytes": _bytes(token), "logprob": _finite(logprob)}


def _bytes(token: str) -> list[int] | None:
    if "\ufffd" in token:  # part of a character: its bytes are not known here
        return None
    try:
        return list(token.encode("utf-8"))
    except UnicodeEncodeError:
        return None


def _finite(logprob: float | None) -> float | None:
    """Minus infinity has a number by contract; what is no score stays null, never 0."""
    if logprob is None or math.isnan(logprob) or logprob == math.inf:
        return None
    return max(float(logprob), UNLIKELY)
