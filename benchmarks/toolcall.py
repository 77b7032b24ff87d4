"""`python -m benchmarks.toolcall`: does toolcall learn, next to a frozen policy and a control?

    python -m benchmarks.toolcall --seeds 0 1 2 3 4
    python -m benchmarks.toolcall --seeds 0 --policies trained --steps 4 --held 32 train.lr=3e-4
    python -m benchmarks.toolcall --collect runs/toolcall-*.json    print the table of finished runs

Per seed `claw train --plugin toolcall` runs the whole system for `--steps` steps, or until every
attempt gets the same reward, once as it is
(trained) and once with advantages that are drawn by lot (random, `benchmarks.control`). Then the
held-out tasks are played with the weights of the last version, and with none (frozen): the same
tasks, the same seeds of sampling. The judge, of training and of the table, is the plugin's checker
`toolcall`: exact comparison by reasoning-gym. No model judges anything here.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.control import installed
from claw import config as settings
from claw.config import RunConfig
from claw.engine import models
from claw.engine.actor.chat import Chat
from claw.engine.actor.journal import Journal
from claw.engine.actor.why import versions
from claw.engine.versions import check_version
from claw.engine.worker.backend import Chunk, Done, Generate, load_at_once
from claw.engine.worker.transformers import TransformersBackend, make
from claw.errors import ClawError
from claw.records import Message, Sampling, Version
from claw.sdk import registry
from claw.sdk.testing.attempt import Attempt

ROOT = Path(__file__).parent.parent
POLICIES = ("frozen", "trained", "random")
RUN_S = 3600.0
"""of one run; the aim is 20 minutes"""
SOLVED = 256
"""turns in groups that all got the same, after a version: it has learned what the task can teach"""


# --- training -----------------------------------------------------------------------------------


def train(name: str, seed: int, o: argparse.Namespace) -> tuple[Version | None, float]:
    """Run the system until its last step is published; return that version and the seconds."""
    run = o.runs / f"toolcall-{name}-{seed}"
    plugin = "control" if name == "random" else "toolcall"
    words = [f"runs='{o.runs}'", f"name='{run.name}'", f"seed={seed}",
             f"plugin.{plugin}.seed={seed}", f"train.max_steps={o.steps}", *o.overrides]
    if name == "random":
        words.append("credit.kind=random")
    started = time.monotonic()
    with installed(o.runs) as path, (o.runs / f"{run.name}.out").open("wb") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "claw", "train", "--plugin", plugin, "--model", o.model, *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            last = _last(run, o.steps, launcher)
        finally:
            launcher.terminate()  # Ctrl-C is ignored below a shell's background job
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(120)
    return last, time.monotonic() - started


def _last(run: Path, steps: int, launcher: subprocess.Popen[bytes]) -> Version:
    end, seen = time.monotonic() + RUN_S, -1
    is_over = False
    while time.monotonic() < end and not is_over:
        time.sleep(2)
        is_over = launcher.poll() is not None  # the versions of its end are looked at too
        made = [v for v in _versions(run) if v.number > 0]
        if len(made) > seen:
            seen = len(made)
            print(f"  {run.name}: version {seen} of {steps}", flush=True)
        if seen >= steps:
            return made[-1]
        if made and _is_solved(run, made[-1]):
            print(f"  {run.name}: every attempt of a group gets the same: nothing is left to learn")
            return made[-1]
    raise SystemExit(f"{run.name} did not come to step {steps}; see {run}.out")


def _is_solved(run: Path, newest: Version) -> bool:
    """Whether the version's attempts no longer differ: no group of theirs waits for a step."""
    journal = Journal(run, read_only=True)
    [(same, others)] = journal.read(
        "SELECT SUM(reason = 'constant_group'), SUM(state = 'queued') FROM turns WHERE created > ?",
        newest.created)
    journal.close()
    return (same or 0) >= SOLVED and not others


def _versions(run: Path) -> list[Version]:
    try:
        return list(versions(run))
    except (ClawError, sqlite3.OperationalError):  # the journal, or its tables, are not there yet
        return []


# --- measuring ----------------------------------------------------------------------------------


