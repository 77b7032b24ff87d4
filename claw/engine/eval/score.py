"""Figures of an evaluation: pure functions over attempts.

Owns: pass@k, means, what counts and what does not.
Does not own: playing (`evaluate`), tables (`show`).

An attempt counts when it ended by itself or at a limit and a judge gave it a number. A failure of
the infrastructure says nothing about the policy: it is shown beside the figures, not in them.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from claw.records import End
from claw.sdk.traces import AttemptTrace

SLACK = 1e-9
"""an outcome so little below the bar still passes: 0.1 + 0.2 is not 0.3"""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return 1 - C(n - c, k) / C(n, k): the chance that one of k attempts passes, unbiased.

    n attempts, c of them passed. Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code" (arXiv 2107.03374), equation 1, computed as the product given there.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} of {c} passed in {n}")
    missed = 1.0
    for i in range(n - c + 1, n + 1):
        missed *= 1.0 - k / i if i > k else 0.0
    return 1.0 - missed


def ks(n: int) -> list[int]:
    """Return the k that are shown for n attempts: 1, 2, 4 ... and n."""
    powers = [1 << i for i in range(n.bit_length()) if 1 << i <= n]
    return sorted({*powers, n})


def summary(traces: Sequence[AttemptTrace], *, n: int, pass_bar: float) -> dict[str, Any]:
    """Return all figures as plain values.

    pass@k is a mean over tasks with at least k attempts that count; mean_reward over attempts.
    """
    by_task: dict[str, list[AttemptTrace]] = {}
    for trace in traces:
        by_task.setdefault(trace.task_id, []).append(trace)
    rows = [_row(task, those, pass_bar) for task, those in sorted(by_task.items())]
    outcomes = [t.outcome for t in traces if t.is_scored and t.outcome is not None]
    passes = {}
    for k in ks(n):
        values = [pass_at_k(r["counted"], r["passed"], k) for r in rows if r["counted"] >= k]
        passes[str(k)] = {"value": fmean(values) if values else None, "tasks": len(values)}
    return {
        "n": n, "pass_bar": pass_bar, "tasks": len(rows), "attempts": len(traces),
        "counted": len(outcomes),
        "failed": sum(t.end in (End.FAILED, End.CANCELLED) for t in traces),
        "mean_reward": fmean(outcomes) if outcomes else None, "pass_at": passes,
        "judges": sorted({t.judge for t in traces if t.judge}),
        "ends": dict(Counter(str(t.end) for t in traces)),
        "failures": dict(Counter(t.failure for t in traces if t.failure).most_common(10)),
        "per_task": rows,
    }


def _row(task: str, traces: list[AttemptTrace], pass_bar: float) -> dict[str, Any]:
    outcomes = [t.outcome for t in traces if t.is_scored and t.outcome is not None]
    return {
        "task": task, "attempts": len(traces), "counted": len(outcomes),
        "passed": sum(o >= pass_bar - SLACK for o in outcomes),
        "mean_reward": fmean(outcomes) if outcomes else None,
        "mean_turns": fmean(len(t.turns) for t in traces),
        "failed": sum(t.end in (End.FAILED, End.CANCELLED) for t in traces),
    }
