"""Full weights that the real SGLang gets as tensors in shared memory. One engine for the file."""

from pathlib import Path

import pytest
from process_doubles import FakeActor
from test_any_worker import PROMPTS, Served, check_numbers, swap_while_it_runs
from worker_doubles import canary_of, full_version, other_weights_of, plain

from claw.engine.versions import VersionError
from claw.engine.worker import sglang

pytestmark = pytest.mark.timeout(600)
REAL = [pytest.mark.sglang, pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def served(smollm2_dir, sglang_python, tmp_path_factory):
    actor = FakeActor(tmp_path_factory.mktemp("tensors"))
    hello = actor.start(smollm2_dir, {
        "worker": {"kind": "sglang", "slots": 6, "queue": 6, "context": 300, "device": "cpu",
                   "dtype": "float32", "threads": 1},
        "lora": {"rank": 0}, "rollout": {"max_tokens": 64}, "wire": {"heartbeat_s": 0.3},
        "sglang": {"python": sglang_python, "weights": "tensors"},
    }, timeout_s=280)
    yield Served("sglang", smollm2_dir, actor, hello, plain(smollm2_dir))
    actor.close()


class TestRealSglang:
    pytestmark = REAL

    def test_tensors_change_between_tokens_and_what_they_replaced_comes_back(
        self, served, tmp_path
    ):
        model = other_weights_of(served.folder, tmp_path / "other")
        version = full_version(tmp_path / "v1", 1, tmp_path / "other", canary_of(model))
        before = set(Path("/dev/shm").iterdir())
        swap_while_it_runs(served, version, model)
        refused = full_version(tmp_path / "v2", 2, tmp_path / "other", canary_of(served.model))
        served.actor.announce(refused)
        assert "canary" in served.actor.wait("version.refused", number=2, timeout_s=120)["why"]
        served.actor.generate("still", PROMPTS[1], deadline_s=200)
        got, _ = served.actor.arrays("still", timeout_s=200)
        assert set(got["versions"]) == {1}
        check_numbers(model, PROMPTS[1], got)
        served.back_to_the_first()
        served.actor.generate("back", PROMPTS[1], deadline_s=200)
        check_numbers(served.model, PROMPTS[1], served.actor.arrays("back", timeout_s=200)[0])
        assert set(Path("/dev/shm").iterdir()) <= before


def test_weights_for_which_shared_memory_has_no_room_are_refused_before_it_is_full(
    tmp_path, monkeypatch
):
    """Docker gives a container 64 MB of it, and who writes past its end is killed."""
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(1000))
    monkeypatch.setattr(sglang, "SHARED", tmp_path)
    monkeypatch.setattr(sglang, "SPARE", 1 << 60)
    with pytest.raises(VersionError, match=r"no room(?s:.)*bytes free(?s:.)*sglang.weights=folder"):
        sglang.shared_buckets([file])
