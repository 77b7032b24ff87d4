"""A whole training step on the Triton backend, in its interpreter, beside the torch backend.

Run by test_triton.py.
"""

from pathlib import Path

import pytest
import torch
from bench import config, near, one, policy
from some_samples import batch

from claw.kernels import backend


def gradients(folder: Path, which: str, **sections) -> tuple[float, torch.Tensor, dict]:
    c = config(**sections)
    p = policy(folder, c)
    with backend.use(which):
        done, optim = one(p, near(p, batch(4)), c)
    assert done.skipped == ""
    return done.loss.total, torch.cat([g.flatten() for g in optim.seen.values()]), done.loss.metrics


@pytest.mark.parametrize(
    "sections",
    [
        {"train": {"method": "hybrid"}, "loss": {"entropy_coef": 0.01, "kl_coef": 0.1}},
        {"train": {"method": "hybrid"}, "lora": {"rank": 4}, "loss": {"subset": "overlap"}},
    ],
    ids=["full", "lora"],
)
def test_a_step_on_triton_is_the_step_on_torch(tiny_llama_dir: Path, sections: dict) -> None:
    total, gradient, metrics = gradients(tiny_llama_dir, "triton", **sections)
    expected_total, expected, expected_metrics = gradients(tiny_llama_dir, "torch", **sections)
    assert total == pytest.approx(expected_total, rel=1e-5)
    assert expected.norm() > 0
    assert (gradient - expected).norm() <= 1e-5 * expected.norm()
    for name, value in expected_metrics.items():
        if not name.startswith("perf/"):
            assert metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
