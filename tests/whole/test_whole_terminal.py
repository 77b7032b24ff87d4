"""`claw train --plugin terminal`: many sandboxes at once, graded, judged, trained, gone after.

The model is too small to solve much. What is checked is the machinery: traces end with an outcome,
samples hold exactly what was sampled, credit compares attempts at one task, leases are settled.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from containers import Containers
from system import System, until

from claw.records import End, TurnState

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(600)]

N = 4
SETTINGS = (
    f"rollout.n={N}", "rollout.parallel=4", "rollout.max_turns=3", "rollout.max_tokens=48",
    "worker.context=1024", "worker.slots=4", "lora.rank=4", "train.batch_size=8",
    "train.max_wait_s=20", "train.lr=1e-5", "plugin.terminal.level=1", "plugin.terminal.hints=true",
    "wire.heartbeat_s=0.5", "gate.enabled=false",
)
STEPS = 2
TRAINED_S = 420.0


@pytest.fixture(scope="module")
def run(
    needs_docker: None, smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("terminal")
    system = System(folder, smollm2_dir, name="terminal")
    words = ["train", "--plugin", "terminal", "--model", str(smollm2_dir), f"runs='{folder}'",
             "name='terminal'", f"plugin.terminal.trajectories='{folder / 'atif'}'", *SETTINGS]
    system.launch(*words)
    held = Containers(system)

    def is_trained() -> bool:
        held.look()
        return system.steps() >= STEPS

    try:
        assert until(is_trained, TRAINED_S, 0.5), system.said()
    finally:
        system.stop()
    system.most, system.left = held.most, held.left()  # type: ignore[attr-defined]
    yield system


def test_several_sandboxes_ran_at_once_and_nothing_is_left_in_the_engine(run: Any) -> None:
    assert run.most > 1
    assert run.left == []


def test_every_finished_episode_has_an_outcome_of_its_tests(run: System) -> None:
    with run.journal() as journal:
        traces = [journal.trace(id) for (id,) in journal.read(
            "SELECT id FROM traces WHERE ended IS NOT NULL")]
    played = [t for t in traces if t.end not in (End.CANCELLED, End.FAILED)]
    assert len(played) >= N
    assert all(-1.0 <= t.outcome <= 1.0 for t in played)
    assert {t.failure for t in played} == {""}


def test_each_turn_was_judged_by_the_checker_and_says_so(run: System) -> None:
    with run.journal() as journal:
        trained = journal.turns(TurnState.TRAINED)
        assert trained
        for turn in trained:
            signals = journal.signals(turn.id)
            assert {s.judge for s in signals} <= {"checker:commands", "outcome"}
            assert any(s.vote in (1, -1) for s in signals)
    told = run.claw("why", trained[0].id, "--run", str(run.run)).stdout
    assert "checker:commands" in told and "trained:v" in told


def test_samples_hold_what_was_sampled_and_advantages_compare_attempts(run: System) -> None:
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    with run.journal() as journal:
        samples = [s for state in ("trained", "queued") for s, _, _ in journal.samples(state)]
        assert samples
        for sample in samples:
            turn = journal.turn(sample.turn_id)
            assert np.array_equal(sample.reply_ids, turn.completion.ids)
            assert np.array_equal(sample.logps, turn.completion.logps)
            assert sample.mask.shape == sample.reply_ids.shape and sample.mask.any()
            assert len({*sample.advantages[sample.mask]}) == 1, "one advantage per turn"
            if sample.has_advantage:
                group = journal.trace(sample.trace_id).group
                groups[group][sample.trace_id] = float(sample.advantages[0])
    for advantages in groups.values():
        if len(advantages) == N:
            assert abs(statistics.fmean(advantages.values())) < 1e-4
            assert statistics.pstdev(advantages.values()) == pytest.approx(1.0, abs=1e-3)


def test_trajectories_were_written(run: System) -> None:
    made = [json.loads(p.read_text()) for p in (run.runs / "atif").glob("*.json")]
    assert len(made) >= N
    assert all(m["steps"][0]["source"] == "system" for m in made)
    assert any("fraction" in m["extra"] for m in made)
