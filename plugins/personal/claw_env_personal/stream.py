"""Sending an answer, and noticing that nobody waits for it any more.

Owns: server-sent events, keep-alive comments, cancelling when the client has gone.
Does not own: what the chunks say.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from claw.sdk import EngineError, Event

from .errors import as_json, ours, response_of

log = logging.getLogger(__name__)

Events = AsyncGenerator[Event, None]
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
KEEPALIVE = b": keepalive\n\n"


class Writer(Protocol):
    """How one API writes an answer."""

    is_named: bool
    """whether each piece of data travels under an event name, which is its `type`"""
    last: bytes
    """what ends a stream"""

    def of(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield what the stream says for one event of the engine."""

    def failure(self, error: EngineError) -> dict[str, Any]:
        """Return what the stream says when it breaks off."""

    def whole(self, done: Event, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer in one piece."""


class EventStream:
    """An ASGI response. An error before the first event keeps its own status."""

    def __init__(
        self, events: Events, writer: Writer, *, keepalive_s: float, stalled_s: float
    ) -> None:
        self._events, self._writer = events, writer
        self._keepalive_s, self._stalled_s = keepalive_s, stalled_s
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnect(receive))
        try:
            async with aclosing(self._events):
                await self._stream(gone, send)
        except EngineError as error:
            await self._fail(error, scope, receive, send)
        except TimeoutError:
            raise ClientDisconnect() from None
        except Exception as error:
            if isinstance(error, ClientDisconnect) or not self._has_started:
                raise
            log.exception("%s failed in mid-answer", scope["state"].get("request_id"))
            await self._fail(ours(), scope, receive, send)
        finally:
            await _drop(gone)

    async def _stream(self, gone: "asyncio.Future[None]", send: Send) -> None:
        following = asyncio.ensure_future(_following(self._events))
        try:
            while True:
                await asyncio.wait(
                    {following, gone}, timeout=self._keepalive_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if gone.done():
                    raise ClientDisconnect()
                if not following.done():
                    await self._send(send, KEEPALIVE)
                    continue
                event = following.result()
                if event is None:
                    await self._send(send, self._writer.last, is_last=True)
                    return
                parts = [self._frame(data) for data in self._writer.of(event)]
                if parts:
                    await self._send(send, b"".join(parts))
                following = asyncio.ensure_future(_following(self._events))
        finally:
            await _drop(following)

    async def _send(self, send: Send, data: bytes, is_last: bool = False) -> None:
        async with asyncio.timeout(self._stalled_s):
            if not self._has_started:
                self._has_started = True
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def _fail(
        self, error: EngineError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if self._has_started:
            await self._send(send, self._frame(self._writer.failure(error)), is_last=True)
        else:
            await response_of(error, scope["path"])(scope, receive, send)

    def _frame(self, data: dict[str, Any]) -> bytes:
        name = f"event: {data['type']}\n".encode("ascii") if self._writer.is_named else b""
        return name + b"data: " + as_json(data) + b"\n\n"


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what `work` returns; cancel it and raise ClientDisconnect when the client leaves."""
    gone = asyncio.ensure_future(_disconnect(receive))
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect()
        return task.result()
    finally:
        await _drop(task)
        await _drop(gone)


async def _following(events: Events) -> Event | None:
    return await anext(events, None)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _drop(task: "asyncio.Future[Any]") -> None:
    """Cancel a task and wait until it has ended, so that its generator is free to be closed."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
