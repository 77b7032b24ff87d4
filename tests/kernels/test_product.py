"""The products at a head: half precision on processors with and without instructions for it.

Truth: float64 of the rounded operands.
"""

import pytest
import torch
from torch import Tensor

from claw.kernels import hybrid_loss, product

HALVES = (torch.bfloat16, torch.float16)
C, H, V = 5, 24, 2 * product.SLAB + 7


@pytest.fixture(params=["slow", "fast"])
def halves(request, monkeypatch) -> str:
    """Both kinds of processor, whichever this one is."""
    slow = request.param == "slow"
    monkeypatch.setattr(product, "_is_slow", lambda kind, dtype: slow and dtype != torch.float32)
    return request.param


def matrices(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    made = (torch.randn(*shape, generator=g) for shape in ((C, H), (V, H), (C, V)))
    hidden, weight, left = (m.to(dtype) for m in made)
    return hidden, weight * H**-0.5, left


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", HALVES)
def test_logits_are_the_exact_ones_rounded_to_the_operands_dtype(halves: str, dtype) -> None:
    hidden, weight, _ = matrices(dtype)
    out = torch.empty(V, C)
    product.write_logits(out, hidden, weight)
    exact = weight.double() @ hidden.double().t()
    assert torch.equal(out, out.to(dtype).float()), "every logit is a number of the dtype"
    assert (out.double() - exact).abs().max() <= exact.abs().max() * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_are_as_exact_as_the_dtype_in_which_they_are_made(halves: str, dtype) -> None:
    hidden, weight, left = matrices(dtype)
    made_in = left.to(product.product_dtype(hidden))
    assert made_in.dtype == (torch.float32 if halves == "slow" else dtype)
    allowed = 1e-6 if halves == "slow" else torch.finfo(dtype).eps
    to_hidden = product.times_weight(made_in, weight)
    assert to_hidden.dtype == made_in.dtype
    assert relative(to_hidden, left.double() @ weight.double()) <= allowed
    total = torch.ones(V, H)
    product.add_product(total, made_in.t(), hidden)
    assert relative(total, 1 + left.double().t() @ hidden.double()) <= allowed


def test_float32_is_multiplied_as_it_is() -> None:
    assert product.product_dtype(torch.empty(1)) == torch.float32
    assert not product._is_slow("cpu", torch.float32)
    assert not product._is_slow("cuda", torch.bfloat16), "a GPU has the instructions"


@pytest.mark.parametrize("dtype", HALVES)
def test_a_loss_in_half_precision_has_gradients_of_its_dtype(halves: str, dtype) -> None:
    hidden, weight, _ = matrices(dtype)
    leaves = (hidden.requires_grad_(), weight.detach().requires_grad_())
    ones = torch.ones(C)
    loss, _ = hybrid_loss(
        *leaves, ids=torch.arange(C), old_logp=-9 * ones, advantage=ones, rl_weight=ones / C
    )
    loss.backward()
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    logp = (exact[0] @ exact[1].t()).log_softmax(dim=1)[torch.arange(C), torch.arange(C)]
    (-(logp + 9).exp().clamp(max=1.28).mean()).backward()
    for leaf, wanted in zip(leaves, exact, strict=True):
        assert leaf.grad.dtype == dtype
        assert relative(leaf.grad, wanted.grad) < 20 * torch.finfo(dtype).eps
