"""`claw judge audit` and `claw judge test`: how far a judge can be believed.

Owns: the measures, and their tables. Does not own: the judge (`sdk.judges`).
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from claw.config import JudgeConfig
from claw.engine import report
from claw.engine.actor import judges
from claw.engine.actor.journal import Journal
from claw.engine.actor.signals import PERSON
from claw.errors import UsageError
from claw.records import Signal, TurnKind
from claw.sdk.judging import Case, Judge, Verdict

MIN_FOR_BIAS = 8
"""judged turns below which a bias would be chance"""


# --- audit: a run's own votes --------------------------------------------------------------------


@dataclass
class Audit:
    """What a journal says of one judge."""

    judged: int = 0
    abstained: int = 0
    votes: Counter[int] = field(default_factory=Counter)
    with_thumb: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    """(the person's thumb, the judge's vote) -> turns"""
    pairs: int = 0
    same_pairs: int = 0
    """of two votes of one tally"""
    unread: int = 0
    asked: int = 0
    """single answers of a model judge"""
    lengths: list[tuple[int, int]] = field(default_factory=list)
    """(reply tokens, vote)"""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(place of the turn in its conversation, vote)"""

    @property
    def agreement(self) -> float | None:
        """Share of the turns with a thumb and a vote on which both agree."""
        both = {k: n for k, n in self.with_thumb.items() if k[0] and k[1] is not None}
        total = sum(both.values())
        same = sum(n for (thumb, vote), n in both.items() if thumb == vote)
        return same / total if total else None


def audit(run: Path) -> dict[str, Audit]:
    """Read every judge's signals of a run, with the person's thumbs beside them."""
    journal = Journal(run, read_only=True)
    found: dict[str, Audit] = {}
    try:
        for id, index in journal.read("SELECT id, idx FROM turns WHERE kind=?", str(TurnKind.MAIN)):
            signals = journal.signals(id)
            thumbs = [s.vote for s in signals if s.judge == PERSON and s.vote]
            length = journal.read("SELECT shape FROM arrays WHERE record=? AND"
                                  " name='completion.ids'", id)
            votes = {s.judge: s for s in signals if s.judge != PERSON and not s.is_hint_only}
            for name, signal in votes.items():
                _count(found.setdefault(name, Audit()), signal, thumbs[-1] if thumbs else 0,
                       json.loads(length[0][0])[0] if length else 0, int(index))
    finally:
        journal.close()
    return found


def _count(into: Audit, signal: Signal, thumb: int, length: int, index: int) -> None:
    into.judged += 1
    if thumb:
        into.with_thumb[thumb, signal.vote] += 1
    if len(signal.votes) > 1:
        read = [v for v in signal.votes if v is not None]
        into.asked += len(signal.votes)
        into.unread += len(signal.votes) - len(read)
        for a, b in combinations(read, 2):
            into.pairs += 1
            into.same_pairs += a == b
    if signal.vote is None:
        into.abstained += 1
        return
    into.votes[signal.vote] += 1
    into.lengths.append((length, signal.vote))
    into.places.append((index, signal.vote))


def bias(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Correlation of a vote with a number that it should not depend on; None for too few."""
    values = np.array(pairs, float)
    if len(values) < MIN_FOR_BIAS or not values.std(axis=0).all():
        return None
    return float(np.corrcoef(values.T)[0, 1])


def show_audit(run: Path, *, as_json: bool) -> None:
    """Print what `audit` found."""
    found = audit(run)
    if not found:
        raise UsageError("no judge has said anything in this run yet", found=str(run),
                         do="talk to it; claw turns shows which turns are judged")
    rows = {name: figures(one) for name, one in found.items()}
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None)
    table.add_column("")
    for name in rows:
        table.add_column(name, justify="right")
    for key, words in _AUDIT.items():
        table.add_row(words, *(_shown(row[key]) for row in rows.values()))
    report.console.print(table)


_AUDIT = {
    "judged": "turns judged", "up": "  +1", "neutral": "  0", "down": "  -1",
    "abstained": "  abstained (share)", "thumbs": "turns with a thumb too",
    "agreement": "  vote and thumb agree (share)", "opposite": "  vote says the opposite",
    "asked": "answers asked (cost)", "unread": "  unreadable (share)",
    "votes_agree": "  two votes on one turn agree (share)",
    "length_bias": "length bias: correlation of vote and reply length",
    "place_bias": "position bias: correlation of vote and place in the conversation",
}


def figures(one: Audit) -> dict[str, float | int | None]:
    """The numbers of an audit; None where there is too little to say."""
    opposite = sum(n for (thumb, vote), n in one.with_thumb.items() if vote == -thumb)
    return {
        "judged": one.judged, "up": one.votes[1], "neutral": one.votes[0], "down": one.votes[-1],
        "abstained": one.abstained / one.judged, "thumbs": sum(one.with_thumb.values()),
        "agreement": one.agreement, "opposite": opposite, "asked": one.asked,
        "unread": one.unread / one.asked if one.asked else None,
        "votes_agree": one.same_pairs / one.pairs if one.pairs else None,
        "length_bias": bias(one.lengths), "place_bias": bias(one.places),
    }


def _shown(value: float | int | None) -> str:
    if value is None:
        return "too few"
    return str(value) if isinstance(value, int) else f"{value:.2f}"


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
        table.add_row(words, _shown(found[key]))
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
