"""Full weights through a group of the trainer and the real SGLang: gloo here, NCCL on a GPU.

One engine for the file; every test leaves it with its first weights.
"""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import faulty_sender
import pytest
from process_doubles import FakeActor
from test_any_worker import PROMPTS, Served, check_numbers, faulty, swap_while_it_runs
from worker_doubles import canary_of, full_version, other_weights_of, plain

from claw.engine.trainer.broadcasts import Broadcasts
from claw.engine.trainer.depot import Depot

pytestmark = [pytest.mark.sglang, pytest.mark.real, pytest.mark.slow, pytest.mark.nightly,
              pytest.mark.timeout(900)]
LAYER = "model.layers.7.mlp.down_proj.weight"
GROUP_S = 10.0


@pytest.fixture(scope="module")
def depot(tmp_path_factory):
    """The trainer's depot, whose senders do one thing wrong when the file `fault` says so."""
    folder = tmp_path_factory.mktemp("trainer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAW_SENDER", str(folder / "fault"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent),
                                                    os.environ.get("PYTHONPATH", "")]))
        patch.setattr(Broadcasts, "module", faulty_sender.__name__)
        made = Depot(folder / "versions", f"ipc://{folder}/weights")
        yield made
        made.close()


@pytest.fixture(scope="module")
def served(depot, smollm2_dir, sglang_python, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("group")
    actor = FakeActor(scratch)
    actor.addresses["weights"] = f"ipc://{depot.folder.parent}/weights"
    hello = actor.start(smollm2_dir, {
        "worker": {"kind": "sglang", "slots": 6, "queue": 6, "context": 300, "device": "cpu",
                   "dtype": "float32", "threads": 1},
        "lora": {"rank": 0}, "rollout": {"max_tokens": 64}, "wire": {"heartbeat_s": 0.3},
        "sglang": {"python": faulty(scratch, sglang_python), "weights": "group",
                   "group_s": GROUP_S},
    }, timeout_s=280)
    yield Served("sglang", smollm2_dir, actor, hello, plain(smollm2_dir))
    actor.close()


@pytest.fixture(scope="module")
def other(served, depot):
    """Other weights, and a version of them that lies with the trainer."""
    source = depot.folder.parent / "other"
    model = other_weights_of(served.folder, source)
    folder = depot.folder / "default" / "default" / "1"
    return model, full_version(folder, 1, source, canary_of(model))


def test_a_version_comes_through_the_group_and_is_scored_as_transformers_does(
    served, depot, other
):
    model, version = other
    try:
        swap_while_it_runs(served, version, model, max_tokens=100)
        assert nothing_is_left(depot)
    finally:
        served.back_to_the_first()


def nothing_is_left(depot: Depot) -> bool:
    """Also of a sender that hangs: it is killed some seconds after it was told to end."""
    until = time.monotonic() + 30
    while depot.broadcasts.running and time.monotonic() < until:
        time.sleep(0.1)
    return not depot.broadcasts.running and not list(depot.broadcasts.scratch.path.glob("*.json"))


@pytest.mark.parametrize(("fault", "words"), [
    (f"lack {LAYER}", ("offers other tensors", f"{LAYER}: is missing")),
    (f"zero {LAYER}", ("does not hold the version's tensors", LAYER, "instead of")),
    ("die joining", ("does not get into the trainer's group",)),
    ("die 1", ("Failed to receive weights",)),
    ("freeze 0", ("Failed to receive weights", "imed out")),
], ids=["left out", "other bytes", "dies early", "dies sending", "hangs sending"])
def test_a_sender_that_fails_is_refused_with_its_reason_and_the_old_version_serves_on(
    served, depot, other, fault, words
):
    file = depot.folder.parent / "fault"
    file.write_text(fault)
    served.actor.generate(f"during {fault}", PROMPTS[1], max_tokens=30, deadline_s=400)
    served.actor.announce(other[1])
    try:
        why = served.actor.wait("version.refused", number=1, timeout_s=240)["why"]
    finally:
        file.unlink()
    for word in words:
        assert word in why, why
    got, _ = served.actor.arrays(f"during {fault}", timeout_s=240)
    assert set(got["versions"]) == {0}
    check_numbers(served.model, PROMPTS[1], got)


def test_a_version_that_the_trainer_removed_meanwhile_is_refused(served, depot, other, tmp_path):
    folder = depot.folder / "default" / "default" / "1"
    shutil.move(folder, tmp_path / "pulled")  # the worker has it, as one on another host would
    served.actor.announce(replace(other[1], path=str(tmp_path / "pulled")))
    why = served.actor.wait("version.refused", number=1, timeout_s=240)["why"]
    shutil.move(tmp_path / "pulled", folder)
    assert "the trainer does not send the version" in why and "has no manifest" in why
    assert nothing_is_left(depot)
