"""The workers' side: generation messages go to the policy, versions are compared here.

Owns: that every worker serves the newest good version. Does not own: calls (`policy.py`).
"""

import logging
from collections.abc import Awaitable, Callable

from claw.engine import wire
from claw.engine.actor.parts import Parts
from claw.engine.wire import Message

log = logging.getLogger(__name__)

Send = Callable[[bytes, Message], Awaitable[None]]


class WorkerLink:
    """What workers say."""

    def __init__(self, send: Send, parts: Parts) -> None:
        self._send, self._policy = send, parts.policy
        self._published, self._journal = parts.published, parts.journal

    async def heard(self, peer: bytes, message: Message) -> bool:
        """Handle a worker's message; return False for a type that is not of this link."""
        if message.type == "version.loaded":
            self._loaded(message)
            return True
        if message.type == "version.refused":
            self._refused(peer, message)
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

    def _loaded(self, message: Message) -> None:
        number = int(message["number"])
        said = (f"mismatch max {float(message.get('mismatch_max') or 0.0):.4f}, "
                f"mean {float(message.get('mismatch_mean') or 0.0):.4f}, "
                f"{float(message.get('seconds') or 0.0):.2f} s")
        self._journal.put_event("version.loaded", f"v{number}", said)

    def _refused(self, peer: bytes, message: Message) -> None:
        number, why = int(message["number"]), str(message.get("why") or "")
        log.warning("a worker refuses version %d: %s", number, why)
        self._journal.put_event("version.refused", f"v{number}", why[:500])
        key = (str(message["owner"]), str(message["adapter"]))
        self._published.refuse(peer, key, number, why)

    async def tend(self) -> None:
        await self._policy.tend()
