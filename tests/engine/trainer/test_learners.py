"""Several owners in one trainer: whose weights learn what."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bench import config, lease, near, trainer
from safetensors.numpy import load_file
from some_samples import batch

from claw.engine.trainer import checkpoint
from claw.engine.trainer.trainer import Trainer
from claw.engine.trainer.weights import Shelf
from claw.errors import ClawError
from claw.records import Sample


def settings(rank: int = 4, dropout: float = 0.0) -> Any:
    return config(lora={"rank": rank, "dropout": dropout},
                  train={"lr": 1e-2, "warmup_steps": 4}, gate={"max_rise": 50.0})


def of(owner: str, samples: list[Sample]) -> list[Sample]:
    return [replace(s, owner=owner) for s in samples]


def weights_in(run_dir: Path, owner: str, number: int) -> dict[str, Any]:
    return load_file(Shelf(run_dir, owner).path(number) / "adapter_model.safetensors")


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all((a[n] == b[n]).all() for n in a)


def alone(folder: Path, run_dir: Path, owner: str, steps: list[list[Sample]]) -> Trainer:
    """A trainer that only one owner uses."""
    t = trainer(folder, run_dir, settings())
    for i, samples in enumerate(steps):
        t.train(lease(of(owner, samples), f"lease_{i}"))
    return t


def test_what_one_says_never_moves_anothers_adapter(tiny_llama_dir: Path, tmp_path: Path) -> None:
    t = trainer(tiny_llama_dir, tmp_path / "both", settings())
    hers = [near(t.policy, batch(3, seed=i)) for i in (1, 2)]
    his = [near(t.policy, batch(3, seed=i)) for i in (7, 8)]
    for i in range(2):  # in turns, so that each finds the other's weights in hand
        t.train(lease(of("anna", hers[i]), f"anna_{i}"))
        t.train(lease(of("bo", his[i]), f"bo_{i}"))
    assert {o: one.progress.current.number for o, one in t.learners.items()} == {
        "default": 0, "anna": 2, "bo": 2}
    for owner, said in (("anna", hers), ("bo", his)):
        alone(tiny_llama_dir, tmp_path / owner, owner, said)
        together = weights_in(tmp_path / "both", owner, 2)
        assert equal(together, weights_in(tmp_path / owner, owner, 2)), owner
    assert not equal(weights_in(tmp_path / "both", "anna", 2),
                     weights_in(tmp_path / "both", "bo", 2))


def test_everybody_begins_with_the_first_weights_and_the_schedule_of_a_beginner(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, settings())
    first = {n: p.detach().clone() for n, p in t.policy.parameters.items()}
    update, _, _ = t.train(lease(near(t.policy, batch(3)), "mine"))
    hers, version, _ = t.train(lease(of("anna", near(t.policy, batch(3))), "hers"))
    assert equal(weights_in(tmp_path, "anna", 0), weights_in(tmp_path, "default", 0))
    assert (version.owner, version.number, version.parent) == ("anna", 1, 0)
    assert hers.lr == update.lr and hers.step == 1 and t.step == 2
    t.roll_back("anna", "default", 0)
    assert all(torch.equal(p, first[n]) for n, p in t.policy.parameters.items())


def test_a_resumed_trainer_knows_everybody_and_takes_the_same_next_step(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    c = settings(dropout=0.1)
    t = trainer(tiny_llama_dir, tmp_path / "run", c)
    t.train(lease(near(t.policy, batch(3)), "mine"))
    t.train(lease(of("anna", near(t.policy, batch(3, seed=4))), "hers"))
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    again = trainer(tiny_llama_dir, tmp_path / "copy", c, resume=True)
    assert [(o, one.told()["last_lease"]) for o, one in again.learners.items()] == [
        ("anna", "hers"), ("default", "mine")]
    assert again.learner.owner == "anna" and again.step == 2
    drawn = torch.get_rng_state()
    for owner in ("default", "anna"):
        samples = of(owner, near(t.policy, batch(3, seed=5)))
        one, _, _ = t.train(lease(samples, "next"))
        after = torch.get_rng_state()
        torch.set_rng_state(drawn)
        other, _, _ = again.train(lease(samples, "next"))
        drawn = torch.get_rng_state()
        assert (one.loss.total, one.grad_norm) == (other.loss.total, other.grad_norm)
        assert torch.equal(drawn, after)


def test_going_back_is_of_one_owner_only(tiny_llama_dir: Path, tmp_path: Path) -> None:
    t = trainer(tiny_llama_dir, tmp_path, settings())
    for owner in ("default", "anna"):
        t.train(lease(of(owner, near(t.policy, batch(3))), owner))
    version = t.roll_back("anna", "default", 0)
    assert (version.owner, version.number) == ("anna", 2)
    assert t.learners["default"].progress.current.number == 1
    with pytest.raises(ClawError, match="default/default"):
        t.roll_back("bo", "default", 0)


def test_full_weights_leave_other_owners_samples_out_with_a_reason(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, settings(rank=0))
    update, version, why = t.train(lease(of("anna", near(t.policy, batch(2)))))
    assert why == "nothing to train" and version.number == 0
    assert update.loss.metrics["rollout/dropped_other_owner"] == 2
    assert list(t.learners) == ["default"]


def test_a_killed_beginning_leaves_nobodys_weights_in_anothers_hands(
    tiny_llama_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up while somebody's first version is written; the others go on as before."""
    t = trainer(tiny_llama_dir, tmp_path / "a", settings())
    mine = [near(t.policy, batch(3, seed=i)) for i in (1, 2)]
    t.train(lease(mine[0], "one"))
    with monkeypatch.context() as patch:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(checkpoint, "save", full)
        with pytest.raises(OSError, match="No space"):
            t.train(lease(of("anna", near(t.policy, batch(3))), "hers"))
    t.train(lease(mine[1], "two"))
    alone(tiny_llama_dir, tmp_path / "b", "default", mine)
    assert equal(weights_in(tmp_path / "a", "default", 2), weights_in(tmp_path / "b", "default", 2))
    _, version, _ = t.train(lease(of("anna", near(t.policy, batch(3))), "again"))
    assert (version.owner, version.number) == ("anna", 1)
