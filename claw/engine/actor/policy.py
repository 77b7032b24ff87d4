"""The actor's side of the rollout workers: which worker, how much at once, what if one dies.

Owns: worker table, credit, sessions that stick, attempts, cancel, deadline.
Does not own: what is asked (`gateway.py`), how tokens become text (`chat.py`).
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from claw.engine.actor.call import Call, Chunk, GenerationError
from claw.engine.wire import Message
from claw.errors import WireError
from claw.records import FinishReason, Sampling

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 4
MUCH_BUSIER = 0.5
"""share of its room by which the worker with the prefix may be busier than the idlest"""
STICKY = 10_000
"""sessions whose worker is remembered"""

LOST = 64
"""workers that died and are still named"""

Send = Callable[[bytes, Message], Awaitable[None]]


@dataclass(eq=False)
class Worker:
    """One connected worker."""

    peer: bytes
    pid: int
    kind: str
    context: int
    room: int
    """requests it takes at once: slots and its own queue"""
    seen: float
    versions: list[list[Any]] = field(default_factory=list)
    """[owner, adapter, number] of each that it can give, as it says"""
    calls: dict[str, Call] = field(default_factory=dict)
    """by wire id"""
    tokens_per_s: float = 0.0
    device: str = ""
    """cpu, cuda or mps; empty for one that does not say"""

    @property
    def load(self) -> float:
        return len(self.calls) / max(self.room, 1)

    def __post_init__(self) -> None:
        self.serve(self.versions)

    def serve(self, versions: list[list[Any]]) -> None:
        """Learn what it can give; looked up for every request, so kept by owner."""
        numbers: dict[tuple[str, str], int] = {}
        for owner, adapter, number in versions:
            key = (owner, adapter)
            numbers[key] = max(int(number), numbers.get(key, 0))
        self.versions, self._numbers = versions, numbers

    def number(self, owner: str, adapter: str) -> int:
        """The version that it gives to new requests."""
        return self._numbers.get((owner, adapter), 0)


class Policy:
    """Asks workers for tokens."""

    def __init__(
        self, send: Send, stop_ids: tuple[int, ...], *, dead_after_s: float, max_waiting: int
    ) -> None:
        self._send, self._stop_ids = send, stop_ids
        self._dead_after_s, self._max_waiting = dead_after_s, max_waiting
        self.workers: dict[bytes, Worker] = {}
        self.counts: Counter[str] = Counter()
        self._waiting: deque[Call] = deque()
        self._by_wire: dict[str, Call] = {}
        self._sticky: OrderedDict[str, bytes] = OrderedDict()
        self._silenced: deque[str] = deque(maxlen=1000)
        self._lost: OrderedDict[bytes, float] = OrderedDict()
        """workers that were taken for dead and are not back, and when they were heard last"""

    # --- asking ------------------------------------------------------------------------------

    async def generate(self, call: Call) -> AsyncIterator[list[Chunk]]:
        """Yield what came, all of it at once, until the call is over. Leaving early cancels it at
        the worker.

        Raises GenerationError: overloaded, unavailable, deadline, bad_request, engine. At the
        deadline a call that has tokens ends with what it has.
        """
        self.check_room()
        self._waiting.append(call)
        given = 0
        late = asyncio.get_running_loop().call_later(  # one timer; not one for every token
            max(call.deadline - time.monotonic(), 0.0), self._late, call)
        try:
            await self._dispatch()
            while True:
                call.changed.clear()
                while new := call.chunks[given:]:
                    given += len(new)
                    yield new
                if call.error is not None:
                    raise call.error
                if call.finish is not None:
                    return
                await call.changed.wait()
        finally:
            late.cancel()
            await self._leave(call)

    def check_room(self) -> None:
        """Raise GenerationError when a new call could not even wait."""
        if self.workers and not self._free() and len(self._waiting) >= self._max_waiting:
            self.counts["overloaded"] += 1
            raise GenerationError("overloaded", f"{len(self._waiting)} requests wait already")
        if not self.workers and len(self._waiting) >= self._max_waiting:
            raise GenerationError("unavailable", "no rollout worker is connected")

    @property
    def has_room(self) -> bool:
        """Whether a worker could take a call at once."""
        return bool(self._free()) and not self._waiting

    def _late(self, call: Call) -> None:
        """The call's time is over."""
        if call.is_over:
            return
        self.counts["deadline"] += 1
        if call.num_tokens:
            call.end(FinishReason.CANCELLED)
            call.problem = call.problem or "deadline"
        elif not self.workers:
            call.end(None, GenerationError("unavailable", "no rollout worker is connected"))
        else:
            call.end(None, GenerationError("deadline", "no token within the deadline"))

    @property
    def num_waiting(self) -> int:
        """Calls that no worker has taken yet."""
        return len(self._waiting)

    async def _leave(self, call: Call) -> None:
        """Take the call out of everything; tell its worker when it still samples."""
        was_over, peer = call.is_over and call.problem != "deadline", call.worker
        call.end(FinishReason.CANCELLED)
        if call in self._waiting:
            self._waiting.remove(call)
        if self._unassign(call) and not was_over and peer is not None:
            await self._send(peer, Message("cancel", call.wire_id))
        await self._dispatch()

    def _unassign(self, call: Call) -> bool:
        self._by_wire.pop(call.wire_id, None)
        worker = self.workers.get(call.worker) if call.worker else None
        return bool(worker and worker.calls.pop(call.wire_id, None))

    # --- giving out --------------------------------------------------------------------------

    def _free(self) -> list[Worker]:
        return [w for w in self.workers.values() if len(w.calls) < w.room]

    async def _dispatch(self) -> None:
        """Send waiting calls to workers that have room, oldest first."""
        while self._waiting and (free := self._free()):
            call = self._waiting.popleft()
            if call.is_over:
                continue
            worker = self._choose(call, free)
            call.worker = worker.peer
            worker.calls[call.wire_id] = self._by_wire[call.wire_id] = call
            await self._send(
                worker.peer, call.message(self._stop_ids, call.deadline - time.monotonic())
            )

    def _choose(self, call: Call, free: list[Worker]) -> Worker:
        """The worker that holds the session's prefix, unless it is much busier than another.

        Workers with an older version than others have are asked only when those are full: what
        they sample is older than it need be.
        """
        numbers = [w.number(call.owner, call.adapter) for w in free]
        newest = max(numbers)
        fresh = [w for w, number in zip(free, numbers, strict=True) if number == newest]
        least = next((w for w in fresh if not w.calls), None) or min(fresh, key=lambda w: w.load)
        held = self.workers.get(self._sticky.get(call.session, b""))
        is_fit = held in fresh and held.load <= least.load + MUCH_BUSIER
        chosen = held if held is not None and is_fit else least
        if call.session:
            self._sticky[call.session] = chosen.peer
            self._sticky.move_to_end(call.session)
            while len(self._sticky) > STICKY:
                self._sticky.popitem(last=False)
        return chosen

    # --- hearing -----------------------------------------------------------------------------

    async def heard(self, peer: bytes, message: Message) -> bool:
        """Handle a worker's message; return False for a type that is not of this link."""
        worker = self.workers.get(peer)
        if worker is not None:
            worker.seen = time.monotonic()
        match message.type:
            case "worker.hello":
                await self._hello(peer, message)
            case "worker.beat":
                await self._beat(peer, worker, message)
            case "worker.bye":
                await self._lose(worker, "its worker left")
            case "generate.chunk":
                await self._chunk(peer, message)
            case "generate.done":
                await self._done(message)
            case "generate.error":
                await self._error(message)
            case _:
                return False
        return True

    async def _hello(self, peer: bytes, message: Message) -> None:
        room = int(message["slots"]) + int(message["queue"])
        old = self.workers.get(peer)
        pid = int(message["pid"])
        worker = Worker(peer, pid, str(message["kind"]), int(message["context"]), max(room, 1),
                        time.monotonic(), list(message.get("versions") or []),
                        device=str(message.get("device") or ""))
        if old is not None and old.pid == pid:
            worker.calls = old.calls  # the same process says hello again
        self.workers[peer] = worker
        self._lost.pop(peer, None)
        log.info("worker %s of pid %d, room for %d", worker.kind, pid, room)
        if old is not None and old.pid != pid:
            await self._again(list(old.calls.values()), "its worker was restarted")
        await self._dispatch()

    async def _beat(self, peer: bytes, worker: Worker | None, message: Message) -> None:
        if worker is None:  # taken for dead while it stood still, though its connection held
            await self._send(peer, Message("worker.who"))
            return
        worker.serve(list(message.get("versions") or []))
        worker.tokens_per_s = float(message.get("tokens_per_s") or 0.0)

    async def _silence(self, peer: bytes, wire_id: str) -> None:
        """Tell a worker, once, that nobody waits for these tokens (an earlier actor asked)."""
        if wire_id not in self._silenced:
            self._silenced.append(wire_id)
            await self._send(peer, Message("cancel", wire_id))

    async def _chunk(self, peer: bytes, message: Message) -> None:
        call = self._by_wire.get(message.id)
        if call is None or call.is_over:
            self.counts["late"] += 1
            await self._silence(peer, message.id)
            return
        try:
            if not call.take(message):
                self.counts["late"] += 1
        except (WireError, TypeError, ValueError) as error:
            self.counts["bad_chunk"] += 1
            log.warning("a chunk of %s cannot be used: %s", call.id, error)
            if self._unassign(call) and call.worker is not None:
                await self._send(call.worker, Message("cancel", call.wire_id))
            call.end(None, GenerationError("engine", f"the worker sent a bad chunk: {error}"))

    async def _done(self, message: Message) -> None:
        call = self._by_wire.get(message.id)
        if call is None:
            return
        self._unassign(call)
        finish = str(message["finish_reason"])
        known = finish in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED)
        call.end(FinishReason(finish) if known else FinishReason.ERROR)
        await self._dispatch()

    async def _error(self, message: Message) -> None:
        call = self._by_wire.get(message.id)
        if call is None:
            return
        code, text = str(message.get("code")), str(message.get("message"))
        if code == "overloaded":
            if call.worker in self.workers:  # it has less room than it said
                busy = self.workers[call.worker]
                busy.room = max(1, len(busy.calls) - 1)
            await self._again([call], "its worker is overloaded")
        elif code == "engine" and call.attempt == 0:
            await self._again([call], f"its worker failed ({text})")
        else:
            self._unassign(call)
            call.end(None, GenerationError(code, text))
        await self._dispatch()

    # --- dying -------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Find workers that are gone and give their calls to others."""
        now = time.monotonic()
        for worker in list(self.workers.values()):
            if now - worker.seen > self._dead_after_s:
                log.warning("worker of pid %d is silent; it counts as dead", worker.pid)
                self.counts["dead"] += 1
                self._lost[worker.peer] = worker.seen
                while len(self._lost) > LOST:
                    self._lost.popitem(last=False)
                await self._lose(worker, "its worker died")
        await self._dispatch()

    async def _lose(self, worker: Worker | None, why: str) -> None:
        """A worker is gone; its calls go elsewhere."""
        if worker is not None and self.workers.pop(worker.peer, None) is not None:
            await self._again(list(worker.calls.values()), why)
        await self._dispatch()

    async def _again(self, calls: list[Call], why: str) -> None:
        for call in calls:
            self._unassign(call)
            if call.is_over:
                continue
            if call.num_tokens >= call.sampling.max_tokens:
                call.end(FinishReason.LENGTH)
            elif call.chunks and call.chunks[-1].ids[-1:].tolist() and int(
                call.chunks[-1].ids[-1]
            ) in self._stop_ids and not call.sampling.ignore_eos:
                call.end(FinishReason.STOP)  # only the last word of the worker was lost
            elif call.attempt + 1 >= MAX_ATTEMPTS:
                call.end(None, GenerationError("engine", f"given up after {MAX_ATTEMPTS}: {why}"))
            else:
                log.info("%s is asked again: %s", call.id, why)
                self.counts["again"] += 1
                call.again()
                self._waiting.appendleft(call)

    def status(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [
            {"name": _name(w.peer), "pid": w.pid, "kind": w.kind, "running": len(w.calls),
             "room": w.room, "context": w.context, "versions": w.versions,
             "tokens_per_s": w.tokens_per_s, "silent_s": round(now - w.seen, 1)}
            for w in self.workers.values()
        ]

    def lost(self) -> dict[str, float]:
        """Workers that were taken for dead and are not back: for how long they are silent."""
        now = time.monotonic()
        return {_name(peer): round(now - seen, 1) for peer, seen in self._lost.items()}


def _name(peer: bytes) -> str:
    return peer.decode(errors="replace")


def new_call(
    id: str, prompt_ids: np.ndarray, sampling: Sampling, *, session: str, owner: str,
    adapter: str, deadline_s: float,
) -> Call:
    return Call(id, prompt_ids, sampling, session, owner, adapter, time.monotonic() + deadline_s)
