"""From signals to advantages: a table of pure functions.

Owns: the formulas, and putting one turn's advantage on its own tokens.
Does not own: when a group is complete (`groups.py`), what happens to the sample (`buffer.py`).

Notation: a group holds the traces of one task; o is a trace's outcome, p_j the process value of its
turn j (the vote, or a judge's number), None where the judge abstained. None as an advantage means:
no GRPO term.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from claw.records import FinishReason, Sample, Turn, new_id

EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Judged:
    """One trace of a group, judged."""

    outcome: float | None
    process: tuple[float | None, ...]
    """p_j of each of its turns, in order"""
    steps: tuple[int, ...] = ()
    """j of each of its turns; empty: 0, 1, 2 ... (turns that cannot be trained leave gaps)"""

    @property
    def indices(self) -> tuple[int, ...]:
        """The step index of each turn."""
        return self.steps or tuple(range(len(self.process)))


Advantages = list[list[float | None]]
"""per trace, per turn"""
Credit = Callable[..., Advantages]


def vote(group: Sequence[Judged], *, alpha: float, baseline: float) -> Advantages:
    """A_j = p_j - baseline; an abstention has no GRPO term. Binary RL of OpenClaw-RL.

    Looks at no outcome and no other trace.
    """
    return [[None if p is None else p - baseline for p in trace.process] for trace in group]


def outcome(group: Sequence[Judged], *, alpha: float, baseline: float) -> Advantages:
    """r = alpha * o + (1 - alpha) * mean_j p_j; A = (r - mean) / (std + 1e-6), on every turn.

    Population standard deviation over the group (GRPO). A group of one gets r - baseline; a group
    whose r are all equal says nothing and has no GRPO term.
    """
    values = [_mixed(alpha, trace.outcome, _mean(trace.process)) for trace in group]
    standard = standardised(values, baseline)
    return [[a] * len(trace.process) for a, trace in zip(standard, group, strict=True)]


def step(group: Sequence[Judged], *, alpha: float, baseline: float) -> Advantages:
    """r_j = alpha * o + (1 - alpha) * p_j, standardised over equal j inside the group.

    j is the step index inside the episode, also where a turn before it could not be trained. One
    that a single trace reached is a group of one; rules as in `outcome`.
    """
    made: Advantages = [[None] * len(trace.process) for trace in group]
    places: dict[int, list[tuple[int, int]]] = {}
    for i, trace in enumerate(group):
        for position, j in enumerate(trace.indices):
            places.setdefault(j, []).append((i, position))
    for rows in places.values():
        values = [_mixed(alpha, group[i].outcome, group[i].process[p]) for i, p in rows]
        for (i, p), a in zip(rows, standardised(values, baseline), strict=True):
            made[i][p] = a
    return made


TABLE: dict[str, Credit] = {"vote": vote, "outcome": outcome, "step": step}
NEEDS_GROUP = {"outcome", "step"}
"""credits that wait until every trace of a group has ended; a plugin's own entries do too"""


def register(name: str, function: Credit) -> None:
    """Add a credit function that `credit.kind` can name."""
    TABLE[name] = function
    NEEDS_GROUP.add(name)


def standardised(values: Sequence[float | None], baseline: float) -> list[float | None]:
    """Return (v - mean) / (std + 1e-6) over the known values, by the rules for one and constant."""
    known = [v for v in values if v is not None]
    if len(known) == 1:
        return [None if v is None else v - baseline for v in values]
    if not known or max(known) - min(known) < EPSILON:
        return [None] * len(values)
    mean, std = fmean(known), pstdev(known)
    return [None if v is None else (v - mean) / (std + EPSILON) for v in values]


def _mixed(alpha: float, outcome: float | None, process: float | None) -> float | None:
    """What is missing leaves the other part alone; both missing is nothing."""
    if outcome is None or process is None:
        return process if outcome is None else outcome
    return alpha * outcome + (1 - alpha) * process


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def sample(
    turn: Turn, advantage: float | None, hints: Sequence[np.ndarray], outcome: float | None = None
) -> Sample:
    """Return the training sample of a finished turn. Every sampled id is masked in.

    `advantage` goes on each of the turn's own tokens; None, and a greedy turn, have no GRPO term.
    `hints` are int32 prompts with one hint candidate each.
    """
    c = turn.completion
    assert c is not None, "only a finished turn makes a sample"
    has = advantage is not None and turn.sampling.temperature > 0
    extra: dict[str, Any] = {"outcome": outcome}
    return Sample(
        id=new_id("sample"), turn_id=turn.id, trace_id=turn.trace_id, owner=turn.owner,
        adapter=turn.adapter, prompt_ids=turn.prompt_ids, reply_ids=c.ids, logps=c.logps,
        mask=np.ones(len(c.ids), bool),
        advantages=np.full(len(c.ids), advantage if has else 0.0, np.float32),
        versions=c.versions, temperature=turn.sampling.temperature, has_advantage=has,
        hints=tuple(hints), topk_ids=c.topk_ids, topk_logps=c.topk_logps,
        truncated=c.finish_reason is FinishReason.LENGTH, images=turn.images, **extra,
    )
