"""`claw train --plugin gui`: desktops, their trees as text, scored, judged, trained, gone after.

The model is random. What is checked is the machinery: screens reach it as text, old ones leave the
prompt, traces end with the outcome of the task's own checks, steps are taken, nothing is left.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from containers import Containers
from system import System, until
from tiny import tiny_llama

from claw.records import End, TurnState

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(600)]

SETTINGS = (
    # a group of one: a random model solves nothing, and equal outcomes would teach nothing
    "rollout.n=1", "rollout.parallel=2", "rollout.max_turns=4", "rollout.max_tokens=16",
    "worker.context=4096", "worker.slots=2", "lora.rank=4", "train.batch_size=4",
    "train.max_wait_s=20", "wire.heartbeat_s=0.5", "gate.enabled=false", "plugin.gui.history=1",
    "plugin.gui.max_tree_lines=12", "plugin.gui.max_tree_chars=600", "plugin.gui.settle_s=0.5",
    "plugin.gui.max_parse_errors=3",
)
TRAINED_S = 300.0


@pytest.fixture(scope="module")
def run(needs_desktop: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("gui")
    model = tiny_llama(folder / "model", seed=4, max_position_embeddings=4096)
    system = System(folder, model, name="gui")
    system.launch("train", "--plugin", "gui", "--model", str(model), f"runs='{folder}'",
                  "name='gui'", f"plugin.gui.trajectories='{folder / 'seen'}'", *SETTINGS)
    held = Containers(system)

    def is_trained() -> bool:
        held.look()
        return bool(system.count("turns WHERE state = 'trained'"))

    try:
        assert until(is_trained, TRAINED_S, 0.5), system.said()
    finally:
        system.stop()
    system.most, system.left = held.most, held.left()  # type: ignore[attr-defined]
    yield system


def test_a_desktop_ran_and_nothing_is_left_in_the_engine(run: Any) -> None:
    assert run.most >= 1 and run.left == []


def test_traces_end_with_the_outcome_of_the_tasks_checks(run: System) -> None:
    with run.journal() as journal:
        traces = [journal.trace(id) for (id,) in journal.read(
            "SELECT id FROM traces WHERE ended IS NOT NULL")]
    played = [t for t in traces if t.end not in (End.CANCELLED, End.FAILED)]
    assert played and {t.failure for t in played} == {""}
    assert {t.judge for t in played} == {"checker:screen"}
    assert all(-1.0 <= t.outcome <= 1.0 for t in played)


def test_trained_turns_saw_one_screen_as_text_and_hold_what_was_sampled(run: System) -> None:
    with run.journal() as journal:
        trained = journal.turns(TurnState.TRAINED)
        samples = {s.turn_id: s for s, _, _ in journal.samples("trained")}
    assert trained
    for turn in trained:
        said = [str(m["content"]) for m in turn.messages if m["role"] == "user"]
        assert said[0].startswith("Task: ")
        assert ["The screen:\nWindows: " in text for text in said] == [
            *[False] * (len(said) - 1), True]
        sample = samples[turn.id]
        assert np.array_equal(sample.reply_ids, turn.completion.ids)
        assert sample.mask.any() and sample.has_advantage


def test_a_trajectory_of_screens_was_written(run: System) -> None:
    folders = list((run.runs / "seen").iterdir())
    assert all((f / "step_0.png").read_bytes()[:4] == b"\x89PNG" for f in folders)
    lines = [json.loads(line) for f in folders if (f / "traj.jsonl").exists()
             for line in (f / "traj.jsonl").read_text().splitlines()]
    assert lines and all(line["info"]["kind"] in ("ok", "unreadable", "failed", "end")
                         for line in lines)
