"""The GRPO part beside Liger's Triton kernel, on the same logits: somebody else's reading of it.

B sequences of L tokens, H hidden size, V vocabulary size.
"""

import pytest
import torch
from torch import Tensor

from claw.kernels import backend, hybrid_loss

triton_grpo_loss = pytest.importorskip("liger_kernel.transformers.grpo_loss").triton_grpo_loss

B, L, H, V = 3, 5, 24, 517
TAU, EPS_LOW, EPS_HIGH = 0.7, 0.2, 0.28


def batch() -> dict[str, Tensor]:
    """Ratios inside and outside of both clips, advantages of both signs, some tokens masked."""
    g = torch.Generator().manual_seed(11)
    hidden = torch.randn(B, L + 1, H, generator=g)  # Liger drops the last position
    weight = torch.randn(V, H, generator=g) * 0.4
    ids = torch.randint(0, V, (B, L), generator=g)
    logp = torch.log_softmax(hidden[:, :-1] @ weight.t() / TAU, dim=-1)
    now = logp.gather(2, ids[:, :, None])[:, :, 0]
    mask = torch.rand(B, L, generator=g) > 0.2
    return {
        "hidden": hidden, "weight": weight, "ids": ids, "mask": mask,
        "old": now + 0.4 * torch.randn(B, L, generator=g),
        "ref": now + 0.3 * torch.randn(B, L, generator=g),
        "advantage": torch.tensor([1.3, -0.8, 0.4]),
    }  # fmt: skip


def liger(b: dict[str, Tensor], beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """-> (the summed loss, its gradients to hidden and weight)."""
    hidden, weight = b["hidden"].clone().requires_grad_(), b["weight"].clone().requires_grad_()
    loss_BL, _, _ = triton_grpo_loss(
        hidden @ weight.t(), b["old"], b["ref"], b["ids"], b["advantage"], b["mask"].int(),
        temperature=TAU, beta=beta, eps_low=EPS_LOW, eps_high=EPS_HIGH, inplace=False,
        loss_type="grpo", reduce=False,
    )  # fmt: skip
    loss = (loss_BL * b["mask"]).sum()
    loss.backward()
    return loss.detach(), hidden.grad[:, :-1], weight.grad


def claw(b: dict[str, Tensor], beta: float) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    hidden = b["hidden"][:, :-1].reshape(-1, H).clone().requires_grad_()
    weight, mask = b["weight"].clone().requires_grad_(), b["mask"].flatten().float()
    loss, sums = hybrid_loss(
        hidden, weight, ids=b["ids"].flatten(), old_logp=b["old"].flatten(),
        advantage=b["advantage"].repeat_interleave(L), rl_weight=mask,
        ref_logp=b["ref"].flatten(), kl_weight=beta * mask, temperature=TAU,
        clip_low=EPS_LOW, clip_high=EPS_HIGH,
    )  # fmt: skip
    loss.backward()
    return loss.detach(), hidden.grad.view(B, L, H), weight.grad, sums


@pytest.mark.parametrize("name", backend.NAMES)
@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_loss_and_gradients_are_those_of_liger(name: str, beta: float) -> None:
    b = batch()
    theirs = liger(b, beta)
    with backend.use(name):
        *ours, sums = claw(b, beta)
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-6)
    assert sums["clip_low_count"] > 0 and sums["clip_high_count"] > 0
