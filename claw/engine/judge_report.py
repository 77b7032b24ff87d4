"""`claw judge test`: how a judge reads next states whose label is known.

Owns: the measures, and their table. Does not own: the judge (`sdk.judges`), a run's own votes
(`judge_audit`).
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any

from rich.table import Table

from claw.config import JudgeConfig
from claw.engine import report
from claw.engine.actor import judges
from claw.engine.judge_audit import bias, shown
from claw.errors import UsageError
from claw.sdk.judging import Case, Judge, Verdict

# --- test: labelled next states ------------------------------------------------------------------


def labelled() -> list[dict[str, Any]]:
    """260 next states with labels, written apart from any judge."""
    text = resources.files("claw.sdk.judges").joinpath("labelled.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def case_of(row: dict[str, Any]) -> Case:
    return Case(row["id"], ({"role": "user", "content": row["request"]},),
                {"role": "assistant", "content": row["reply"]}, tuple(row["next_state"]))


def measure(judge: Judge, rows: Sequence[dict[str, Any]], parallel: int) -> dict[str, Any]:
    """Ask the judge about every row; a row that fails counts as an abstention, and is told."""
    async def all_of() -> list[Verdict | Exception]:
        room = asyncio.Semaphore(parallel)

        async def one(row: dict[str, Any]) -> Verdict | Exception:
            async with room:
                try:
                    return await judge.judge(case_of(row))
                except Exception as error:  # one row's trouble is a figure, not the end
                    return error
        return list(await asyncio.gather(*(one(row) for row in rows)))

    began = time.perf_counter()
    verdicts = asyncio.run(all_of())
    seconds = time.perf_counter() - began
    return scores(rows, verdicts) | {"seconds": seconds}


def scores(rows: Sequence[dict[str, Any]], verdicts: Sequence[Any]) -> dict[str, Any]:
    """Compare verdicts with labels."""
    counts: Counter[tuple[int, int | None]] = Counter()
    hints: Counter[tuple[bool, bool]] = Counter()
    failed, lengths, answers = 0, [], 0
    for row, verdict in zip(rows, verdicts, strict=True):
        is_verdict = isinstance(verdict, Verdict)
        failed += not is_verdict
        vote = verdict.vote if is_verdict else None
        counts[row["vote"], vote] += 1
        hints[row["has_hint"], is_verdict and bool(verdict.hints)] += 1
        answers += len(verdict.votes) if is_verdict else 0
        if vote is not None:
            lengths.append((len(row["reply"]), vote - row["vote"]))
    found: dict[str, Any] = {"rows": len(rows), "failed": failed, "votes": answers}
    for vote, name in ((1, "up"), (-1, "down")):
        given = sum(counts[label, vote] for label in (1, 0, -1))
        wanted = sum(n for (label, _), n in counts.items() if label == vote)
        found[f"{name}_precision"] = counts[vote, vote] / given if given else None
        found[f"{name}_recall"] = counts[vote, vote] / wanted if wanted else None
    given, wanted = hints[True, True] + hints[False, True], hints[True, True] + hints[True, False]
    found |= {
        "hint_precision": hints[True, True] / given if given else None,
        "hint_recall": hints[True, True] / wanted if wanted else None,
        "abstained": sum(n for (_, vote), n in counts.items() if vote is None) / len(rows),
        "opposite": counts[1, -1] + counts[-1, 1], "length_bias": bias(lengths),
    }
    return found


def test(config: JudgeConfig, *, limit: int, as_json: bool) -> None:
    """Print how the configured judge reads the labelled set."""
    if config.kind == "model" and not config.base_url:
        raise UsageError("claw's own workers are asked only inside a run",
                         found="judge.kind = 'model' without judge.base_url",
                         do="name an endpoint: judge.base_url=http://127.0.0.1:8411/v1 with "
                            "judge.api_key_env is that of a running run")
    judge = judges.build(config, None)
    if judge is None:
        raise UsageError("this judge cannot be tested here", found=f"judge.kind = {config.kind!r}",
                         allowed="rules, model")
    rows = labelled()
    step = max(1, len(rows) // limit) if limit else 1
    found = measure(judge, rows[::step], config.parallel)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(box=None)
    table.add_column(f"judge {judge.name}")
    table.add_column("", justify="right")
    for key, words in _TEST.items():
        table.add_row(words, shown(found[key]))
    report.console.print(table)


_TEST = {
    "rows": "labelled next states", "up_precision": "vote +1: precision",
    "up_recall": "vote +1: recall", "down_precision": "vote -1: precision",
    "down_recall": "vote -1: recall", "hint_precision": "hint: precision",
    "hint_recall": "hint: recall", "abstained": "abstained (share)",
    "opposite": "the opposite of the label", "failed": "failed", "votes": "votes asked (cost)",
    "seconds": "seconds (cost)",
    "length_bias": "length bias: correlation of error and reply length",
}
