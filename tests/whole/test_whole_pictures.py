"""Screens of the gui plugin's shape through a whole run: seen, sampled, judged, trained, served.

Actor, worker and trainer are processes; the model is random. Every number is compared with
transformers' own processor and model over the pictures that the journal holds.
"""

import asyncio
import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from claw_env_gui import observe
from claw_env_gui.settings import GuiConfig
from peft import PeftModel
from PIL import Image
from seeing import Looking, encoded, picture, plain, plain_logps
from tiny import tiny_qwen3_vl

from claw import config as settings
from claw.engine.actor.journal import Journal
from claw.engine.launch import Launcher
from claw.engine.rundir import RunDir
from claw.engine.runner.engine import WireEngine
from claw.engine.runner.episodes import Episodes
from claw.records import Turn, TurnState
from claw.sdk import Case, EnvTurn, Message, Task, Verdict, registry
from claw.sdk.doubles import DoublePlugin

sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "trainer"))
import truth

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SEEN = GuiConfig(observation="screenshot", history=2)
HINT = "Look at the window in front before you click."
LIMIT_S = 120.0


def screen(task: int, turn: int) -> bytes:
    """Each its own; those of one task have one size, and so prompts of two tasks other ids."""
    return encoded(picture(10 * task + turn, 64, 40 + 8 * task))


class Screens:
    """A desktop of pictures: one at the start, another after each action, four in all."""

    def __init__(self, task: Task) -> None:
        self.tools: list[dict[str, Any]] = []
        self.takes_pictures = False
        self.number = int(task.id.rpartition("-")[2])
        self.turn = 0

    def screen(self) -> observe.Screen:
        return observe.Screen(screen(self.number, self.turn), "")

    def start(self) -> list[Message]:
        assert self.takes_pictures, "the runner says that the model sees"
        return observe.first("Save the note.", self.screen(), SEEN)[1:]

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        self.turn += 1
        return [observe.message("", self.screen(), SEEN)] if self.turn < 3 else None

    def shown(self, messages: list[Message]) -> list[Message]:
        return observe.shown(messages, SEEN.history)

    def close(self) -> None:
        pass


class Votes:
    """A directive signal for each turn, an outcome that differs inside a group."""

    name = "votes"

    def __init__(self) -> None:
        self.episodes = 0

    async def judge(self, case: Case) -> Verdict:
        self.episodes += case.final
        outcome = float(self.episodes % 2) if case.final else None
        return Verdict(-1, (-1,), outcome, hints=(HINT,), reason="nothing happened")


def config_of(model: Path, runs: Path, judge: str) -> settings.RunConfig:
    return settings.parse({
        "plugin_name": "double", "model": str(model), "runs": str(runs), "name": "pictures",
        "judge": {"kind": judge}, "credit": {"kind": "outcome"}, "lora": {"rank": 4},
        "rollout": {"n": 2, "parallel": 2, "max_tokens": 8, "max_turns": 5},
        "worker": {"slots": 4, "context": 512}, "wire": {"heartbeat_s": 0.5},
        "train": {"batch_size": 8, "max_wait_s": 3.0, "lr": 1e-3, "max_steps": 2},
        "plugin": {"double": {"tasks": 2}},
    })


@contextmanager
def processes(config: settings.RunConfig, model: Path) -> Iterator[Launcher]:
    run = RunDir.create(config)
    run.hold()
    launcher = Launcher(config, run, model, hosts=False)
    try:
        launcher.start()
        launcher.wait_ready()
        yield launcher
    finally:
        launcher.stop()
        run.release()


