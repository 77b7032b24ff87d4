"""The signals: the task's tests say the outcome, the commands' exit codes judge each turn.

Owns: from grades and exit codes to verdicts.
Does not own: running the tests (`grade`), the words of hints (`hints`).

A checker plays the judge here, and its figures are labelled so; `judge.kind = "model"` asks a
language model about each turn instead, and the outcome still comes from the tests.
"""

import asyncio

from claw.sdk import Case, Verdict

from . import hints
from .env import Acted, TerminalEnv
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
        index = int(case.metadata.get("index", -1))
        acted = env.acted[index] if 0 <= index < len(env.acted) else None
        if not case.final:
            return self._of_turn(acted)
        graded = await asyncio.to_thread(env.grade)
        number = outcome(graded, self._config.outcome)
        vote = 1 if graded.is_solved else -1
        given = hints.of(acted) if self._config.hints and acted is not None else ()
        return Verdict(vote, (vote,), number, given, graded.reason)

    def _of_turn(self, acted: Acted | None) -> Verdict:
        if acted is None:
            return Verdict(reason="the turn was not seen")
        vote = 1 if set(acted.kinds) == {"ok"} else -1
        given = hints.of(acted) if self._config.hints else ()
        codes = ", ".join(str(c) for c in acted.exit_codes if c is not None)
        reason = ", ".join(acted.kinds) + (f"; exit code {codes}" if codes else "")
        return Verdict(vote, (vote,), hints=given, reason=reason)


def outcome(graded: Grade, kind: str) -> float:
    """Return the outcome of a grade: 2r - 1, r, or 1 only when everything passed."""
    if kind == "signed":
        return 2.0 * graded.fraction - 1.0
    return graded.fraction if kind == "fraction" else float(graded.is_solved)
