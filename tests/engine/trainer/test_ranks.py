"""Several ranks train what one rank trains: real processes over gloo, some of them under torchrun.

What is compared: losses, gradient norms and metrics of every step, and the weights of the last
version. The ranks add float32 numbers in another order.
"""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import rank_group
import torch
from bench import config, lease, trainer
from safetensors.torch import load_file
from some_samples import batch
from trainer_doubles import FakeActor, Process

from claw.records import Sample, Update

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOSS = 2e-6
WEIGHTS = 2e-5
"""AdamW divides a gradient by its size: where that is all but 0, other roundings show. It is a
fiftieth of one step of lr 1e-3."""
STEPS = 5


@dataclass
class Run:
    """What a run came to."""

    updates: list[Update]
    weights: dict[str, torch.Tensor]


def batches(sizes: tuple[int, ...] = (4, 4, 1, 4, 4)) -> list[list[Sample]]:
    return [batch(n, seed=100 + 10 * i) for i, n in enumerate(sizes)]


def values(lora: int = 0, **sections: Any) -> dict[str, Any]:
    train = {"batch_size": 4, "max_wait_s": 0.0, "threads": 1, "lr": 1e-3, "micro_tokens": 64}
    return {"lora": {"rank": lora}, "gate": {"max_rise": 50.0, "max_step_drift": 0.0,
                                             "max_drift": 0.0},
            "wire": {"heartbeat_s": 0.2, "dead_after_s": 60.0}} | sections | {
                "train": train | sections.get("train", {})}


def alone(
    model: Path, run_dir: Path, given: list[list[Sample]], settings: dict[str, Any],
    resume: bool = False,
) -> list[Update]:
    """One rank, in this process."""
    t = trainer(model, run_dir, config(**settings), resume=resume)
    return [t.train(lease(samples, f"lease_{samples[0].id}"))[0] for samples in given]


def weights(run_dir: Path, number: int = STEPS) -> dict[str, torch.Tensor]:
    (file,) = (run_dir / f"versions/default/default/{number}").glob("*model.safetensors")
    return load_file(file)


@pytest.fixture
def actor() -> Iterator[FakeActor]:
    with tempfile.TemporaryDirectory(prefix="claw-") as folder:  # ipc paths must be short
        found = FakeActor(Path(folder))
        yield found
        found.close()


def started(
    actor: FakeActor, model: Path, run_dir: Path, settings: dict[str, Any], ranks: int,
    resume: bool = False,
) -> Process:
    run_dir.mkdir(exist_ok=True)
    many = settings | {"train": settings["train"] | {"ranks": ranks}}
    process = Process(actor, model, run_dir, **many)
    process.start(resume=resume)
    return process


def fed(actor: FakeActor, process: Process, given: list[list[Sample]]) -> list[Update]:
    """Give the batches one after the other; what was acknowledged for them."""
    before = len(actor.acks)
    for i, samples in enumerate(given):
        actor.waiting = list(samples)
        actor.until(lambda n=before + i + 1: _is_there(actor, process, n), 300)
    return [update for update, _, _ in list(actor.acks.values())[before:]]


def _is_there(actor: FakeActor, process: Process, count: int) -> bool:
    assert process.popen.poll() is None, process.log
    return len(actor.acks) >= count


def ended(process: Process) -> None:
    if process.popen.poll() is None:
        process.popen.terminate()
        process.popen.wait(60)


def assert_same(a: list[Update], b: list[Update]) -> None:
    assert [u.step for u in a] == [u.step for u in b]
    for one, many in zip(a, b, strict=True):
        assert many.loss.total == pytest.approx(one.loss.total, rel=LOSS, abs=LOSS)
        assert many.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)
        assert set(one.loss.metrics) == set(many.loss.metrics)
        for name, value in one.loss.metrics.items():
            if not name.startswith("perf/"):
                assert many.loss.metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def assert_same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert set(a) == set(b)
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, rtol=0, atol=WEIGHTS, msg=name)


CASES = {
    "full weights on two ranks": (2, values()),
    "full weights on four, three of them with an empty share in one step": (4, values()),
    "an adapter, taught by the base, held by KL, activations made again": (2, values(
        4, loss={"teacher": "base", "kl_coef": 0.05}, train={"gradient_checkpointing": True})),
    "packed rows on two ranks": (2, values(train={"packing": True, "micro_tokens": 100})),
    "full weights, taught by their average, held to a copy of the first": (2, values(
        loss={"teacher": "ema", "ema_decay": 0.5, "kl_coef": 0.05, "entropy_coef": 0.01})),
}


