"""The judge of environments that score themselves: a checker, and labelled so.

Owns: an environment's own score as the outcome of its episode.
Does not own: votes on turns; a checker has none.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from claw.sdk.judging import Case, Verdict


@dataclass(frozen=True, slots=True)
class Score:
    """What an environment gives an episode."""

    total: float
    parts: dict[str, float] = field(default_factory=dict)
    """by name, as far as they are known"""

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.parts.items())


class Scored(Protocol):
    """An environment that knows what its episode was worth."""

    async def score(self) -> Score:
        """Return the score of what was played so far; the episode is over."""


class Checker:
    """`checker:<package>`: the outcome of an episode is what the package gives it."""

    def __init__(self, package: str) -> None:
        self.name = f"checker:{package}"

    async def judge(self, case: Case) -> Verdict:
        """Return the score at the end; abstain before."""
        if not case.final:
            return Verdict(reason="a checker: it scores the whole episode, at its end")
        env: Any = case.metadata["env"]
        score: Score = await env.score()
        return Verdict(number=score.total, reason=f"{self.name}: {score}")


def defaults() -> dict[str, Any]:
    """Return run settings for environments that only a checker judges."""
    return {"judge": {"kind": "none"}, "credit": {"kind": "outcome"}, "train": {"method": "grpo"}}
