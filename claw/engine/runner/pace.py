"""How fast episodes begin: not far ahead of training, and slower while nothing works.

Owns: the wait before an attempt begins.
Does not own: how many run at once (`episodes`), dropping what became too old (the actor's buffer).

A sample that waits while W others of batch B wait is trained about W / B versions after it was
made. So no group begins while max(max_staleness, 1) * B samples wait: it would only be dropped.
"""

import asyncio
import logging
from typing import Protocol

from claw.config import RunConfig
from claw.engine.runner.result import Result
from claw.records import End
from claw.sdk import EngineError

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""between two looks at how many samples wait"""
SAY_S = 60.0
"""between two lines that say why nothing begins"""
MAX_PAUSE_S = 60.0


class _Asked(Protocol):
    async def status(self) -> dict[str, object]:
        """Return the actor's status."""


class Pace:
    """`await pace.wait()` before a group begins; `note(result)` after each attempt."""

    def __init__(self, engine: _Asked, config: RunConfig) -> None:
        self._engine = engine
        self.most = max(config.async_.max_staleness, 1) * config.train.batch_size
        self._looked = self._said = -SAY_S
        self._num_waiting = 0
        self._failed_in_a_row = 0
        self._group = config.rollout.n

    def note(self, result: Result) -> None:
        """Know how an attempt ended; one without a single turn did not work either."""
        works = result.end is not End.FAILED and result.num_turns > 0
        self._failed_in_a_row = 0 if works else self._failed_in_a_row + 1

    async def wait(self) -> None:
        """Return when it is worth to begin a group."""
        await self._slow_down()
        while await self._samples() >= self.most:
            if _now() - self._said > SAY_S:
                self._said = _now()
                log.warning("%d samples wait for the trainer, as many as async.max_staleness "
                            "allows; no episode begins until then", self._num_waiting)
            await asyncio.sleep(LOOK_S)

    async def _slow_down(self) -> None:
        rounds = self._failed_in_a_row // self._group
        if rounds:
            pause_s = min(2.0 ** min(rounds - 1, 10), MAX_PAUSE_S)
            log.warning("the last %d attempts failed; the next in %g s", self._failed_in_a_row,
                        pause_s)
            await asyncio.sleep(pause_s)

    async def _samples(self) -> int:
        if _now() - self._looked > LOOK_S:
            try:
                samples = (await self._engine.status()).get("samples")
            except EngineError as error:
                log.warning("how many samples wait is not known: %s", error)
                return self._num_waiting
            self._looked = _now()
            held = samples if isinstance(samples, dict) else {}
            self._num_waiting = int(held.get("waiting") or 0) + int(held.get("leased") or 0)
        return self._num_waiting


def _now() -> float:
    return asyncio.get_running_loop().time()
