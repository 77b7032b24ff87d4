"""What the commands of one turn say about it: their exit codes are the checker.

Owns: from what a turn came to, to a verdict on that turn.
Does not own: the outcome of an episode, the words of hints (`hints`).
"""

from dataclasses import replace

from claw.sdk.judging import Case, Verdict
from claw.sdk.shell import hints
from claw.sdk.shell.talk import Acted


def acted_in(case: Case, acted: list[Acted]) -> Acted | None:
    """Return what the case's turn came to, of those of its episode."""
    index = int(case.metadata.get("index", -1))
    return acted[index] if 0 <= index < len(acted) else None


def of_turn(acted: Acted | None, *, hinted: bool) -> Verdict:
    """+1 for a turn whose commands all succeeded, -1 for one that failed or did nothing."""
    if acted is None:
        return Verdict(reason="the turn was not seen")
    vote = 1 if set(acted.kinds) == {"ok"} else -1
    codes = ", ".join(str(c) for c in acted.exit_codes if c is not None)
    reason = ", ".join(acted.kinds) + (f"; exit code {codes}" if codes else "")
    return Verdict(vote, (vote,), hints=given(acted, hinted=hinted), reason=reason)


def of_last(
    acted: Acted | None, *, hinted: bool, number: float, is_solved: bool, reason: str
) -> Verdict:
    """The outcome, with what the last turn itself teaches."""
    vote = 1 if is_solved else -1
    made = Verdict(vote, (vote,), number, reason=reason)
    return made if acted is None else replace(made, hints=given(acted, hinted=hinted))


def given(acted: Acted, *, hinted: bool) -> tuple[str, ...]:
    return hints.of(acted) if hinted else ()
