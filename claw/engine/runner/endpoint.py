"""Any OpenAI-compatible endpoint as the policy of episodes: measured, never trained.

Owns: requests and answers in the official shape, what their errors mean.
Does not own: waiting and asking again (`asking`), token ids (an endpoint gives none).
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from claw.config import RolloutConfig
from claw.engine.runner.result import Result
from claw.errors import UsageError
from claw.records import FinishReason, Message, Signal, Task, new_id
from claw.sdk import Ask, EngineError, Event

MAX_BYTES = 32 << 20
"""of one answer"""
_FINISH = {str(reason) for reason in FinishReason}


@dataclass(eq=False)
class Endpoint:
    """`async with Endpoint(...) as policy`. The key is sent and never shown."""

    base_url: str
    model: str
    rollout: RolloutConfig
    api_key: str = ""
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError("not a base URL", found=self.base_url,
                             allowed="http://HOST:PORT/v1 or https://HOST/v1")
        self._limit_name = "max_tokens"

    async def __aenter__(self) -> "Endpoint":
        try:
            import httpx
        except ImportError as error:
            raise UsageError("an endpoint needs httpx", found=str(error),
                             do="pip install 'claw-rl[serve]'") from error
        self._http: Any = httpx
        limits = httpx.Limits(max_connections=self.rollout.parallel)
        self._client = httpx.AsyncClient(timeout=self.timeout_s, limits=limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    # --- Policy ------------------------------------------------------------------------------

    async def ask(self, ask: Ask, *, trace_id: str = "") -> AsyncIterator[Event]:
        """Ask once; the whole answer is one event."""
        sent = self._body(ask)
        status, headers, body = await self._post(sent)
        if status == 400 and "max_tokens" in sent and b"max_completion_tokens" in body:
            self._limit_name = "max_completion_tokens"  # the newer name for the same limit
            status, headers, body = await self._post(self._body(ask))
        if status != 200:
            raise _refusal(status, headers, body)
        yield _event(body, trace_id)

    async def takes_pictures(self) -> bool:
        """An endpoint does not say."""
        return False

    async def open_trace(self, task: Task, group: str) -> str:
        """Name the trace; nobody else keeps it."""
        return new_id("trace")

    async def next_state(
        self, turn_id: str, messages: list[Message], signals: list[Signal]
    ) -> None:
        """An endpoint learns nothing."""

    async def end_trace(self, result: Result) -> None:
        """An endpoint learns nothing."""

    # --- HTTP --------------------------------------------------------------------------------

    def _body(self, ask: Ask) -> dict[str, Any]:
        r = self.rollout
        body: dict[str, Any] = {
            "model": self.model, "messages": ask.messages, "temperature": r.temperature,
            self._limit_name: ask.sampling.get("max_tokens", r.max_tokens),
        }
        if r.top_p < 1:
            body["top_p"] = r.top_p
        if r.top_k:
            body["top_k"] = r.top_k  # no part of OpenAI's own shape; SGLang and vLLM take it
        if ask.tools:
            body["tools"] = ask.tools
        return body

    async def _post(self, body: dict[str, Any]) -> tuple[int, Any, bytes]:
        url = self.base_url.rstrip("/") + "/chat/completions"
        # ASCII: a lone surrogate in an observation must not end the client
        headers = {"content-type": "application/json"}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        try:
            async with self._client.stream(
                "POST", url, content=json.dumps(body).encode("ascii"), headers=headers
            ) as answer:
                return answer.status_code, answer.headers, await _bounded(answer)
        except self._http.TimeoutException as error:
            raise EngineError(504, f"no answer from {self.base_url} in time: "
                              f"{type(error).__name__}", type="server_error") from error
        except self._http.HTTPError as error:
            raise EngineError(503, f"{self.base_url} cannot be asked: {type(error).__name__}: "
                              f"{error}", type="server_error") from error


async def _bounded(answer: Any) -> bytes:
    made = bytearray()
    async for part in answer.aiter_bytes():
        made += part
        if len(made) > MAX_BYTES:
            raise EngineError(502, f"an answer of more than {MAX_BYTES} bytes",
                              type="server_error")
    return bytes(made)


def _event(body: bytes, trace_id: str) -> Event:
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        said = choice["message"]
        message: Message = {"role": "assistant", "content": said.get("content")}
        if said.get("tool_calls"):
            message["tool_calls"] = said["tool_calls"]
        elif message["content"] is None:
            message["content"] = ""
        usage = {k: int(v) for k, v in (answer.get("usage") or {}).items() if isinstance(v, int)}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise EngineError(502, f"the endpoint's answer is no chat completion: {error!r}",
                          type="server_error") from error
    finish = str(choice.get("finish_reason") or "stop")
    return Event(
        "done", str(answer.get("id") or new_id("turn")), trace_id, message=message,
        finish_reason=finish if finish in _FINISH else "stop", usage=usage,
    )


def _refusal(status: int, headers: Any, body: bytes) -> EngineError:
    """Return the endpoint's error; what means a full context is told by code or by words."""
    try:
        said = json.loads(body).get("error")
    except (ValueError, AttributeError):
        said = None
    plain = body[:300].decode("utf-8", "replace")
    error = said if isinstance(said, dict) else {"message": said or plain}
    text, code = str(error.get("message")), error.get("code")
    if status in (400, 413) and "context length" in text.lower():
        code = "context_length_exceeded"
    return EngineError(
        status if 400 <= status < 600 else 502, f"HTTP {status}: {text[:500]}",
        type=str(error.get("type") or "server_error"), code=None if code is None else str(code),
        retry_after_s=_seconds(headers.get("retry-after")),
    )


def _seconds(text: str | None) -> float | None:
    try:
        return max(float(text), 0.0) if text else None
    except ValueError:  # a date; our own pause will do
        return None
