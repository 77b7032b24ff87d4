"""How far the weights have moved: measured, bounded, and the end of learning when it is too far."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench import config, lease, near, policy, trainer
from some_samples import batch

from claw.engine.trainer import drift, heldout, model
from claw.engine.trainer.drift import Reading
from claw.records import VersionStatus

TEXTS = [(np.array([5, 6, 7]), np.array([8, 9])), (np.array([3]), np.array([4, 5, 6, 7]))]


def settings(rank: int = 4, **gate: float):
    return config(lora={"rank": rank, "dropout": 0.0}, train={"lr": 1e-2},
                  gate={"max_rise": 50.0, "max_drift": 0.0, "max_step_drift": 0.0} | gate)


@pytest.mark.parametrize("rank", [0, 4])
def test_the_divergence_is_that_of_float64_over_the_whole_vocabulary(
    tiny_llama_dir: Path, rank: int
) -> None:
    c = settings(rank)
    first = drift.read(model.load(tiny_llama_dir, c), TEXTS, 4096)
    moved = policy(tiny_llama_dir, c, shift=0.2)
    now = drift.read(moved, TEXTS, 4096)

    def logps(lm) -> torch.Tensor:
        rows = []
        for prompt, reply in TEXTS:
            ids = torch.as_tensor(np.concatenate([prompt, reply]))[None]
            rows.append(lm(ids).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1))
        return torch.cat(rows).detach()

    a, b = logps(moved.lm), logps(model.load(tiny_llama_dir, c).lm)
    wanted = float((a.exp() * (a - b)).sum(-1).mean())
    assert wanted > 0.01
    assert drift.divergence(now, first) == pytest.approx(wanted, rel=1e-4)
    assert drift.divergence(now, now) == 0.0
    replies = np.concatenate([reply for _, reply in TEXTS])
    assert drift.loss(now, TEXTS) == pytest.approx(
        -float(a[range(len(replies)), replies].mean()), rel=1e-5)


def test_a_reading_stays_what_it_was_when_full_weights_move_on(tiny_llama_dir: Path) -> None:
    p = model.load(tiny_llama_dir, settings(0))
    first = drift.read(p, TEXTS, 4096)
    with torch.no_grad():
        p.head.mul_(2.0)
    assert drift.divergence(drift.read(p, TEXTS, 4096), first) > 0.0
    assert torch.equal(first.head_VH, model.load(tiny_llama_dir, settings(0)).head)


def test_a_long_text_is_read_a_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (Reading(torch.randn(150, 8, generator=generator),
                    torch.randn(40, 8, generator=generator)) for _ in range(2))
    whole = drift.divergence(a, b)
    monkeypatch.setattr(drift, "ROWS", 7)
    assert drift.divergence(a, b) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("rank", [0, 4])
def test_each_step_says_how_far_it_moved_and_how_far_it_is_from_the_first(
    tiny_llama_dir: Path, tmp_path: Path, rank: int
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, settings(rank, max_step_drift=9.0))
    seen = []
    for i in range(3):
        before = drift.read(t.policy, t.shared.texts, 4096)
        t.train(lease(near(t.policy, batch(3, seed=i)), f"lease_{i}"))
        now = drift.read(t.policy, t.shared.texts, 4096)
        line = _metrics(tmp_path)[-1]
        assert line["gate/step_drift"] == pytest.approx(drift.divergence(now, before), abs=1e-7)
        assert line["gate/drift"] == pytest.approx(
            drift.divergence(now, t.shared.origin), abs=1e-7)
        seen.append(line["gate/drift"])
    assert seen[-1] > seen[0] > 1e-6
    again = trainer(tiny_llama_dir, tmp_path, settings(rank, max_step_drift=9.0), resume=True)
    assert drift.divergence(drift.read(again.policy, again.shared.texts, 4096),
                            again.shared.origin) == pytest.approx(seen[-1], rel=1e-4)


def test_a_step_that_moves_too_far_is_refused_and_learning_goes_on(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, settings(max_step_drift=1e-9, max_drift=50.0))
    _, version, why = t.train(lease(near(t.policy, batch(3))))
    assert version.status == VersionStatus.REFUSED and "one step has moved" in why
    assert not t.learner.held and "rollback" not in why
    t.train(lease(near(t.policy, batch(3, seed=4)), "lease_2"))
    assert t.learner.progress.step == 2


def test_slow_drift_stops_the_learning_of_that_owner_until_a_rollback_also_over_a_restart(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    c = settings(max_drift=50.0)
    t = trainer(tiny_llama_dir, tmp_path, c)
    hers = [replace(s, owner="anna") for s in near(t.policy, batch(3))]
    t.train(lease(hers, "hers"))
    assert t.learners["anna"].progress.current.number == 1
    limit = _metrics(tmp_path)[-1]["gate/drift"] * 1.5

    c = settings(max_drift=limit)
    t = trainer(tiny_llama_dir, tmp_path, c, resume=True)
    for i in range(20):
        more = [replace(s, owner="anna") for s in near(t.policy, batch(3, seed=i))]
        _, version, why = t.train(lease(more, f"hers_{i}"))
        if why:
            break
    anna = t.learners["anna"]
    assert version.status == VersionStatus.REFUSED and version.note == why
    assert "claw rollback N" in why and f"limit {limit:g}" in why
    assert anna.held == why and not t.learners["default"].held
    assert anna.progress.current.number == version.number - 1  # what serves is the parent
    assert _metrics(tmp_path)[-1]["gate/drift"] > limit

    again = trainer(tiny_llama_dir, tmp_path, c, resume=True)
    assert again.learners["anna"].held == why
    asked = _ask_for_a_lease(again)
    assert asked["not_of"] == ["anna"] and again.link.held == {"anna": why}
    again.roll_back("anna", "default", 0)
    assert not again.learners["anna"].held
    asked = _ask_for_a_lease(again)
    assert asked["not_of"] == [] and again.link.held == {}
    _, version, why = again.train(lease(hers, "after"))
    assert not why and version.status == VersionStatus.PUBLISHED


def test_without_the_gate_nothing_is_read(tiny_llama_dir: Path, tmp_path: Path) -> None:
    t = trainer(tiny_llama_dir, tmp_path, config(lora={"rank": 4}, gate={"enabled": False}))
    t.train(lease(near(t.policy, batch(3))))
    assert t.shared.origin is None and "gate/drift" not in _metrics(tmp_path)[-1]


def test_the_texts_are_enough_to_see_a_change_of_any_common_word() -> None:
    words = {w.strip("?.,!\"").lower() for pair in heldout.TEXTS for t in pair for w in t.split()}
    assert len(heldout.TEXTS) >= 16 and len(words) > 100


def _metrics(run_dir: Path) -> list[dict]:
    import json

    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [m for m in map(json.loads, lines) if "train/loss" in m]


def _ask_for_a_lease(t) -> dict:
    """What the trainer asks the actor for."""
    asked = []

    class Empty:
        type = "lease.empty"

    t.link.ask = lambda message, wait_s=0.0: asked.append(message) or Empty()
    assert t._lease() is None
    return asked[0].fields