class Player:
    """Held-out tasks, played with the worker's own sampling, all at once."""

    def __init__(self, config: RunConfig, version: Version | None, seed: int) -> None:
        folder = models.resolve(config.model)
        self._config, self._seed = config, seed
        self._backend: TransformersBackend = make(config, folder)
        if version is not None:
            load_at_once(self._backend, version, check_version(Path(version.path)))
        self._chat = Chat(folder)
        self._plugin = registry.load("toolcall")
        self._num_asked = 0

    async def play(self, num: int) -> dict[str, float]:
        """Return the rates over the first `num` held-out tasks."""
        values = self._plugin.settings(self._config.plugin.get("toolcall", {}))
        tasks = list(self._plugin.hook.claw_tasks(config=values, split="eval"))[:num]
        attempts = [Attempt(self._plugin, values, task) for task in tasks]
        for attempt in attempts:
            await attempt.start()
        going = attempts
        for _ in range(self._config.rollout.max_turns):
            replies = self._answers([a.played.messages for a in going])
            said = [await a.say(text) for a, text in zip(going, replies, strict=True)]
            going = [a for a, more in zip(going, said, strict=True) if more is not None]
        outcomes = [float(await a.judge() or 0.0) for a in attempts]
        calls = [a.env.toolbox.num_calls for a in attempts]
        for attempt in attempts:
            await attempt.close()
        return {"right": statistics.fmean(o >= 1 for o in outcomes),
                "reward": statistics.fmean(outcomes), "calls": statistics.fmean(calls)}

    def _answers(self, asked: Sequence[Sequence[Message]]) -> list[str]:
        r, ids = self._config.rollout, {}
        for messages in asked:
            self._num_asked += 1
            name = f"ask{self._num_asked}"
            sampling = Sampling(r.temperature, r.top_p, r.top_k, r.max_tokens,
                                seed=self._seed * 1_000_000 + self._num_asked)
            self._backend.submit(Generate(
                name, self._chat.prompt(messages).ids, sampling, self._chat.stop_ids, "", "default",
                "default", time.monotonic() + RUN_S,
            ))
            ids[name] = []
        ended = 0
        while ended < len(ids):
            for event in self._backend.step():
                if isinstance(event, Chunk):
                    ids[event.id] += event.arrays["ids"].tolist()
                ended += isinstance(event, Done)
        stops = self._chat.stop_ids
        return [self._chat.decode([i for i in reply if i not in stops]) for reply in ids.values()]


def measure(
    policy: str, version: Version | None, seed: int, o: argparse.Namespace
) -> dict[str, Any]:
    """Play the held-out tasks of a seed with a version, or with the model as it came."""
    base = registry.load("toolcall").hook.claw_defaults()
    words = (f"seed={seed}", f"plugin.toolcall.seed={seed}", f"worker.queue={o.held}", *o.overrides)
    config = settings.load(None, (*words, f"model='{o.model}'"), base=base)
    return asyncio.run(Player(config, version, seed).play(o.held)) | {
        "policy": policy, "seed": seed, "held": o.held, "judge": "the checker of the plugin"}


# --- the table ----------------------------------------------------------------------------------


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line a policy: mean and spread over seeds; markdown."""
    names = ("policy", "seeds", "right, mean", "std", "least to most", "reward", "calls", "minutes")
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for policy in POLICIES:
        mine = [r for r in rows if r["policy"] == policy]
        if mine:
            right = [r["right"] for r in mine]
            means = [statistics.fmean(r[k] for r in mine) for k in ("reward", "calls", "seconds")]
            lines.append(
                f"| {policy} | {len(mine)} | {statistics.fmean(right):.2f} "
                f"| {statistics.pstdev(right):.2f} | {min(right):.2f} to {max(right):.2f} "
                f"| {means[0]:.2f} | {means[1]:.2f} | {means[2] / 60:.1f} |")
    return lines


def main() -> None:
    o = _options()
    o.runs.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in o.collect]
    for seed in () if o.collect else o.seeds:
        for policy in o.policies:
            version, seconds = (None, 0.0) if policy == "frozen" else train(policy, seed, o)
            row = measure(policy, version, seed, o) | {"seconds": seconds}
            (o.runs / f"toolcall-{policy}-{seed}.json").write_text(json.dumps(row))
            print(json.dumps(row), flush=True)
            rows.append(row)
    print("\n".join(table(rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="settings of the runs, a.b=c")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--held", type=int, default=48, help="held-out tasks")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--runs", type=Path, default=(ROOT / "runs"))
    parser.add_argument("--collect", type=Path, nargs="*", default=[], help="rows of earlier runs")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    main()
