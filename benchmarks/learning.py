"""`python -m benchmarks.learning`: conversations until a person's taste is met, method by method.

    python -m benchmarks.learning --methods hybrid grpo memory --people plain --seeds 0 1 2
    python -m benchmarks.learning --table docs/learning.jsonl --picture learning.png

Each trial starts from the untrained model, talks `--conversations` times and is then measured on
held-out questions, facts and neutral prose. A row is written as soon as its trial ends, and a trial
that has its row is not run again, so that a run can be stopped and continued. The loop is that of
benchmarks/trial.py: synchronous, so that a busy machine changes the minutes and nothing else.
"""

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from claw_env_personal.demo.talk import streak_at
from claw_env_personal.people import PEOPLE, facts, person, questions

from benchmarks import machine
from benchmarks.trial import Trial

Row = dict[str, Any]
SAMPLED = ("loss.subset=student", "loss.gap_weight=student")  # no top-k that they would be of
GRPO = ("train.method=grpo", "loss.w_rl=1.0", *SAMPLED)
OPD = ("loss.w_rl=0",)
METHODS: dict[str, tuple[str, ...]] = {
    "hybrid": (),
    "grpo": GRPO,
    "grpo, no baseline": (*GRPO, "loss.baseline=none"),
    "opd, sampled token": ("train.method=opd-sampled", *OPD, *SAMPLED),
    "opd, top 2": ("train.method=opd", *OPD, "loss.k=2"),
    "opd, top 4": ("train.method=opd", *OPD, "loss.k=4"),
    "opd, top 8": ("train.method=opd", *OPD),
    "opd, top 20": ("train.method=opd", *OPD, "loss.k=20"),
    "hybrid, student's ids": ("loss.subset=student",),
    "hybrid, overlap's ids": ("loss.subset=overlap",),
    "hybrid, student's weights": ("loss.gap_weight=student",),
    "hybrid, C off": ("loss.gap_clip=0",),
    "memory": (),
}
"""What each changes of the demo's settings; `memory` trains nothing. One correction makes one hint
here, so that there is no choice of hints to compare."""

COLUMNS = ("person", "method", "seeds", "met at conversation", "held-out hits", "on topic",
           "facts kept", "perplexity, times", "tokens of a reply")


def main() -> None:
    o = _options()
    if o.table:
        rows = read(o.table)
        print("\n".join(table(rows)))
        if o.picture:
            draw(rows, o.picture)
        return
    done = {_key(row) for row in read(o.out)} if o.out.exists() else set()
    untrained: dict[tuple[str, int], dict[str, float]] = {}
    for seed in o.seeds:
        for name in o.people:
            for method in o.methods:
                if (method, name, seed, o.conversations) not in done:
                    _append(o.out, _play(method, name, seed, o, untrained))
    print("\n".join(table(read(o.out))))


def _play(
    method: str, name: str, seed: int, o: argparse.Namespace,
    untrained: dict[tuple[str, int], dict[str, float]],
) -> Row:
    started = time.monotonic()

    def tell(said: str) -> None:
        print(f"  {method}, {name}, seed {seed}: {said}", flush=True)

    trial = Trial.load(METHODS[method], seed, keeps_wishes=method == "memory", tell=tell)
    who = person(name, seed)
    if (name, seed) not in untrained:
        untrained[name, seed] = trial.measure(who, 1, o.every_fact)
    while len(trial.hits) < o.conversations:
        numbers = range(len(trial.hits), min(len(trial.hits) + o.at_once, o.conversations))
        trial.learn(trial.round([person(name, seed) for _ in numbers], numbers))
        trial.tell("first replies " + "".join("+" if hit else "." for hit in trial.hits))
    return {
        "method": method, "person": name, "seed": seed, "conversations": o.conversations,
        "at_once": o.at_once, "settings": list(METHODS[method]),
        "met_at": streak_at(trial.hits), "hits": trial.hits, "steps": trial.number,
        "before": untrained[name, seed], "after": trial.measure(who, 1, o.every_fact),
        "num_held": len(questions("held")), "num_facts": len(facts()[::o.every_fact]),
        "seconds": round(time.monotonic() - started, 1), "machine": machine.describe(),
    }


# --- the table -----------------------------------------------------------------------------------


def table(rows: list[Row]) -> list[str]:
    """Means over seeds, their spread where there are several, one line per method and person."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["person"], row["method"]].append(row)
    order = list(METHODS)
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for name, method in sorted(groups, key=lambda g: (g[0], order.index(g[1]))):
        found = groups[name, method]
        after = [r["after"] for r in found]
        more = [r["after"]["perplexity"] / r["before"]["perplexity"] for r in found]
        lines.append(_line([
            name, method, str(len(found)), met(found), _spread([a["hits"] for a in after]),
            _spread([a["topic"] for a in after]), _spread([_kept(r) for r in found]),
            _spread(more), _spread([a["tokens"] for a in after], 0)]))
    return lines


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def met(rows: list[Row]) -> str:
    """Each seed's own number, as one that never met has none and a mean would hide it."""
    limit = max(r["conversations"] for r in rows)
    said = [str(r["met_at"] or f">{limit}") for r in sorted(rows, key=lambda r: int(r["seed"]))]
    return " ".join(said)


def _kept(row: Row) -> float:
    known = row["before"]["facts"]
    return float(row["after"]["facts"] / known) if known else math.nan


def _spread(values: list[float], digits: int = 2) -> str:
    said = f"{mean(values):.{digits}f}"
    return said + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


SHOWN = ("hybrid", "opd, top 8", "opd, sampled token", "hybrid, student's weights", "memory",
         "grpo")
WINDOW = 8


def draw(rows: list[Row], path: Path) -> None:
    """Share of hits among the last eight first replies, mean over seeds, one panel per person."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    people = sorted({row["person"] for row in rows}, key=list(PEOPLE).index)
    figure, panels = plt.subplots(1, len(people), figsize=(4.2 * len(people), 3.4), sharey=True,
                                  squeeze=False, layout="constrained")
    for axes, name in zip(panels[0], people, strict=True):
        for i, method in enumerate(SHOWN):
            curves = [_rates(r["hits"]) for r in rows
                      if (r["person"], r["method"]) == (name, method)]
            if curves:
                middle = [mean(at) for at in zip(*curves, strict=True)]
                axes.plot(range(1, len(middle) + 1), middle, color=f"C{i}",
                          label=f"{method} ({len(curves)})")
        axes.set(title=name, xlabel="conversation", ylim=(-0.03, 1.03))
        axes.legend(frameon=False, fontsize=7)
    panels[0][0].set_ylabel(f"hits of the last {WINDOW} first replies")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _rates(hits: list[bool]) -> list[float]:
    return [mean(hits[max(0, at - WINDOW) : at]) for at in range(1, len(hits) + 1)]


# --- files ---------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _key(row: Row) -> tuple[str, str, int, int]:
    return row["method"], row["person"], row["seed"], row["conversations"]


def _append(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--people", nargs="*", default=["plain", "single", "bullets"],
                        choices=list(PEOPLE))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--conversations", type=int, default=32)
    parser.add_argument("--at-once", type=int, default=8, help="conversations of one round")
    parser.add_argument("--every-fact", type=int, default=2, help="ask one of so many facts")
    parser.add_argument("--out", type=Path, default=Path("runs/learning.jsonl"))
    parser.add_argument("--table", type=Path, help="print the table of this file and run nothing")
    parser.add_argument("--picture", type=Path, help="of that table's file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
