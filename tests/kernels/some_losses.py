"""A case of `hybrid_loss` with every term on, for the tests that compare two ways to compute it.

T tokens, V vocabulary size, K top-k ids.
"""

from typing import Any

import torch
from torch import Tensor

from claw.kernels import hybrid_loss

H = 16


def case(tokens: int = 7, vocab: int = 130, k: int = 4, seed: int = 0) -> dict[str, Tensor]:
    """Old log-probs stale enough to clip, doubles and padding among the ids, tokens without terms.

    Every tensor of tokens is float32 or int64 and has no gradient.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def positive() -> Tensor:
        return torch.rand(tokens, generator=generator) / tokens

    hidden, weight = normal(tokens, H), normal(vocab, H) * 0.5
    logp = (hidden @ weight.t()).log_softmax(dim=1)
    ids = torch.randint(vocab, (tokens,), generator=generator)
    topk_ids = logp.topk(k, dim=1).indices
    topk_ids[::2, -1] = ids[::2]
    topk_ids[::3, 1] = topk_ids[::3, 0]
    topk_ids[1::3, 2] = -1
    found = {
        "hidden": hidden, "weight": weight, "ids": ids, "topk_ids": topk_ids,
        "old_logp": logp.gather(1, ids[:, None])[:, 0] + 0.5 * normal(tokens),
        "advantage": normal(tokens), "rl_weight": positive(), "is_weight": positive() * tokens,
        "topk_old_logp": logp.gather(1, topk_ids.clamp(min=0)) + 0.5 * normal(tokens, k),
        "topk_advantage": normal(tokens, k), "opd_weight": positive(),
        "ref_logp": logp.gather(1, ids[:, None])[:, 0] + normal(tokens),
        "kl_weight": positive(), "entropy_weight": 0.3 * positive(),
        "temperature": torch.linspace(0.5, 1.5, tokens),
    }  # fmt: skip
    for name in ("rl_weight", "opd_weight", "kl_weight", "entropy_weight"):
        found[name][tokens // 2] = 0.0  # a token in the middle without a term
    return found


def leaves(one: dict[str, Tensor]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """-> (hidden, weight, both as leaves that want gradients; the other arguments)."""
    rest = {name: value for name, value in one.items() if name not in ("hidden", "weight")}
    hidden, weight = (one[name].clone().requires_grad_() for name in ("hidden", "weight"))
    return hidden, weight, rest


def run(one: dict[str, Tensor], **options: Any) -> tuple[Tensor, Tensor, Tensor, dict]:
    """-> (loss, d loss / d hidden, d loss / d weight, metrics) of one backward pass."""
    hidden, weight, rest = leaves(one)
    loss, metrics = hybrid_loss(hidden, weight, **rest | options)
    loss.sum().backward()
    return loss.detach(), hidden.grad, weight.grad, metrics


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Within the tolerance of the largest number."""
    error = (found.double() - expected.double()).abs().max().item()
    largest = max(expected.abs().max().item(), 1e-12)
    assert error <= tolerance * largest, f"error {error:.3g} of {largest:.3g}"
