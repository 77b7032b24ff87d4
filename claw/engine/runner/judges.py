"""The judges of a plugin, asked in the runner.

Owns: which judge sees which turn; verdicts -> signals and the outcome.
Does not own: judges that need no plugin code (the actor asks those).
"""

import asyncio
import logging
import math
from dataclasses import replace

from claw.errors import Boundary, BoundaryError, UsageError, boundary, nearest
from claw.records import Message, Signal
from claw.sdk import Case, Judge, Verdict

log = logging.getLogger(__name__)

ACTORS_OWN = ("rules", "model", "none")
"""kinds that the actor judges by itself"""


class Judges:
    """`kind` names the judge of every turn; all of them see the last one."""

    def __init__(self, judges: list[Judge], kind: str, deadline_s: float) -> None:
        known = {judge.name: judge for judge in judges}
        if kind not in known and kind not in ACTORS_OWN:
            names = [*ACTORS_OWN, *known]
            raise UsageError(
                f"no judge {kind!r}", found=nearest(kind, names), allowed=", ".join(names),
                do="set judge.kind",
            )
        self._of_turns = known.get(kind)
        # the named judge first: its number is the outcome
        self._of_ends = sorted(judges, key=lambda judge: judge.name != kind)
        self._deadline_s = deadline_s

    async def process(self, case: Case, following: list[Message]) -> list[Signal]:
        """Judge a turn that was followed by something; a judge that fails abstains."""
        if self._of_turns is None:
            return []
        judge = self._of_turns
        try:
            verdict = await self._ask(judge, replace(case, next_state=tuple(following)))
        except BoundaryError as error:
            log.warning("%s", error)
            verdict = Verdict(reason=str(error))
        return [_signal(judge, case, verdict)]

    async def final(self, case: Case) -> tuple[list[Signal], float | None]:
        """Judge the last turn: its signals, and the first number that a judge gives."""
        signals, outcome = [], None
        for judge in self._of_ends:
            verdict = await self._ask(judge, replace(case, final=True))
            if outcome is None and verdict.number is not None:
                outcome = float(verdict.number)
            if judge is self._of_turns:
                signals.append(_signal(judge, case, verdict))
        return signals, outcome

    async def _ask(self, judge: Judge, case: Case) -> Verdict:
        with boundary(Boundary.JUDGE):
            async with asyncio.timeout(self._deadline_s):
                verdict = await judge.judge(case)
            number = verdict.number
            if number is not None and not math.isfinite(number):
                raise ValueError(f"judge {judge.name!r} gave {number!r} as a number")
        return verdict


def _signal(judge: Judge, case: Case, verdict: Verdict) -> Signal:
    return Signal(
        case.turn_id, judge.name, verdict.vote, tuple(verdict.votes), verdict.number,
        tuple(verdict.hints), verdict.reason,
    )
