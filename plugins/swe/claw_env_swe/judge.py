"""The signals: the instance's tests say the outcome, the commands' exit codes judge each turn.

Owns: from grades to verdicts.
Does not own: running the tests (`grade`), votes on turns and hints (claw.sdk.shell).

A checker plays the judge here, and its figures are labelled so; `judge.kind = "model"` asks a
language model about each turn instead, and the outcome still comes from the tests.
"""

import asyncio

from claw.sdk import Case, Verdict
from claw.sdk.shell import verdicts

from .env import SweEnv
from .settings import SweConfig


class SweJudge:
    """+1 for a turn whose commands all succeeded, -1 for one that failed or did nothing."""

    name = "swe"
    is_checker = True
    """its figures are shown as those of a checker, not of a judge"""

    def __init__(self, config: SweConfig) -> None:
        self._config = config

    async def judge(self, case: Case) -> Verdict:
        """Judge a turn; the last one holds the outcome too."""
        env = case.metadata.get("env")
        if not isinstance(env, SweEnv):
            return Verdict(reason="no episode of swe")
        acted, hinted = verdicts.acted_in(case, env.acted), self._config.hints
        if not case.final:
            return verdicts.of_turn(acted, hinted=hinted)
        graded = await asyncio.to_thread(env.grade)
        number = graded.fraction if self._config.outcome == "fraction" else float(graded.is_solved)
        return verdicts.of_last(acted, hinted=hinted, number=number, is_solved=graded.is_solved,
                                reason=f"{graded.status}: {graded.reason}")
