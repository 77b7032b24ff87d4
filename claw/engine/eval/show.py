"""What a person sees of an evaluation: progress while it runs, then the table, or JSON.

Owns: the words, what the command's options mean together.
Does not own: playing (`evaluate`), figures (`score`).
"""

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from claw.config import RunConfig
from claw.engine.eval.evaluate import Asked, Evaluation
from claw.engine.report import read_config
from claw.errors import ClawError, UsageError
from claw.sdk.traces import AttemptTrace

MAX_ROWS = 50
"""tasks in the table; all of them are in summary.json"""


def evaluate(
    words: list[str], *, plugin: str, model: str, n: int, asked: Asked, resume: Path | None,
    as_json: bool,
) -> None:
    """Play an evaluation to its end and print it; Ctrl-C says how to go on."""
    if resume is not None:
        if words or plugin or model or n or asked != Asked():
            raise UsageError("--resume goes on with the settings of its folder",
                             found="other settings beside it", allowed="--resume FOLDER, --json")
        job = Evaluation.resumed(resume)
    else:
        job = Evaluation.new(_config(words, plugin, model, n, asked), asked)
    out = Console(highlight=False, stderr=as_json)
    follow = Follow(job, out)
    try:
        with follow.progress:
            job.play(follow.note, follow.ready)
    except KeyboardInterrupt:
        out.print(f"stopped; go on: claw eval --resume {escape(str(job.run.path))}",
                  soft_wrap=True)
        raise
    found = job.summary()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print(found, out)
    if not found["counted"]:
        raise ClawError("no attempt counts", found=json.dumps(found["failures"] or found["ends"]),
                        do=f"see the traces: {job.file}")


def _config(words: list[str], plugin: str, model: str, n: int, asked: Asked) -> RunConfig:
    if asked.base_url and not model:
        raise UsageError("no model named", do="claw eval --base-url URL --model NAME, the name "
                         "that the endpoint knows")
    if asked.api_key_env and not asked.base_url:
        raise UsageError("--api-key-env has no effect without --base-url")
    count = [f"rollout.n={n}"] if n else []
    if not any(w.startswith("name=") for w in words) and plugin:
        count.append(f"name='eval-{plugin}-{time.strftime('%Y%m%d-%H%M%S')}'")
    config = read_config([*words, *count], plugin, model)
    if not config.plugin_name:
        raise UsageError("no plugin named", do="claw eval --plugin NAME")
    return config


class Follow:
    """Progress: how many attempts have ended, the mean so far."""

    def __init__(self, job: Evaluation, out: Console) -> None:
        self._count = self._counted = self._failed = 0
        self._sum = 0.0
        for trace in job.traces():
            self._add(trace)
        self.progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=out,
            transient=True, disable=not out.is_terminal,
        )
        self._bar = self.progress.add_task(f"{job.plugin.name}: starting", total=None)
        self._name = job.plugin.name

    def ready(self) -> None:
        self._say()

    def note(self, trace: AttemptTrace) -> None:
        self._add(trace)
        self._say()

    def _add(self, trace: AttemptTrace) -> None:
        self._count += 1
        if trace.is_scored and trace.outcome is not None:
            self._counted += 1
            self._sum += trace.outcome
        else:
            self._failed += 1

    def _say(self) -> None:
        mean = f"{self._sum / self._counted:.3f}" if self._counted else "none yet"
        bad = f", {self._failed} not counted" if self._failed else ""
        text = f"{self._name}: {self._count} attempts{bad}, mean reward {mean}"
        self.progress.update(self._bar, description=text)


def _print(found: dict[str, Any], out: Console) -> None:
    table = Table(box=None)
    for column in ("task", "passed", "mean reward", "turns", "failed"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for row in found["per_task"][:MAX_ROWS]:
        table.add_row(
            escape(row["task"]), f"{row['passed']}/{row['counted']}", _number(row["mean_reward"]),
            f"{row['mean_turns']:.1f}", str(row["failed"] or ""),
        )
    out.print(table)
    if len(found["per_task"]) > MAX_ROWS:
        out.print(f"... {len(found['per_task']) - MAX_ROWS} more tasks in summary.json")
    judged = ", ".join(found["judges"]) or "nobody"
    out.print(f"\n{found['tasks']} tasks, {found['counted']} of {found['attempts']} attempts "
              f"count, {found['failed']} failed; outcomes by {escape(judged)}")
    for k, value in found["pass_at"].items():
        out.print(f"pass@{k:<4} {_number(value['value'])}   ({value['tasks']} tasks; an outcome "
                  f"of {found['pass_bar']:g} or more passes)")
    out.print(f"mean reward {_number(found['mean_reward'])}")
    for why, count in found["failures"].items():
        out.print(f"  {count}x {escape(why[:300])}", soft_wrap=True)
    out.print(f"traces      {escape(found['folder'])}/attempts.jsonl", soft_wrap=True)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
