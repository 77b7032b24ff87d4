"""`claw train --plugin swe`: eight repositories at once, graded in fresh containers, trained, gone.

The model is too small to mend anything. What is checked is the machinery: traces end with an
outcome of the tests, each is one episode with the ids that were sampled, leases are settled, no
container is left.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from containers import Containers
from system import System, until

from claw.records import End, TurnState

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(600)]

N = 4
SETTINGS = (
    f"rollout.n={N}", "rollout.parallel=8", "rollout.max_turns=2", "rollout.max_tokens=24",
    "worker.context=1536", "worker.slots=8", "lora.rank=4", "train.batch_size=4",
    "train.max_wait_s=20", "train.lr=1e-5", "plugin.swe.hints=true",
    "wire.heartbeat_s=0.5", "gate.enabled=false",
    "plugin.swe.memory_mb=512", "plugin.swe.eval_share=0.0",
    "plugin.swe.only=['parse__short-fractions','pathspec__match-file-none']",
)
TRAINED_S = 420.0


@pytest.fixture(scope="module")
def run(
    needs_docker: None, smollm2_dir: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("swe")
    system = System(folder, smollm2_dir, name="swe")
    words = ["train", "--plugin", "swe", "--model", str(smollm2_dir), f"runs='{folder}'",
             "name='swe'", f"plugin.swe.trajectories='{folder / 'atif'}'", *SETTINGS]
    system.launch(*words)
    held = Containers(system)

    def is_trained() -> bool:
        held.look()
        return system.steps() >= 1

    try:
        assert until(is_trained, TRAINED_S, 0.5), system.said()
    finally:
        system.stop()
    system.most, system.left = held.most, held.left()  # type: ignore[attr-defined]
    yield system


def test_eight_episodes_ran_at_once_and_nothing_is_left_in_the_engine(run: Any) -> None:
    assert run.most >= 8
    assert run.left == []


def test_finished_episodes_have_an_outcome_of_the_tests(run: System) -> None:
    with run.journal() as journal:
        traces = [journal.trace(id) for (id,) in journal.read(
            "SELECT id FROM traces WHERE ended IS NOT NULL")]
    played = [t for t in traces if t.end not in (End.CANCELLED, End.FAILED)]
    assert len(played) >= N and {t.failure for t in played} == {""}
    assert all(0.0 <= t.outcome <= 1.0 for t in played)
    lengths = run.rows("SELECT COUNT(*) FROM turns WHERE trace_id != '' GROUP BY trace_id")
    assert max(n for (n,) in lengths) == 2, "an episode is one trace"


def test_trained_samples_hold_what_was_sampled(run: System) -> None:
    with run.journal() as journal:
        trained = journal.turns(TurnState.TRAINED)
        assert trained
        for turn in trained:
            assert {s.judge for s in journal.signals(turn.id)} <= {"checker:swe", "outcome"}
        for sample, _, _ in journal.samples("trained"):
            turn = journal.turn(sample.turn_id)
            assert np.array_equal(sample.reply_ids, turn.completion.ids)
            assert np.array_equal(sample.logps, turn.completion.logps)
            assert sample.mask.any()


def test_trajectories_were_written(run: System) -> None:
    made = [json.loads(p.read_text()) for p in (run.runs / "atif").glob("*.json")]
    assert len(made) >= N
    assert any(m["extra"].get("status") == "no" for m in made)
