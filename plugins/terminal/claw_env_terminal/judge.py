"""The signals: the task's tests say the outcome, the commands' exit codes judge each turn.

Owns: from grades and exit codes to verdicts.
Does not own: running the tests (`grade`), votes on turns and hints (claw.sdk.shell).

A checker plays the judge here, and its figures are labelled so; `judge.kind = "model"` asks a
language model about each turn instead, and the outcome still comes from the tests.
"""

import asyncio

from claw.sdk import Case, Verdict
from claw.sdk.shell import verdicts

from .env import TerminalEnv
from .grade import Grade
from .settings import TerminalConfig


class CommandsJudge:
    """+1 for a turn whose commands all succeeded, -1 for one that failed or did nothing."""

    name = "commands"
    is_checker = True
    """its figures are shown as those of a checker, not of a judge"""

    def __init__(self, config: TerminalConfig) -> None:
        self._config = config

    async def judge(self, case: Case) -> Verdict:
        """Judge a turn; the last one holds the outcome too."""
        env = case.metadata.get("env")
        if not isinstance(env, TerminalEnv):
            return Verdict(reason="no terminal episode")
        acted, hinted = verdicts.acted_in(case, env.acted), self._config.hints
        if not case.final:
            return verdicts.of_turn(acted, hinted=hinted)
        graded = await asyncio.to_thread(env.grade)
        return verdicts.of_last(
            acted, hinted=hinted, number=outcome(graded, self._config.outcome),
            is_solved=graded.is_solved, reason=graded.reason)


def outcome(graded: Grade, kind: str) -> float:
    """Return the outcome of a grade: 2r - 1, r, or 1 only when everything passed."""
    if kind == "signed":
        return 2.0 * graded.fraction - 1.0
    return graded.fraction if kind == "fraction" else float(graded.is_solved)
