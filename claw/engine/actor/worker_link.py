"""The workers' side: generation messages go to the policy, versions are compared here.

Owns: that every worker serves the newest good version, and what is measured of it.
Does not own: calls (`policy.py`), which version is good (`published.py`).
"""

import logging
from collections.abc import Awaitable, Callable

from claw.engine import wire
from claw.engine.actor.parts import Parts
from claw.engine.wire import Message
from claw.records import Version

log = logging.getLogger(__name__)

Send = Callable[[bytes, Message], Awaitable[None]]
OnRefused = Callable[[Version], Awaitable[None]]
Measure = Callable[[dict[str, float | str]], None]


class WorkerLink:
    """What workers say."""

    def __init__(
        self, send: Send, parts: Parts, on_refused: OnRefused, measure: Measure
    ) -> None:
        self._send, self._policy = send, parts.policy
        self._on_refused, self._measure = on_refused, measure
        self._published, self._journal = parts.published, parts.journal

    async def heard(self, peer: bytes, message: Message) -> bool:
        """Handle a worker's message; return False for a type that is not of this link."""
        if message.type == "version.loaded":
            self._loaded(peer, message)
            return True
        if message.type == "version.refused":
            self._refused(peer, message)
            await self._settle()
            return True
        if message.type == "error":
            log.warning("a worker says: %s", message.get("text"))
            return True
        if message.type == "worker.hello":
            self._published.forget_peer(peer)
        known = await self._policy.heard(peer, message)
        if message.type in ("worker.hello", "worker.beat"):
            await self._compare(peer, message)
        return known

    async def _compare(self, peer: bytes, message: Message) -> None:
        """Tell a worker what it missed; announcements reach it without us."""
        for version in self._published.lacking(peer, message.get("versions") or []):
            log.info("a worker lacks version %d; it is told", version.number)
            await self._send(peer, wire.record_message("version.load", version))

    def _loaded(self, peer: bytes, message: Message) -> None:
        number = int(message["number"])
        worst, mean = (float(message.get(n) or 0.0) for n in ("mismatch_max", "mismatch_mean"))
        seconds = float(message.get("seconds") or 0.0)
        self._journal.put_event("version.loaded", f"v{number}", f"{_name(peer)}: mismatch max "
                                f"{worst:.4f}, mean {mean:.4f}, {seconds:.2f} s")
        self._published.say(peer, (str(message["owner"]), str(message["adapter"])), number)
        self._measure({"mismatch/canary_max": worst, "mismatch/canary_mean": mean,
                       "perf/swap_s": seconds, "rollout/worker": _name(peer)})

    def _refused(self, peer: bytes, message: Message) -> None:
        number, why = int(message["number"]), str(message.get("why") or "no reason given")
        log.warning("%s refuses version %d: %s", _name(peer), number, why)
        self._journal.put_event("version.refused", f"v{number}", f"{_name(peer)}: {why}"[:500])
        self._published.say(peer, (str(message["owner"]), str(message["adapter"])), number, why)
        found: dict[str, float | str] = {
            f"mismatch/canary_{name}": float(message[f"mismatch_{name}"])
            for name in ("max", "mean") if message.get(f"mismatch_{name}") is not None}
        self._measure(found | {"mismatch/refused": 1.0, "rollout/worker": _name(peer)})

    async def _settle(self) -> None:
        for version in self._published.settle(self._policy.workers.keys()):
            await self._on_refused(version)

    async def tend(self) -> None:
        await self._policy.tend()
        await self._settle()


def _name(peer: bytes) -> str:
    return peer.decode(errors="replace")
