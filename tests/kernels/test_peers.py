"""The same numbers from other people's code: torch, TRL and Liger, on the CPU.

B sequences of L tokens, H hidden size, V vocabulary size.
"""

import os

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from claw.kernels import hybrid_loss, score

B, L, H, V = 3, 6, 24, 517
TAU = 0.7


def peer(name: str):
    """The module, or a skip; with CLAW_REAL=require its absence is a failure."""
    if os.environ.get("CLAW_REAL") == "require":
        return __import__(name, fromlist=["_"])
    return pytest.importorskip(name)


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """Ratios inside and outside of both clips, advantages of both signs, some tokens masked."""
    g = torch.Generator().manual_seed(11)
    hidden = torch.randn(B * L, H, generator=g)
    weight = torch.randn(V, H, generator=g) * 0.4
    ids = torch.randint(0, V, (B * L,), generator=g)
    now = (hidden @ weight.t() / TAU).log_softmax(dim=1).gather(1, ids[:, None])[:, 0]
    return {
        "hidden": hidden.requires_grad_(), "weight": weight.requires_grad_(), "ids": ids,
        "old": (now + 0.4 * torch.randn(B * L, generator=g)).detach(), "now": now.detach(),
        "mask": (torch.rand(B * L, generator=g) > 0.2).float(),
        "advantage": torch.tensor([1.3, -0.8, 0.4]),
    }  # fmt: skip


def gradients(loss: Tensor, b: dict[str, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, (b["hidden"], b["weight"]))


def same(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6)


def grpo(b: dict[str, Tensor], **more: object) -> Tensor:
    ones = torch.ones(B * L)
    given = {"old_logp": b["now"], "advantage": ones, "rl_weight": ones / (B * L)} | more
    return hybrid_loss(b["hidden"], b["weight"], ids=b["ids"], **given)[0]


@pytest.mark.skipif(
    not hasattr(functional, "linear_cross_entropy"), reason="this torch has no linear_cross_entropy"
)
def test_at_a_ratio_of_one_the_gradient_is_that_of_torchs_cross_entropy(batch) -> None:
    theirs = functional.linear_cross_entropy(batch["hidden"] / TAU, batch["weight"], batch["ids"])
    same(gradients(grpo(batch, temperature=TAU), batch), gradients(theirs, batch))
    found = score(batch["hidden"].detach(), batch["weight"].detach(), batch["ids"][:, None],
                  temperature=TAU)  # fmt: skip
    torch.testing.assert_close(-found.logp.mean(), theirs.detach(), rtol=2e-5, atol=2e-6)


def test_log_probs_entropy_and_gradients_are_those_of_trls_chunked_function(batch) -> None:
    chunked = peer("trl.kernels").ChunkedLogProbFunction
    logp, entropy, *_ = chunked.apply(
        batch["hidden"], batch["weight"], None, batch["ids"], TAU, 128, None, 1.0, ("entropy",)
    )
    ours = score(batch["hidden"].detach(), batch["weight"].detach(), batch["ids"][:, None],
                 temperature=TAU)  # fmt: skip
    same((ours.logp[:, 0], ours.entropy), (logp.detach(), entropy.detach()))
    shares = torch.linspace(0.1, 0.9, B * L)
    theirs = gradients((-logp - 0.3 * entropy) @ shares, batch)
    mine = grpo(batch, temperature=TAU, rl_weight=shares, entropy_weight=0.3 * shares)
    same(gradients(mine, batch), theirs)


def test_the_clipped_loss_is_that_of_ligers_chunked_one(batch) -> None:
    losses = peer("liger_kernel.chunked_loss")
    dapo = losses.LigerFusedLinearGRPOLoss(
        beta=0.0, use_ref_model=False, compiled=False, loss_type="dapo", temperature=TAU,
        epsilon_low=0.2, epsilon_high=0.28,
    )  # fmt: skip
    shape = (B, L)
    theirs = dapo(
        batch["hidden"].view(B, L, H), batch["weight"], batch["ids"].view(shape),
        batch["mask"].view(shape), batch["advantage"], old_per_token_logps=batch["old"].view(shape),
    )[0]  # fmt: skip
    mine, sums = hybrid_loss(
        batch["hidden"], batch["weight"], ids=batch["ids"], old_logp=batch["old"],
        advantage=batch["advantage"].repeat_interleave(L), temperature=TAU,
        rl_weight=batch["mask"] / batch["mask"].sum(),
    )  # fmt: skip
    assert sums["clip_low_count"] > 0 and sums["clip_high_count"] > 0
    torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=2e-5, atol=2e-6)
    same(gradients(mine, batch), gradients(theirs, batch))
