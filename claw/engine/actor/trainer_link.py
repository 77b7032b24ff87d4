"""The trainer's side: leases, acknowledgements, versions, rollbacks (docs/wire.md).

Owns: that each sample is trained at least once and counted once.
Does not own: which samples make a step (`buffer.py`), which version serves (`published.py`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np

from claw.engine import faults, wire
from claw.engine.actor.buffer import Buffer, Lease
from claw.engine.actor.consent import Consent
from claw.engine.actor.journal import Journal
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.published import Published
from claw.engine.actor.store import NoRoom
from claw.engine.wire import Message
from claw.errors import ClawError, WireError
from claw.records import Sample, TurnState, Update, Version, VersionStatus

log = logging.getLogger(__name__)

MAX_POLL_S = 60.0
POLL_STEP_S = 0.2
ROLLBACK_S = 300.0
SEEN = ("overlap", "chosen", "gap")
"""what a step tells of a sample with hints (docs/wire.md)"""

Send = Callable[[bytes, Message], Awaitable[None]]
OnUpdate = Callable[[Update, Version, int], None]


class TrainerLink:
    """What the trainer says and asks."""

    def __init__(
        self, send: Send, journal: Journal, ledger: Ledger, buffer: Buffer, published: Published,
        on_update: OnUpdate, consent: Consent,
    ) -> None:
        self._send, self._journal, self._ledger = send, journal, ledger
        self._buffer, self._published, self._on_update = buffer, published, on_update
        self._consent = consent
        self.peer: bytes | None = None
        self.seen = 0.0
        self.status: dict[str, Any] = {}
        self.held: dict[str, str] = {}
        """owners of whom nothing is learned until a person has gone back, and why"""
        self._polls: dict[tuple[bytes, str], asyncio.Task[None]] = {}
        self._rollbacks: dict[str, asyncio.Future[Message]] = {}

    async def heard(self, peer: bytes, message: Message) -> bool:
        """Handle a trainer's message; return False for a type that is not of this link."""
        self.peer, self.seen = peer, time.monotonic()
        match message.type:
            case "trainer.hello":
                await self._hello(peer, message)
            case "lease":
                self._lease(peer, message)
            case "lease.ack":
                self._ack(message)
                faults.at("actor.acked.before")
                await self._send(peer, Message("lease.acked", message.id))
                faults.at("actor.acked.after")
            case "version.published":
                self._put(wire.read_record(message, Version))
            case "rollback.done":
                self._rolled_back(message)
            case "trainer.beat":
                keys = ("step", "state", "seconds")
                self.status = {k: message.get(k) for k in keys}
                self.held = {str(o): str(why) for o, why in (message.get("held") or {}).items()}
            case _:
                return False
        return True

    def is_heard(self, within_s: float) -> bool:
        """Whether a trainer is there."""
        return self.peer is not None and time.monotonic() - self.seen <= within_s

    def silent_s(self) -> float | None:
        """For how long the trainer has said nothing; None: there never was one."""
        return None if self.peer is None else round(time.monotonic() - self.seen, 1)

    # --- hello -------------------------------------------------------------------------------

    async def _hello(self, peer: bytes, message: Message) -> None:
        step, learners = int(message.get("step") or 0), list(message.get("learners") or ())
        versions = [wire.unpack(Version, v, {}) for one in learners for v in one["versions"]]
        for version in versions:
            self._put(version)
        self.status = {"step": step, "state": "waiting", "seconds": 0.0}
        durable = {str(one["last_lease"]): one for one in learners if one["last_lease"]}
        released = []
        for id in list(self._buffer.leases):
            if id in durable:  # there, though its acknowledgement never came
                told = durable[id]
                update = told["last_update"]
                self._close(id, int(update["version"]), update, told, {})
            else:
                self._release(id)
                released.append(id)
        for task in self._polls.values():
            task.cancel()
        self._journal.put_event("trainer", "hello", f"step {step}, released {len(released)}")
        faults.at("actor.welcome.before")
        await self._send(peer, Message("trainer.welcome", message.id, {"released": released}))
        faults.at("actor.welcome.after")
        for version in versions:
            if version.status is VersionStatus.PUBLISHED and self._is_refused(version):
                await self.tell_refused(version)  # it did not hear of it before its last end

    def _release(self, lease_id: str) -> None:
        lease = self._buffer.leases[lease_id]
        with self._journal.write():
            self._journal.put_sample_state([s.id for s in lease.samples], "waiting")
            self._journal.put_lease(lease_id, "released")
            for sample in lease.samples:
                self._ledger.move(sample.turn_id, TurnState.QUEUED, "waits for a step again")
        self._buffer.release(lease_id)

    # --- leases ------------------------------------------------------------------------------

    def _lease(self, peer: bytes, message: Message) -> None:
        max_samples, max_wait_s = int(message["max_samples"]), float(message["max_wait_s"])
        poll_s = min(max(float(message.get("poll_s") or 0.0), 0.0), MAX_POLL_S)
        if max_samples < 1:
            raise WireError("a lease has at least one sample")
        key = (peer, message.id)
        if key in self._polls:
            return
        not_of = {str(owner) for owner in message.get("not_of") or ()}
        task = asyncio.create_task(
            self._poll(peer, message.id, max_samples, max_wait_s, poll_s, not_of))
        self._polls[key] = task
        task.add_done_callback(lambda _: self._polls.pop(key, None))

    async def _poll(
        self, peer: bytes, id: str, max_samples: int, max_wait_s: float, poll_s: float,
        not_of: set[str],
    ) -> None:
        until = time.monotonic() + poll_s
        while True:
            try:
                lease = self._open_lease() or self._take(max_samples, max_wait_s, not_of)
            except NoRoom as error:
                log.error("no step: %s", error)
                lease = None
            if lease is not None:
                faults.at("actor.lease.before")
                await self._send(peer, wire.samples_message(
                    "lease.samples", await self._buffer.seen(lease), id, lease_id=lease.id,
                    dropped=self._buffer.take_dropped(),
                ))
                faults.at("actor.lease.after")
                return
            if time.monotonic() >= until:
                await self._send(peer, Message("lease.empty", id))
                return
            await asyncio.sleep(POLL_STEP_S)

    def _open_lease(self) -> Lease | None:
        """Return the lease that is out.

        A trainer holds one at a time, so one that asks never got it: the answer was lost with a
        connection, or with the actor that gave it.
        """
        return next(iter(self._buffer.leases.values()), None)

    def _take(self, max_samples: int, max_wait_s: float, not_of: set[str]) -> Lease | None:
        """Lease a step's worth; the journal knows before the trainer does."""
        self._drop_stale()
        lease = self._buffer.lease(
            max_samples, max_wait_s, paused=lambda o: o in not_of or self._is_paused(o))
        if lease is None:
            return None
        try:
            self._put_lease(lease)
        except BaseException:  # one that the journal does not know would be trained twice
            self._buffer.release(lease.id)
            raise
        return lease

    def _put_lease(self, lease: Lease) -> None:
        with self._journal.write():
            self._journal.put_lease(lease.id, "open")
            ids = [s.id for s in lease.samples]
            self._journal.put_sample_state(ids, "leased", lease_id=lease.id)
            for sample in lease.samples:
                self._ledger.move(sample.turn_id, TurnState.QUEUED, f"in {lease.id}")

    def _is_paused(self, owner: str) -> bool:
        return self._consent.paused_until(owner) > 0

    def _drop_stale(self) -> None:
        for sample, reason in self._buffer.drop_stale(self._newest):
            with self._journal.write():
                self._journal.put_sample_state([sample.id], "dropped", reason=reason)
                self._ledger.skip(sample.turn_id, reason)

    def _newest(self, sample: Sample) -> int:
        return self._published.newest(sample.owner, sample.adapter)

    def _ack(self, message: Message) -> None:
        update: Update = wire.read_record(message, Update)
        version: Version = wire.unpack(Version, message["version"], {})
        self._put(version)
        lease_id = str(message["lease_id"])
        lease = self._buffer.leases.get(lease_id)
        if lease is None:
            state = self._journal.lease_state(lease_id)
            if state != "acked":
                log.warning("acknowledged lease %s is %s here", lease_id, state or "unknown")
            return
        self._close(lease_id, version.number, wire.pack(update)[0], message.fields, message.arrays)
        self.status = self.status | {"step": update.step}
        self._on_update(update, version, len(lease.samples))

    def _close(
        self, id: str, number: int, update: dict[str, Any], told: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
    ) -> None:
        """End a lease as the trainer says, at the acknowledgement or at its next hello.

        `why`: the step changed nothing, or the gate refused its version; no sample was trained.
        `left_out`: samples of a good step that had no part in it, each with its reason.
        Arrays `<sample id>/overlap`, `chosen` and `gap` say what hinted teachers made of a sample.
        """
        lease, why = self._buffer.leases[id], str(told.get("why") or "")
        left_out = dict(told.get("left_out") or {})
        with self._journal.write():
            self._journal.put_lease(id, "acked", number, None if why else update)
            if why:
                self._journal.put_event("step.refused", f"v{number}", why[:500])
            for sample in lease.samples:
                reason = "step_refused" if why else str(left_out.get(sample.id) or "")
                self._end_sample(sample, id, number, reason)
                self._put_seen(sample, arrays)
        self._buffer.finish(id)

    def _end_sample(self, sample: Sample, lease_id: str, number: int, reason: str) -> None:
        state = "dropped" if reason else "trained"
        self._journal.put_sample_state([sample.id], state, lease_id=lease_id, reason=reason)
        if reason:
            self._ledger.skip(sample.turn_id, reason)
        else:
            self._ledger.move(sample.turn_id, TurnState.TRAINED, f"v{number}")

    def _put_seen(self, sample: Sample, arrays: Mapping[str, np.ndarray]) -> None:
        named = {name: arrays.get(f"{sample.id}/{name}") for name in SEEN}
        found = {name: array for name, array in named.items() if array is not None}
        if self._ledger.get(sample.turn_id) is not None:  # nothing is kept of a forgotten turn
            self._journal.put_arrays(sample.id, found)

    # --- versions ----------------------------------------------------------------------------

    def _put(self, version: Version) -> None:
        self._published.put(version)
        if version.status is not VersionStatus.PUBLISHED:
            log.warning("version %d is %s: %s", version.number, version.status, version.note)

    def _is_refused(self, v: Version) -> bool:
        return self._published.status(v.owner, v.adapter, v.number) is VersionStatus.REFUSED

    async def tell_refused(self, version: Version) -> None:
        """No worker serves a version: the trainer goes on from the newest that serves."""
        if self.peer is not None:
            await self._send(self.peer, Message("version.refused", "", {
                "owner": version.owner, "adapter": version.adapter, "number": version.number,
                "why": version.note, "good": self._published.newest(version.owner, version.adapter),
            }))

    async def roll_back(self, owner: str, adapter: str, to: int) -> dict[str, Any]:
        """Ask the trainer to serve an earlier version again; return the version it made."""
        if self.peer is None:
            raise ClawError("no trainer is connected")
        id = f"rollback-{owner}-{adapter}-{to}-{time.monotonic_ns()}"
        self._rollbacks[id] = asyncio.get_running_loop().create_future()
        fields = {"owner": owner, "adapter": adapter, "to": to}
        try:
            await self._send(self.peer, Message("rollback", id, fields))
            done = await asyncio.wait_for(self._rollbacks[id], ROLLBACK_S)
        except TimeoutError:
            raise ClawError("the trainer did not answer the rollback") from None
        finally:
            del self._rollbacks[id]
        if done.get("error"):
            raise ClawError(str(done.get("error")))
        made: Version = wire.unpack(Version, done["version"], {})
        self._published.roll_back(made, to)
        self._journal.put_event("rollback", f"v{to}", f"served again as v{made.number}")
        return {"number": made.number}

    def _rolled_back(self, message: Message) -> None:
        waiting = self._rollbacks.get(message.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
