"""In bfloat16 the kernels are as near to float64 as full logits in bfloat16 are.

T tokens, H hidden size, V vocabulary size. Separately for confident tokens (p > 0.99), whose
gradient p - 1 is small and lost by any rounding before the difference.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from claw.kernels import hybrid_loss, score

TOKENS, H, VOCAB = 64, 128, 4001
MORE = 1.1
"""times the error of full logits; on a CPU the product of each chunk is rounded by itself"""


def tokens(confident: bool) -> tuple[Tensor, Tensor, Tensor]:
    """-> (hidden, weight, sampled ids); the hidden state points at the id, strongly or a little."""
    generator = torch.Generator().manual_seed(int(confident))
    weight = torch.randn(VOCAB, H, generator=generator) * H**-0.5
    ids = torch.randint(VOCAB, (16 * TOKENS,), generator=generator)
    hidden = torch.randn(len(ids), H, generator=generator)
    hidden += (18.0 if confident else 8.0) * functional.normalize(weight[ids], dim=1)
    hidden, weight = hidden.bfloat16(), weight.bfloat16()
    p = (hidden.double() @ weight.double().t()).softmax(1).gather(1, ids[:, None])[:, 0]
    low, high = (0.99, 0.9999) if confident else (0.0, 0.9)
    chosen = ((p > low) & (p < high)).nonzero()[:TOKENS, 0]
    assert len(chosen) == TOKENS
    return hidden[chosen], weight, ids[chosen]


def gradients(hidden: Tensor, weight: Tensor, ids: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Of the cross entropy over full logits, by autograd; log-softmax in `dtype`."""
    leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logp = (leaves[0] @ leaves[1].t()).to(dtype).log_softmax(dim=1).gather(1, ids[:, None])
    return list(torch.autograd.grad(-logp.sum(), leaves))


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("confident", [False, True])
@pytest.mark.parametrize("mode", ["forward", "recompute"])
def test_gradients_are_as_near_as_those_of_full_logits(confident: bool, mode: str) -> None:
    hidden, weight, ids = tokens(confident)
    exact = gradients(hidden.double(), weight.double(), ids, torch.float64)
    eager = gradients(hidden, weight, ids, torch.float32)
    old = score(hidden, weight, ids[:, None]).logp[:, 0].contiguous()  # a ratio of exactly 1
    leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    one = torch.ones(TOKENS)
    loss, _ = hybrid_loss(
        *leaves, ids=ids, old_logp=old, advantage=one, rl_weight=one, mode=mode, chunk_tokens=16
    )
    loss.backward()
    for leaf, plain, true in zip(leaves, eager, exact, strict=True):
        assert error(leaf.grad, true) <= MORE * error(plain, true)


@pytest.mark.parametrize("confident", [False, True])
def test_log_probs_are_as_near_as_those_of_full_logits(confident: bool) -> None:
    hidden, weight, ids = tokens(confident)
    exact = (hidden.double() @ weight.double().t()).log_softmax(1).gather(1, ids[:, None])
    eager = (hidden @ weight.t()).float().log_softmax(1).gather(1, ids[:, None])
    found = score(hidden, weight, ids[:, None]).logp
    assert error(found, exact) <= MORE * error(eager, exact)
    assert found.max() <= 0
