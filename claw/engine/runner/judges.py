"""The judges of a plugin, asked in the runner.

Owns: which judge sees which turn; verdicts -> signals and the outcome.
Does not own: judges that need no plugin code (the actor asks those).
"""

import asyncio
import logging
import math
from dataclasses import dataclass, replace

from claw.errors import Boundary, BoundaryError, UsageError, boundary, nearest
from claw.records import Message, Signal
from claw.sdk import Case, Judge, Verdict

log = logging.getLogger(__name__)

ACTORS_OWN = ("rules", "model", "none")
"""kinds that the actor judges by itself"""


@dataclass(frozen=True, slots=True)
class Final:
    """What the judges say at the end of an episode."""

    outcome: float | None
    judge: str
    """who said the outcome"""
    signals: list[Signal]


class Judges:
    """`kind` names the judge of every turn; all of them see the last one."""

    def __init__(
        self, judges: list[Judge], kind: str, deadline_s: float, retries: int = 0
    ) -> None:
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
        self._deadline_s, self._retries = deadline_s, retries

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

    async def final(self, case: Case, *, was_judged: bool = False) -> Final:
        """Judge the last turn: the first number that a judge gives is the outcome.

        The named judge speaks for the turn, unless it has done so before; of the others, whose
        verdict is about the whole episode, the hints are kept.
        """
        signals: list[Signal] = []
        outcome, by = None, ""
        for judge in self._of_ends:
            verdict = await self._ask_again(judge, replace(case, final=True))
            if outcome is None and verdict.number is not None:
                outcome, by = float(verdict.number), label(judge)
            if judge is self._of_turns and not was_judged:
                signals.append(_signal(judge, case, verdict))
            elif verdict.hints:
                only_hints = Verdict(hints=verdict.hints, reason=verdict.reason)
                signals.append(_signal(judge, case, only_hints))
        return Final(outcome, by, signals)

    async def _ask_again(self, judge: Judge, case: Case) -> Verdict:
        """A judge that fails at the end is asked again about this episode, not about another."""
        for _ in range(self._retries):
            try:
                return await self._ask(judge, case)
            except BoundaryError as error:
                log.warning("%s; asked again", error)
        return await self._ask(judge, case)

    async def _ask(self, judge: Judge, case: Case) -> Verdict:
        with boundary(Boundary.JUDGE):
            async with asyncio.timeout(self._deadline_s):
                verdict = await judge.judge(case)
            number = verdict.number
            if number is not None and not math.isfinite(number):
                raise ValueError(f"judge {judge.name!r} gave {number!r} as a number")
        return verdict


def label(judge: Judge) -> str:
    """Return the name under which its figures are shown: a checker is no judge and says so."""
    return f"checker:{judge.name}" if getattr(judge, "is_checker", False) else judge.name


def _signal(judge: Judge, case: Case, verdict: Verdict) -> Signal:
    return Signal(
        case.turn_id, label(judge), verdict.vote, tuple(verdict.votes), verdict.number,
        tuple(verdict.hints), verdict.reason,
    )
