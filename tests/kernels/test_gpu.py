"""The Triton backend compiled and run on a GPU, against float64; what the interpreter cannot show.

T tokens, V vocabulary size. Skips without a GPU: no machine without one can run any of it.
"""

import pytest
import torch
from some_losses import case, close, leaves
from test_recompute import token_losses
from torch import Tensor

from claw.kernels import backend, hybrid_loss, overlap, score

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(autouse=True)
def full_precision():
    """float32 products in float32; the backend is the one that a GPU gets."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    assert backend.choose(DEVICE) == "triton"
    yield
    torch.set_float32_matmul_precision(before)


def matrices(tokens: int, vocab: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(vocab)
    hidden = torch.randn(tokens, 64, generator=generator)
    weight = torch.randn(vocab, 64, generator=generator) * 0.5
    return hidden.to(DEVICE, dtype), weight.to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("vocab", [130, 20_011, 151_936])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_a_score_is_that_of_float64(dtype: torch.dtype, vocab: int, tokens: int) -> None:
    hidden, weight = matrices(tokens, vocab, dtype)
    tau = torch.linspace(0.05, 1.5, tokens, device=DEVICE)
    ids = torch.arange(tokens * 4, device=DEVICE).view(tokens, 4) * 7919 % vocab
    found = score(hidden, weight, ids, 20, tau)
    logits = hidden @ weight.t()  # rounded as the backend rounds them
    logp = (logits.double() / tau.double()[:, None]).log_softmax(dim=1)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-5
    entropy = -(logp.exp() * logp).sum(dim=1)
    torch.testing.assert_close(found.logp.double(), logp.gather(1, ids), rtol=tolerance, atol=1e-4)
    torch.testing.assert_close(found.entropy.double(), entropy, rtol=tolerance, atol=1e-4)
    if dtype != torch.float32:  # of float32 products the last bit may differ from call to call
        ranked = logits.float().sort(dim=1, descending=True, stable=True).indices[:, :20]
        assert torch.equal(found.topk_ids, ranked)


@pytest.mark.parametrize("mode", ["forward", "recompute"])
@pytest.mark.parametrize(
    ("vocab", "dtype", "tolerance"),
    [(130, torch.float32, 3e-5), (20_011, torch.float32, 3e-5), (130, torch.bfloat16, 2e-2)],
)
def test_loss_and_gradients_are_those_of_float64(mode, vocab, dtype, tolerance) -> None:
    one = {name: value.to(DEVICE) for name, value in case(40, vocab).items()}
    one |= {name: one[name].to(dtype) for name in ("hidden", "weight")}
    if dtype != torch.float32:  # a rounded log-prob may be on the other side of a clip
        one |= {"advantage": -one["advantage"].abs(), "old_logp": one["old_logp"] - 3}
        one["opd_weight"] = one["opd_weight"] * 0
    exact = {n: v.double() if v.is_floating_point() else v for n, v in one.items()}
    wanted = [exact[name].requires_grad_() for name in ("hidden", "weight")]
    token_losses(*wanted, one).sum().backward()
    hidden, weight, rest = leaves(one)
    loss, _ = hybrid_loss(hidden, weight, **rest, mode=mode, chunk_tokens=16)
    loss.backward()
    close(hidden.grad, wanted[0].grad, tolerance)
    close(weight.grad, wanted[1].grad, tolerance)


def test_the_same_call_gives_the_same_bits_every_time() -> None:
    """A race between the warps of a program, or between two launches, would show here."""
    one = {name: value.to(DEVICE) for name, value in case(256, 20_011).items()}
    one |= {name: one[name].bfloat16() for name in ("hidden", "weight")}
    seen = []
    for _ in range(20):
        hidden, weight, rest = leaves(one)
        loss, _ = hybrid_loss(hidden, weight, **rest)
        loss.backward()
        top = score(one["hidden"], one["weight"], topk=50)
        seen.append((loss.detach(), hidden.grad, weight.grad, top.topk_ids, top.topk_logp))
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def test_a_chunk_of_more_than_two_to_the_31_logits_is_right_to_its_last_row() -> None:
    hidden, weight = matrices(14_300, 151_936, torch.bfloat16)
    ids = torch.full((14_300, 1), 151_935, device=DEVICE)
    found = score(hidden, weight, ids, 4, chunk_tokens=14_300)
    logits = hidden[-5:] @ weight.t()
    close(found.logp[-5:], logits.double().log_softmax(1).gather(1, ids[-5:]), 1e-3)
    leaf, share = hidden.clone().requires_grad_(), torch.full((14_300,), 1.0, device=DEVICE)
    loss, _ = hybrid_loss(
        leaf, weight, ids=ids[:, 0], old_logp=found.logp[:, 0].contiguous(), advantage=share,
        rl_weight=share, chunk_tokens=14_300,
    )  # fmt: skip
    loss.backward()
    p = logits.double().softmax(dim=1)
    p[:, -1] -= 1
    close(leaf.grad[-5:], p @ weight.double(), 2e-2)


def test_counts_of_shared_ids_are_those_of_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    student = torch.rand(1000, 60, generator=generator).argsort(dim=1)[:, :20]
    teacher = torch.rand(3, 1000, 60, generator=generator).argsort(dim=2)[:, :, :20]
    mask = torch.rand(1000, generator=generator) < 0.8
    expected = overlap(student, teacher, mask)
    found = overlap(student.to(DEVICE), teacher.to(DEVICE), mask.to(DEVICE))
    assert torch.equal(found.per_token.cpu(), expected.per_token)
    assert torch.equal(found.best_per_token.cpu(), expected.best_per_token)
    assert found.best == expected.best
