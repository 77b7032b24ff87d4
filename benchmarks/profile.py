"""`python -m benchmarks.profile`: where the time of a training step goes, and how it grows.

One process, the trainer's own step with the demo's settings; replies and hinted prompts are random
ids. Reported per part: seconds of the fastest of `--repeats` steps. `--picture FILE` draws it.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claw_env_personal.demo.__main__ import RECIPE
from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from claw import config as settings
from claw import kernels
from claw.config import RunConfig
from claw.engine import models
from claw.engine.trainer import model, score, step, targets
from claw.engine.trainer.optim import Optimiser
from claw.records import Sample, Version

PROMPT, HINT, REPLY = 48, 16, 64
"""tokens: as in the demo's first replies"""
PARTS = ("hinted teacher", "student's forward", "scores and overlap", "targets", "loss",
         "backward", "optimiser", "rest")
LOSS = ("loss.subset=student", "loss.gap_weight=student")
CASES: dict[str, tuple[int, tuple[str, ...]]] = {
    "hybrid, 4 replies": (4, ()),
    "hybrid, 8": (8, ()),
    "hybrid, 16": (16, ()),
    "hybrid, 32": (32, ()),
    "opd, 16": (16, ("train.method=opd", "loss.w_rl=0")),
    "grpo, 16": (16, ("train.method=grpo", *LOSS)),
    "hybrid, 16, checkpointing": (16, ("train.gradient_checkpointing=true",)),
}
console = Console(highlight=False, width=140)
Book = dict[str, float]


def main() -> None:
    o = _options()
    console.print(f"{describe()}, load {os.getloadavg()[0]:.1f} before the run; {o.model}")
    rows = {}
    # the last one changes how memory is given back, for the rest of the process
    for name, (num_samples, words) in CASES.items():
        rows[name] = measure(o.model, num_samples, words, o.repeats, o.seed)
        console.print_json(json.dumps({"case": name, **rows[name]}))
    table = Table("step", *PARTS, "all, s")
    for name, book in rows.items():
        table.add_row(name, *(f"{book.get(part, 0):.2f}" for part in PARTS),
                      f"{sum(book.values()):.2f}")
    console.print(table)
    if o.picture:
        draw(rows, o.picture)


def measure(name: str, num_samples: int, words: tuple[str, ...], repeats: int, seed: int) -> Book:
    """Seconds of each part of the fastest step, after one that is not counted."""
    config = settings.load(RECIPE, (f"seed={seed}", *words))
    policy = model.load(models.resolve(name), config)
    optim = Optimiser(policy.parameters, config.train)
    samples = [_sample(i, seed, config) for i in range(num_samples)]
    books = []
    for _ in range(repeats + 1):
        book: Book = defaultdict(float)
        started = time.perf_counter()
        with _timed(policy, optim, book):
            done = step.run(policy, optim, samples, config,
                            version=Version("default", "default", 0, None, ""))
        assert not done.skipped, done.skipped
        book["rest"] = time.perf_counter() - started - sum(book.values())
        books.append(dict(book))
    return min(books[1:], key=lambda book: sum(book.values()))


@contextmanager
def _timed(policy: model.Policy, optim: Optimiser, book: Book) -> Iterator[None]:
    """The parts of a step, each in place of itself with a clock around it."""
    with ExitStack() as stack:
        for owner, attribute, part in (
            (score, "teacher", "hinted teacher"), (policy, "student", "student's forward"),
            (targets, "see", "scores and overlap"), (targets, "make", "targets"),
            (kernels, "hybrid_loss", "loss"), (torch.Tensor, "backward", "backward"),
            (optim, "clip", "optimiser"), (optim, "step", "optimiser"),
        ):
            stack.enter_context(_clocked(owner, attribute, part, book))
        yield


@contextmanager
def _clocked(owner: Any, attribute: str, part: str, book: Book) -> Iterator[None]:
    is_own = attribute in vars(owner)
    inner = getattr(owner, attribute)

    def clocked(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            book[part] += time.perf_counter() - started

    setattr(owner, attribute, clocked)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, attribute, inner)
        else:
            delattr(owner, attribute)


def _sample(i: int, seed: int, config: RunConfig) -> Sample:
    """One reply; every second one has a hint, as about half of the demo's have."""
    rng = np.random.default_rng([seed, i])

    def ids(count: int) -> np.ndarray:
        return rng.integers(100, 40_000, count).astype(np.int32)

    prompt = ids(PROMPT)
    hints = (np.concatenate([prompt, ids(HINT)]),) if i % 2 == 0 else ()
    return Sample(
        f"sample_{i}", f"turn_{i}", f"trace_{i}", "default", "default", prompt, ids(REPLY),
        np.full(REPLY, -9, np.float32), np.ones(REPLY, bool),
        np.full(REPLY, 1.0 if i % 3 else -1.0, np.float32), np.zeros(REPLY, np.int32),
        config.rollout.temperature, has_advantage=True, hints=hints,
    )


def draw(rows: dict[str, Book], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    names, colors = list(rows), plt.get_cmap("tab10")
    left = np.zeros(len(names))
    for i, part in enumerate(PARTS):
        seconds = np.array([rows[name].get(part, 0.0) for name in names])
        axes.barh(names, seconds, left=left, label=part, color=colors(i))
        left += seconds
    axes.invert_yaxis()
    axes.set(xlabel="seconds of a step", title="where the time of a training step goes")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
