"""The runner's socket to the actor: requests by id, heartbeats, and noticing that it has gone.

Owns: sending again after the actor was restarted, the rule for a silent actor.
Does not own: what requests mean (`engine`).

A request waits while the actor is away and is sent again, under its id, when it is back. Silence
for `dead_after_s` after something was asked means that the actor is gone: then requests end.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import zmq
from zmq.utils.monitor import parse_monitor_message

from claw.engine import wire
from claw.engine.port import Port
from claw.engine.runner.pending import Pending, unavailable
from claw.errors import WireError
from claw.sdk import EngineError

log = logging.getLogger(__name__)

MAX_PENDING = 900
"""requests in flight; below the socket's own bound, so that sending never waits"""
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Link:
    """One DEALER to the actor. `open()` before use; `close()` frees everything."""

    def __init__(
        self, address: str, *, hello: Callable[[], wire.Message], beat: Callable[[], wire.Message],
        keys: wire.Keys | None = None, heartbeat_s: float = 2.0, dead_after_s: float = 60.0,
    ) -> None:
        self._address, self._keys = address, keys
        self._hello, self._beat = hello, beat
        self._heartbeat_s, self._dead_after_s = heartbeat_s, dead_after_s
        self._pending: dict[str, Pending] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._silent_since: float | None = None
        self._heard = 0.0
        self._is_connected = False
        self.stopped = asyncio.Event()
        """set when the actor says stop"""

    async def open(self) -> None:
        """Connect (also before there is an actor) and start listening."""
        name = f"runner-{os.getpid()}-{secrets.token_hex(4)}".encode()
        self._context = zmq.Context()
        self._port = Port(wire.open_socket(
            self._context, zmq.DEALER, self._address, bind=False, keys=self._keys, identity=name,
            watch=_EVENTS,
        ))
        self._monitor = Port(self._port.socket.get_monitor_socket())
        self._tasks = [
            asyncio.create_task(self._read()), asyncio.create_task(self._watch()),
            asyncio.create_task(self._tick()),
        ]

    async def close(self) -> None:
        """End every waiting request and the socket; nothing to do before `open()`."""
        if not self._tasks:
            return
        for pending in self._pending.values():
            pending.fail(unavailable("the run is stopping"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._port.socket.disable_monitor()
        self._monitor.close()
        self._port.close(linger_ms=200)  # for the last cancel or end to leave
        self._context.term()

    # --- sending -----------------------------------------------------------------------------

    @asynccontextmanager
    async def request(self, message: wire.Message) -> AsyncIterator[Pending]:
        """Send a request and yield where its answers arrive."""
        if self.is_gone:
            raise unavailable("the engine does not answer")
        if len(self._pending) >= MAX_PENDING:
            raise EngineError(
                429, "too many requests at once", type="rate_limit_error",
                code="rate_limit_exceeded", retry_after_s=2.0,
            )
        pending = Pending(message)
        pending.may_be_lost = self._is_connected
        self._pending[message.id] = pending
        try:
            await self._ask(message)
            yield pending
        finally:
            pending.close()
            del self._pending[message.id]

    async def send(self, message: wire.Message) -> None:
        """Send what wants no answer. A full queue means that nobody reads: a 503."""
        frames = travelling(message)
        try:
            self._port.send(frames)
        except zmq.Again:
            raise unavailable("the engine does not read") from None

    async def _ask(self, message: wire.Message) -> None:
        await self.send(message)
        if self._silent_since is None:
            self._silent_since = _now()

    @property
    def is_gone(self) -> bool:
        """Whether the actor has been silent for too long."""
        since = self._silent_since
        return since is not None and _now() - since > self._dead_after_s

    # --- listening ---------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            for frames in await self._port.following():
                self._take(frames)
            await asyncio.sleep(0)

    def _take(self, frames: list[bytes]) -> None:
        self._silent_since, self._heard = None, _now()
        try:
            message = wire.decode(frames)
        except WireError as error:
            log.warning("the actor sent what is no message: %s", error)
            return
        if message.type == "stop":
            self.stopped.set()
        elif message.id in self._pending:
            self._pending[message.id].put(message)

    async def _watch(self) -> None:
        while True:
            for frames in await self._monitor.following():
                event = parse_monitor_message(frames)["event"]
                self._is_connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if self._is_connected:
                    await self._greet()
                elif self._silent_since is None:
                    self._silent_since = _now()

    async def _greet(self) -> None:
        """Say hello, and again what the connection before may have lost."""
        self._silent_since = None
        try:
            await self.send(self._hello())
            for pending in list(self._pending.values()):
                if pending.may_be_lost:
                    await self._ask(pending.message)
                pending.may_be_lost = True
        except EngineError as error:
            log.warning("could not greet the actor: %s", error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            try:
                await self._live()
            except EngineError as error:
                log.warning("no heartbeat: %s", error)

    async def _live(self) -> None:
        if self._is_connected:
            await self.send(self._beat())
            is_quiet = _now() - self._heard > self._heartbeat_s
            if is_quiet and (self._pending or self.is_gone):
                await self._ask(wire.Message("status", f"ping-{secrets.token_hex(4)}"))
        if self.is_gone and self._pending:
            log.warning("the actor is silent for %g s", self._dead_after_s)
            for pending in self._pending.values():
                pending.fail(unavailable("the engine does not answer"))


def travelling(message: wire.Message) -> list[bytes | memoryview]:
    """Return the frames of a message; what a client sent and cannot travel is a 400."""
    try:
        return wire.encode(message)
    except WireError as error:
        raise EngineError(400, f"the request cannot travel: {error}") from error


def _now() -> float:
    return asyncio.get_running_loop().time()
