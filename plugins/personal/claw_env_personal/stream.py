"""Sending an answer, and noticing that nobody waits for it any more.

Owns: server-sent events, keep-alive comments, cancelling when the client has gone.
Does not own: what the chunks say.
"""

import asyncio
import logging
from collections import deque
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
MAX_HEARD = 256
"""events that wait for a slow client; then nothing more is read of the engine"""


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
        heard = _Heard(self._events, gone, self._keepalive_s)
        try:
            while True:
                events, is_over = await heard.following()
                if gone.done():
                    raise ClientDisconnect()
                await self._write(send, events)
                if is_over:
                    heard.reading.result()  # raises what ended it before its time
                    await self._send(send, self._writer.last, is_last=True)
                    return
                if not events:
                    await self._send(send, KEEPALIVE)
        finally:
            await heard.close()

    async def _write(self, send: Send, events: list[Event]) -> None:
        """Send what came together as one piece, also the part before an event that is an error."""
        parts: list[bytes] = []
        try:
            for event in events:
                parts += [self._frame(data) for data in self._writer.of(event)]
        finally:
            if parts:
                await self._send(send, b"".join(parts))

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


class _Heard:
    """Reads the events of an answer while those before them are being sent."""

    def __init__(
        self, events: Events, gone: "asyncio.Future[None]", patience_s: float
    ) -> None:
        self._events: deque[Event] = deque()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._loop, self._patience_s = asyncio.get_running_loop(), patience_s
        self._since = self._loop.time()
        self._timer = self._loop.call_later(patience_s, self._wake)
        self.reading = asyncio.ensure_future(self._read(events))
        for end in (gone, self.reading):
            end.add_done_callback(lambda _: self._news.set())

    async def following(self) -> tuple[list[Event], bool]:
        """Return the events that have come, and whether there will be no more.

        There are none when the answer is over, the client has gone, or nothing came for too long.
        """
        await self._news.wait()
        self._news.clear()
        is_over = self.reading.done()
        events = list(self._events)
        self._events.clear()
        self._room.set()
        self._since = self._loop.time()
        return events, is_over

    async def close(self) -> None:
        self._timer.cancel()
        await _drop(self.reading)

    def _wake(self) -> None:
        """One timer watches over all waits: a new one for each token costs more than the token."""
        left = self._since + self._patience_s - self._loop.time()
        if left <= 0:
            self._news.set()
        self._timer = self._loop.call_later(left if left > 0 else self._patience_s, self._wake)

    async def _read(self, events: Events) -> None:
        async for event in events:
            while len(self._events) >= MAX_HEARD:
                self._room.clear()
                await self._room.wait()
            self._events.append(event)
            self._news.set()


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


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _drop(task: "asyncio.Future[Any]") -> None:
    """Cancel a task and wait until it has ended, so that its generator is free to be closed."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
