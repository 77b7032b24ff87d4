"""Runs an engine for one worker: the requests that are in it, and the swaps of weights.

Owns: one task per request, coalesced chunks, deadlines, cancels, the order of swaps, the watch on
an engine that stopped answering.
Does not own: the actor's protocol and credit (worker, in another process), the engine's own calls
(sglang), versions (shelf).

The worker's process and this one talk over one inproc or ipc pair, in the messages of
docs/wire.md, and: load (record Version), beat, ready, lost. This process belongs to the engine: it
may be killed at any moment, and the worker's goes on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from claw.engine import versions as disk
from claw.engine import wire
from claw.engine.versions import VersionError
from claw.engine.wire import Message
from claw.engine.worker.backend import Code, EngineLost, Key, Loaded
from claw.engine.worker.engine import Ask, Engine, EngineError, Part
from claw.engine.worker.held_request import CANCELLED, DEADLINE, SWAP, Request
from claw.engine.worker.shelf import Shelf
from claw.errors import ClawError
from claw.records import Sampling, Version

log = logging.getLogger(__name__)

BEAT_S = 1.0
AGAIN_S = 0.2
"""seconds between two looks at a gate, or two aborts of the same request"""


class Host:
    """Serves one worker until it says stop."""

    def __init__(
        self, engine: Engine, shelf: Shelf, socket: zmq.asyncio.Socket, stall_s: float
    ) -> None:
        self.engine, self.shelf, self.socket, self.stall_s = engine, shelf, socket, stall_s
        self.requests: dict[str, Request] = {}
        self._gate = asyncio.Event()
        """open: requests may enter the engine"""
        self._gate.set()
        self._left = asyncio.Event()
        self._swapping = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_asks = 0
        self._moved = time.monotonic()
        """when the engine last gave a sign, or had nothing to do"""
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve; EngineLost when the engine is not fit to go on."""
        await self._send(Message("ready", "", {
            "vocab_size": self.engine.vocab_size, "context": self.engine.context,
            "versions": self.shelf.serving(),
            "device": self.engine.device,
        }))
        self._start(self._read())
        self._start(self._watch())
        try:
            await self._end
        finally:
            for task in self._tasks:
                task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._end.done():
            self._end.set_exception(error)

    async def _send(self, message: Message) -> None:
        await self.socket.send_multipart(wire.encode(message))

    async def _read(self) -> None:
        while True:
            message = wire.decode(await self.socket.recv_multipart())
            if message.type in ("generate", "score"):
                self._take(message)
            elif message.type == "cancel" and message.id in self.requests:
                self._take_out(self.requests[message.id], CANCELLED)
            elif message.type == "load":
                self._start(self._load(wire.read_record(message, Version)))
            elif message.type == "stop":
                self._end.set_result(None)
                return

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._send(Message("beat"))
            for request in self.requests.values():
                if request.ending and request.rid:
                    self.engine.abort(request.rid)
            silence_s = time.monotonic() - self._moved
            if not any(r.rid for r in self.requests.values()):
                self._moved = time.monotonic()
            elif silence_s > self.stall_s:
                raise EngineLost("the engine stopped answering",
                                 found=f"no token for {silence_s:.0f} s while requests run",
                                 allowed=f"{self.stall_s:g} s (sglang.stall_s)")

    # --- requests ----------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if message.type == "generate":
            sampling = wire.unpack(Sampling, message["sampling"], {})
            tokens = message.arrays["prompt_ids"].tolist()
            max_tokens = min(sampling.max_tokens, self.engine.context - len(tokens))
            request = Request(message, sampling, max_tokens, tokens)
            work = self._generate(request)
        else:
            request = Request(message, Sampling(), 0, message.arrays["ids"].tolist())
            work = self._score(request)
        self.requests[message.id] = request
        late = asyncio.get_running_loop().call_later(
            message["deadline_s"], self._take_out, request, DEADLINE)
        self._start(self._serve(request, work, late))

    def _take_out(self, request: Request, why: str) -> None:
        """End its stay in the engine; its own task hears of it there."""
        if request.ending in ("", SWAP):
            request.ending = why
        if request.rid:
            self.engine.abort(request.rid)

    async def _serve(
        self, request: Request, work: Coroutine[Any, Any, Message], late: asyncio.TimerHandle
    ) -> None:
        try:
            end = await work
        except EngineError as error:
            end = Message("generate.error", request.id,
                          {"code": Code.ENGINE, "message": str(error)})
        late.cancel()
        await self._flush(request)
        del self.requests[request.id]
        await self._send(end)

    async def _generate(self, request: Request) -> Message:
        while await self._may_enter(request):
            part = await self._stay(request)
            if part.finish != "abort" or request.said >= request.max_tokens:
                finish = "length" if part.finish == "abort" else part.finish
                return Message("generate.done", request.id, {
                    "finish_reason": finish, "cached_tokens": request.cached})
            if not request.ending:
                raise EngineError("the engine gave the request up", found=part.note)
            request.come_back()
        return self._early(request)

    async def _stay(self, request: Request) -> Part:
        """One stay in the engine, with the weights that are current now; return its last part."""
        part = Part({}, "abort", 0)
        key, number = self.shelf.take(request.message["owner"], request.message["adapter"])
        try:
            async for part in self._parts(request, key):
                self._moved = time.monotonic()
                request.hear(part, number)
                if request.is_due():
                    await self._flush(request)
        except EngineError:
            if not request.ending:
                raise
        finally:
            await self.shelf.give_back(key)
        return part if part.finish else Part({}, "abort", 0)

    async def _may_enter(self, request: Request) -> bool:
        """Wait at the gate; False when the request ended meanwhile."""
        while not request.ending and not self._gate.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gate.wait(), AGAIN_S)
        return not request.ending

    async def _parts(self, request: Request, key: Key | None) -> AsyncIterator[Part]:
        ask = Ask(
            self._enter(request), request.tokens, request.sampling,
            request.max_tokens - request.said, tuple(request.message["stop_ids"]),
            self.shelf.names[key] if key else None,
        )
        try:
            async for part in self.engine.generate(ask):
                yield part
        finally:
            self._leave(request)

    def _enter(self, request: Request) -> str:
        if not any(r.rid for r in self.requests.values()):
            self._moved = time.monotonic()
        self._num_asks += 1
        request.rid = f"r{self._num_asks:012d}"  # none the start of another one
        return request.rid

    def _leave(self, request: Request) -> None:
        self._moved = time.monotonic()
        request.rid = ""
        self._left.set()

    async def _flush(self, request: Request) -> None:
        if (chunk := request.chunk()) is not None:
            await self._send(chunk)

    def _early(self, request: Request) -> Message:
        if request.ending == CANCELLED:
            return Message("generate.done", request.id, {
                "finish_reason": CANCELLED, "cached_tokens": request.cached})
        return Message("generate.error", request.id, {
            "code": Code.DEADLINE, "message": f"the deadline passed after {request.said} tokens"})

    async def _score(self, request: Request) -> Message:
        message = request.message
        while await self._may_enter(request):
            key, number = self.shelf.take(message["owner"], message["adapter"])
            try:
                got = await self.engine.score(self._enter(request), request.tokens,
                                              message["topk"],
                                              self.shelf.names[key] if key else None)
            except EngineError:
                if not request.ending:
                    raise
                request.come_back()
            else:
                return Message("score.done", request.id, {"version": number}, {
                    "logps": got.logps, "topk_ids": got.topk_ids, "topk_logps": got.topk_logps})
            finally:
                self._leave(request)
                await self.shelf.give_back(key)
        return self._early(request)

    # --- versions ----------------------------------------------------------------------------

    async def _load(self, version: Version) -> None:
        key = (version.owner, version.adapter, version.number)
        fields: dict[str, Any] = {"owner": key[0], "adapter": key[1], "number": key[2]}
        try:
            async with self._swapping:
                done = await self._swap(version)
        except ClawError as error:
            if isinstance(error, EngineLost):
                raise
            await self._send(Message("version.refused", "", fields | {
                "why": str(error), "mismatch": getattr(error, "mismatch", None)}))
            return
        await self._send(Message("version.loaded", "", fields | {
            "mismatch_max": done.mismatch_max, "mismatch_mean": done.mismatch_mean,
            "seconds": done.seconds, "versions": self.shelf.serving(),
        }))

    async def _swap(self, version: Version) -> Loaded:
        if self.shelf.is_held(version):
            return await self.shelf.make_current((version.owner, version.adapter, version.number))
        manifest = disk.read_manifest(Path(version.path), version.checksum) if version.path else (
            None)
        if version.kind == "lora":
            if manifest is None:
                raise VersionError("the adapter has no folder")
            return await self.shelf.load_lora(version, manifest)
        incoming = await self.shelf.prepare_full(version, manifest)
        await self._empty()
        try:
            return await self.shelf.load_full(version, incoming)
        finally:
            self._gate.set()

    async def _empty(self) -> None:
        """Take every request out of the engine between two tokens; they wait at the gate."""
        self._gate.clear()
        while inside := [r for r in self.requests.values() if r.rid]:
            self._left.clear()
            for request in inside:
                self._take_out(request, SWAP)
            # again and again: an engine that has not taken a request in yet forgets its abort;
            # the watch ends this process if the engine hangs
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), AGAIN_S)