@pytest.mark.parametrize("case", CASES)
def test_several_ranks_train_what_one_trains(
    request: pytest.FixtureRequest, tmp_path: Path, case: str
) -> None:
    ranks, settings = CASES[case]
    untied = "copy of the first" in case
    model = request.getfixturevalue("tiny_qwen3_dir" if untied else "tiny_llama_dir")
    one = alone(model, tmp_path / "one", batches(), settings)
    many = rank_group.run(model, tmp_path / "many", batches(), settings, ranks)
    assert_same(one, many)
    assert_same_weights(weights(tmp_path / "one"), weights(tmp_path / "many"))


def test_a_run_goes_on_with_another_number_of_ranks(tiny_llama_dir: Path, tmp_path: Path) -> None:
    settings = values(loss={"teacher": "ema"}, train={"warmup_steps": 4, "weight_decay": 0.1})
    given = batches()
    one = alone(tiny_llama_dir, tmp_path / "one", given, settings)
    run_dir = tmp_path / "many"
    found = alone(tiny_llama_dir, run_dir, given[:1], settings)
    for part, ranks in ((given[1:3], 4), (given[3:4], 2)):
        found += rank_group.run(tiny_llama_dir, run_dir, part, settings, ranks, resume=True)
        (folder, *_) = sorted((run_dir / "checkpoints/default").iterdir(), reverse=True)
        files = [f.name for f in folder.glob("*.safetensors")]
        assert len(files) == ranks and not list(folder.glob("*.distcp")), files
    found += alone(tiny_llama_dir, run_dir, given[4:], settings, resume=True)
    assert_same(one, found)
    assert_same_weights(weights(tmp_path / "one"), weights(run_dir))


def test_a_rank_that_is_killed_costs_no_sample_and_trains_none_twice(
    actor: FakeActor, tiny_llama_dir: Path, tmp_path: Path
) -> None:
    settings, given = values(), batches()
    one = alone(tiny_llama_dir, tmp_path / "one", given, settings)
    run_dir = tmp_path / "many"
    process = started(actor, tiny_llama_dir, run_dir, settings, 2)
    try:
        found = fed(actor, process, given[:2])
        os.kill(rank(process, 1), signal.SIGKILL)
        found += fed(actor, process, given[2:])
        assert "trainer.hello" in actor.types()[actor.types().index("lease.ack"):]
    finally:
        ended(process)
    assert_same(one, found)
    assert_same_weights(weights(tmp_path / "one"), weights(run_dir))


def rank(process: Process, number: int) -> int:
    """The pid of a rank, as its environment says."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == process.popen.pid and f"RANK={number}".encode() in words:
            return int(folder.name)
    raise AssertionError(f"no rank {number}: {process.log}")


def test_bfloat16_ranks_keep_the_truth_in_float32(tiny_llama_dir: Path, tmp_path: Path) -> None:
    settings = values(train={"dtype": "bfloat16", "lr": 1e-5})
    one = alone(tiny_llama_dir, tmp_path / "one", batches(), settings)
    many = rank_group.run(tiny_llama_dir, tmp_path / "many", batches(), settings, 2)
    for a, b in zip(one, many, strict=True):
        assert b.loss.total == pytest.approx(a.loss.total, rel=0.03)
        assert b.grad_norm == pytest.approx(a.grad_norm, rel=0.03)
    published, (kept, *_) = weights(tmp_path / "many"), _newest(tmp_path / "many")
    truth = {name.removeprefix("weight."): value for name, value in kept.items()
             if name.startswith("weight.")}
    assert {t.dtype for t in truth.values()} == {torch.float32}
    moved = 0
    for name, value in truth.items():
        assert torch.equal(published[name], value.bfloat16()), name
        moved += int((value != value.bfloat16()).sum())
    assert moved > 1000, "steps smaller than the last bit of a bfloat16 are kept"
    written = json.loads((tmp_path / "many/versions/default/default/5/config.json").read_text())
    assert written["dtype"] == "bfloat16"


def _newest(run_dir: Path) -> tuple[dict[str, torch.Tensor], Path]:
    """The tensors of the newest checkpoint, whole."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    folder = max((run_dir / "checkpoints/default").iterdir())
    about = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    found = {name: torch.empty(a.size, dtype=a.properties.dtype) for name, a in about.items()}
    dcp.load(found, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)
    return found, folder
