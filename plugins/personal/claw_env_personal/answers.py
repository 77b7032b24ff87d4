"""Answers in OpenAI's shape, whole and in chunks.

Owns: events of the engine -> JSON objects.
Does not own: sending them.
"""

import math
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from claw.sdk import EngineError, Event, Message

from .errors import ours
from .requests import ChatRequest

PREFIX = "chatcmpl-"
UNLIKELY = -9999.0
"""what OpenAI's contract writes for a log-prob of minus infinity"""


def answer_id(turn_id: str) -> str:
    """Return the response id of a turn."""
    return PREFIX + turn_id


def turn_id_of(target: str) -> str:
    """Return the turn id in a response id (or the turn id itself)."""
    return target.removeprefix(PREFIX)


class Chunks:
    """Turns the events of one answer into chunks; all share one id and time."""

    def __init__(self, request: ChatRequest, model: str) -> None:
        self._request, self._model = request, model
        self._created = int(time.time())
        self._id, self._version, self._said = "", 0, ""

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of one event."""
        if not self._id:
            self._id, self._version = answer_id(event.turn_id), event.version
            yield self._delta({"role": "assistant", "content": ""})
        if event.type == "text":
            yield from self._text(event)
        elif event.type == "done":
            yield from self._end(event)

    def _text(self, event: Event) -> Iterator[dict[str, Any]]:
        self._said += event.text
        if not event.text and not (self._request.logprobs and event.tokens):
            return
        chunk = self._delta({"content": event.text})
        if self._request.logprobs:
            chunk["choices"][0]["logprobs"] = logprobs_of(event.tokens, self._request.top_logprobs)
        yield chunk

    def _end(self, event: Event) -> Iterator[dict[str, Any]]:
        message = event.message or {}
        reason = finish_of(event)
        whole = message.get("content") or ""
        if len(whole) > len(self._said) and whole.startswith(self._said):
            yield self._delta({"content": whole[len(self._said):]})
        if message.get("reasoning_content"):
            yield self._delta({"reasoning_content": message["reasoning_content"]})
        for index, call in enumerate(message.get("tool_calls") or ()):
            yield from self._call(index, call)
        yield self._delta({}, reason)
        if self._request.include_usage:
            yield self._shell([]) | {"usage": usage_of(event)}

    def _call(self, index: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        function = call["function"]
        yield self._delta({"tool_calls": [{
            "index": index, "id": call["id"], "type": "function",
            "function": {"name": function["name"], "arguments": ""},
        }]})
        yield self._delta({"tool_calls": [
            {"index": index, "function": {"arguments": function["arguments"]}}
        ]})

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


async def whole_answer(
    events: AsyncIterator[Event], request: ChatRequest, model: str
) -> dict[str, Any]:
    """Read the events to their end and return one completion."""
    tokens: list[dict[str, Any]] = []
    done: Event | None = None
    async for event in events:
        if request.logprobs:
            tokens += event.tokens
        if event.type == "done":
            done = event
    if done is None:
        raise ours()
    logprobs = logprobs_of(tokens, request.top_logprobs) if request.logprobs else None
    return {
        "id": answer_id(done.turn_id), "object": "chat.completion", "created": int(time.time()),
        "model": model, "system_fingerprint": f"claw-v{done.version}",
        "choices": [{
            "index": 0, "finish_reason": finish_of(done), "logprobs": logprobs,
            "message": {"content": "", "refusal": None} | _shown(done.message or {}),
        }],
        "usage": usage_of(done),
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
