"""The outermost layer: request ids, whose key it is, and the last catch of our own bugs.

Owns: what holds for every request, also for paths that do not exist; what a key is for.
Does not own: what a route answers.
"""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from claw.sdk import EngineError, People

from .errors import forbidden, response_of
from .metrics import PATH as METRICS

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Any]]


class Guard:
    """Wraps an ASGI application."""

    def __init__(
        self, app: ASGIApp, people: People, count: Callable[[Scope, int], None]
    ) -> None:
        """`count` is told of each answer and its status; 0: nobody waited for it any more."""
        self.app, self._people, self._count = app, people, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(request_id(scope), send)
        scope.setdefault("state", {})["request_id"] = answer.request_id
        began = time.monotonic()
        await self._serve(scope, receive, answer)
        log.info("%s %s %r -> %s in %.0f ms", answer.request_id, scope["method"], scope["path"],
                 answer.status or "gone", 1000 * (time.monotonic() - began))
        self._count(scope, answer.status)

    async def _serve(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            if not self._lets_in(scope):
                await response_of(_bad_key(), scope["path"])(scope, receive, answer)
            else:
                await self.app(scope, receive, answer)
        except ClientDisconnect:
            answer.status = 0
        except Exception:  # the last place where a bug can be told to the client
            log.exception("%s failed", answer.request_id)
            if not answer.is_whole:
                raise  # too late for words: the server cuts the connection

    def _lets_in(self, scope: Scope) -> bool:
        """Whether the path needs no key, or the key is somebody's; then `state` says whose."""
        path = scope["path"]
        if not (path in ("/v1", METRICS) or path.startswith("/v1/")):
            return True
        scheme, _, key = _header(scope, b"authorization").partition(b" ")
        given = key.strip() if scheme.lower() == b"bearer" else _header(scope, b"x-api-key")
        scope["state"]["person"] = self._people.of(given.decode("utf-8", "replace"))
        return scope["state"]["person"] is not None


class _Answer:
    """`send` that adds the request id and remembers the status."""

    def __init__(self, request_id: str, send: Send) -> None:
        self.request_id, self._send = request_id, send
        self.status, self.is_whole = 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers: list[Any] = list(message.get("headers", []))
            message["headers"] = [*headers, (b"x-request-id", self.request_id.encode())]
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)


def check_scope(request: Request, wanted: str) -> None:
    """Raise a 403 where the key of a request is not for this."""
    has = request.state.person.scopes
    if wanted not in has:
        raise forbidden(f"This key is not for {wanted}; it is for: {', '.join(has)}.",
                        "insufficient_scope")


def for_scope(wanted: str, handler: Handler) -> Handler:
    """Return the handler of a route for keys of this scope only."""
    async def answer(request: Request) -> Any:
        check_scope(request, wanted)
        return await handler(request)
    return answer


def request_id(scope: Scope) -> str:
    """Return the client's own id when it is one plain word, else a new one."""
    for name in (b"x-request-id", b"x-client-request-id"):
        given = _header(scope, name)
        if 0 < len(given) <= 128 and all(33 <= byte <= 126 for byte in given):
            return given.decode("ascii")
    return f"req_{secrets.token_hex(12)}"


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((bytes(value) for name, value in scope["headers"] if name == wanted), b"")


def _bad_key() -> EngineError:
    return EngineError(
        401, "Missing or wrong API key. Send it as: Authorization: Bearer KEY",
        type="authentication_error", code="invalid_api_key",
    )
