"""How far episodes may run ahead of training: `async.stale = "pace"`.

Owns: when a new episode may begin. Does not own: what is too old (`buffer.py`, the trainer).

What begins now is trained after all that is ahead of it. With B samples in a step and a bound of n
versions, at most (n + 1) * B samples may wait, be in training, or come from open episodes: then
none is older than n when its step comes, as long as steps are full and episodes end in the order
in which they began (AReaL, arXiv:2505.24298). Others may grow older, and are dropped.
"""

import asyncio
from collections.abc import Callable

from claw.config import RunConfig
from claw.engine.actor.buffer import Buffer
from claw.engine.actor.groups import Groups

LOOK_S = 0.2


class Pace:
    """Holds episodes back while too much is ahead of them."""

    def __init__(
        self, config: RunConfig, buffer: Buffer, groups: Groups, trains: Callable[[], bool]
    ) -> None:
        self._is_on = config.async_.stale == "pace"
        self._room = (config.async_.max_staleness + 1) * config.train.batch_size
        self._buffer, self._groups, self._trains = buffer, groups, trains

    @property
    def ahead(self) -> int:
        """Samples that wait or are in training, and those that open episodes will give."""
        leased = sum(len(lease.samples) for lease in self._buffer.leases.values())
        coming = sum(max(1, len(e.turns)) for e in self._groups.episodes.values())
        return len(self._buffer.waiting) + leased + coming

    async def wait(self, group: str) -> None:
        """Return when an episode of this group may begin.

        A group of which one has begun is never held up: it gives no sample before it is whole. And
        without a trainer nothing grows old.
        """
        while self._is_on and self.ahead >= self._room and self._trains() and not (
            group and self._groups.has(group)
        ):
            await asyncio.sleep(LOOK_S)