async def play(launcher: Launcher, config: settings.RunConfig) -> None:
    plugin = registry.from_object("double", DoublePlugin(make_env=Screens, judges=[Votes()]))
    engine = WireEngine(launcher.runners, plugin="double", heartbeat_s=0.5)
    await engine.open()
    try:
        await Episodes(engine, plugin, config).once("train")
    finally:
        await engine.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Two passes over two tasks; the second is played by a version that the first has trained."""
    runs = tmp_path_factory.mktemp("runs")
    model = tiny_qwen3_vl(runs / "model", seed=2)
    config = config_of(model, runs, "votes")
    with processes(config_of(model, runs, "none"), model) as launcher:
        asyncio.run(play(launcher, config))
        until, served = time.monotonic() + LIMIT_S, 0
        while served < 1 and time.monotonic() < until:
            time.sleep(0.2)
            served = int(launcher.status().get("served_version") or 0)
        assert served >= 1, launcher.children["trainer"].tail()
        asyncio.run(play(launcher, config))
        path = launcher.run.path
    return SimpleNamespace(model=model, path=path, config=config)


@pytest.fixture
def journal(run: SimpleNamespace) -> Iterator[Journal]:
    found = Journal(run.path, read_only=True)
    yield found
    found.close()


def images_of(journal: Journal, turn: Turn) -> list[Image.Image]:
    return [Image.open(io.BytesIO(journal.picture(d) or b"")) for d in turn.images]


def all_turns(journal: Journal) -> list[Turn]:
    return [t for t in journal.turns(*TurnState) if t.completion is not None]


def test_each_turn_saw_its_newest_screens_and_each_screen_is_stored_once(
    run: SimpleNamespace, journal: Journal
) -> None:
    turns = all_turns(journal)
    assert [len(t.images) for t in turns if t.index == 0] == [1] * 8
    assert {len(t.images) for t in turns if t.index > 0} == {2}
    assert journal.read("SELECT COUNT(*) FROM pictures") == [(6,)]
    assert "base64" not in str(turns) and not any("base64" in t for (t,) in journal.read(
        "SELECT body FROM texts"))
    screens = {screen(n, t) for n in range(2) for t in range(3)}
    assert {journal.picture(d) for t in turns for d in t.images} == screens


def test_sampled_log_probs_are_those_of_transformers_for_the_first_weights_and_the_trained(
    run: SimpleNamespace, journal: Journal
) -> None:
    models = {v.number: PeftModel.from_pretrained(plain(run.model), v.path).eval().get_base_model()
              for v in journal.versions() if v.number}
    models[0] = plain(run.model)
    seen = dict.fromkeys(models, 0)
    for turn in all_turns(journal):
        c = turn.completion
        assert c is not None
        [number] = set(c.versions.tolist())
        lm = models[number]
        ids = [*turn.prompt_ids.tolist(), *c.ids.tolist()]
        rows = plain_logps(lm, run.model, ids, images_of(journal, turn))
        rows = rows[len(turn.prompt_ids) - 1 :][np.arange(len(c.ids)), c.ids]
        np.testing.assert_allclose(c.logps, rows, atol=1e-4)
        seen[number] += 1
    assert seen[0] >= 12 and sum(seen.values()) == 24 and seen[0] < 24


def test_the_first_steps_loss_is_that_of_the_formulas_over_transformers_forward(
    run: SimpleNamespace, journal: Journal
) -> None:
    [(lease,)] = journal.read("SELECT id FROM leases WHERE state='acked' AND version=1")
    samples = [s for s, _, of in journal.samples("trained") if of == lease]
    assert len(samples) == 8 and all(s.images and s.hints for s in samples)
    shown = {}
    for s in samples:
        turn = journal.turn(s.turn_id)
        assert turn is not None
        shown |= {tuple(ids.tolist()): images_of(journal, turn) for ids in (s.prompt_ids, *s.hints)}
    lm = plain(run.model).double()  # an adapter begins as nothing
    looks = [Looking(lm, run.model, shown) for _ in range(3)]
    with torch.no_grad():
        wanted = float(truth.loss(*looks, samples, run.config))
    lines = [line for line in _metrics(run.path) if line.get("train/version") == 1.0]
    assert lines[0]["train/loss"] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    assert lines[0]["mismatch/logp_abs_max"] < 1e-4 and lines[0]["train/opd_samples"] == 8


def _metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
