"""A step is what the formulas say: against whole logits and autograd in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import truth
from bench import as_float64, config, near, one, policy
from some_samples import batch, sample

from claw.engine.trainer.model import Policy
from claw.records import Sample

NORMS = ("sample-mean", "batch-mean", "token-mean")


def mixed(p: Policy) -> list[Sample]:
    """With and without advantage, hints, whole masks, temperature, a whole reply."""
    rng = np.random.default_rng(9)
    return near(p, [
        *batch(3),
        sample(1, hints=0, advantages=rng.standard_normal(6).astype(np.float32)),
        sample(2, has_advantage=False, temperature=1.3),
        sample(3, mask=np.array([1, 0, 1, 1, 0, 1], bool)),
        sample(4, truncated=True),
        sample(5, temperature=0.0),
        sample(6, hints=0, has_advantage=False),
    ])


def assert_step_is_true(folder: Path, c: Any) -> None:
    p = policy(folder, c)
    samples = mixed(p)
    student = as_float64(p, "current")
    teacher = as_float64(p, c.loss.teacher).requires_grad_(False)
    has_base = p.peft is not None or p.first is not None
    base = as_float64(p, "base").requires_grad_(False) if has_base else student
    done, optim = one(p, samples, c)
    wanted = truth.loss(student, teacher, base, samples, c)
    wanted.backward()
    assert not done.skipped
    assert done.loss.total == pytest.approx(float(wanted.detach()), rel=2e-5, abs=2e-6)
    gradients = {n: g.grad for n, g in student.named_parameters() if g.requires_grad}
    assert gradients.keys() == optim.seen.keys()
    scale = max(float(g.abs().max()) for g in gradients.values())
    assert scale > 1e-4
    for name, grad in gradients.items():
        torch.testing.assert_close(
            optim.seen[name].double(), grad, rtol=2e-3, atol=1e-4 * scale, msg=name
        )


@pytest.mark.parametrize("normalise", NORMS)
@pytest.mark.parametrize("method", ["grpo", "opd", "opd-sampled", "hybrid", "combined"])
@pytest.mark.parametrize("rank", [0, 4])
def test_each_method_with_full_weights_and_lora(
    tiny_llama_dir: Path, method: str, normalise: str, rank: int
) -> None:
    assert_step_is_true(tiny_llama_dir, config(
        lora={"rank": rank}, train={"method": method, "micro_tokens": 64},
        loss={"normalise": normalise, "w_rl": 0.7, "w_opd": 1.3},
    ))


@pytest.mark.parametrize("choice", ["sequence", "token", "shortest"])
@pytest.mark.parametrize("subset", ["student", "teacher", "overlap"])
def test_each_subset_and_hint_choice(tiny_qwen3_dir: Path, subset: str, choice: str) -> None:
    assert_step_is_true(tiny_qwen3_dir, config(
        lora={"rank": 4}, train={"micro_tokens": 96},
        loss={"subset": subset, "hint_choice": choice, "gap_clip": 0.5},
    ))


@pytest.mark.parametrize("teacher", ["current", "base", "ema"])
@pytest.mark.parametrize("rank", [0, 4])
def test_each_teacher(tiny_llama_dir: Path, teacher: str, rank: int) -> None:
    assert_step_is_true(tiny_llama_dir, config(lora={"rank": rank}, loss={"teacher": teacher}))


@pytest.mark.parametrize("method", ["hybrid", "combined"])
def test_proximal_mode(tiny_llama_dir: Path, method: str) -> None:
    c = config(train={"method": method}, **{"is": {"mode": "proximal", "cap": 1.1}})
    assert_step_is_true(tiny_llama_dir, c)


@pytest.mark.parametrize("rank", [0, 4])
def test_kl_to_the_first_weights_entropy_and_kept_truncated_replies(
    tiny_llama_dir: Path, rank: int
) -> None:
    assert_step_is_true(tiny_llama_dir, config(lora={"rank": rank}, loss={
        "kl_coef": 0.1, "entropy_coef": 0.02, "truncated": "keep", "gap_clip": 0,
    }))
