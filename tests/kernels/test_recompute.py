"""Gradients made again in the backward pass, and the weight's gradient in a tensor of one's own.

T tokens, V vocabulary size. Truth: float64 by autograd over the full log-softmax, written here.
"""

import pytest
import torch
from some_losses import case, close, leaves, run
from torch import Tensor

from claw.kernels import hybrid_loss, score


def token_losses(hidden: Tensor, weight: Tensor, one: dict[str, Tensor]) -> Tensor:
    """[T] float64 by the formulas, differentiable."""
    value = {n: v.double() if v.is_floating_point() else v for n, v in one.items()}
    logp = (hidden @ weight.t() / value["temperature"][:, None]).log_softmax(dim=1)

    def clipped(log_p: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
        rho = (log_p - old).clamp(-20, 20).exp()
        return torch.maximum(-advantage * rho, -advantage * rho.clamp(0.8, 1.28))

    sampled = logp.gather(1, one["ids"][:, None])[:, 0]
    total = value["rl_weight"] * value["is_weight"]
    total = total * clipped(sampled, value["old_logp"], value["advantage"])
    chosen = logp.gather(1, one["topk_ids"].clamp(min=0))
    each = clipped(chosen, value["topk_old_logp"], value["topk_advantage"])
    each = torch.where(one["topk_ids"] >= 0, each, 0.0)
    total = total + value["opd_weight"] * each.sum(dim=1)
    d = (value["ref_logp"] - sampled).clamp(-10, 10)
    total = total + value["kl_weight"] * (d.exp() - d - 1)
    return total + value["entropy_weight"] * (logp.exp() * logp).sum(dim=1)


def truth(one: dict[str, Tensor], upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-> (loss of each token, gradients of its sum with upstream to hidden and weight)."""
    hidden, weight = (one[n].double().requires_grad_() for n in ("hidden", "weight"))
    loss = token_losses(hidden, weight, one)
    (loss * upstream.double()).sum().backward()
    return loss.detach(), hidden.grad, weight.grad


@pytest.mark.parametrize("chunk", [2, 7, None])
def test_an_upstream_gradient_of_each_token_is_folded_into_its_row(chunk: int | None) -> None:
    one = case()
    hidden, weight, rest = leaves(one)
    upstream = torch.linspace(-2.0, 3.0, 7)
    loss, _ = hybrid_loss(
        hidden, weight, **rest, mode="recompute", reduction="none", chunk_tokens=chunk
    )
    loss.backward(upstream)
    expected, expected_hidden, expected_weight = truth(one, upstream)
    close(loss.detach(), expected, 2e-5)
    close(hidden.grad, expected_hidden, 2e-5)
    close(weight.grad, expected_weight, 2e-5)


def test_a_normaliser_that_is_known_only_afterwards_can_be_divided_by() -> None:
    """The mean over the tokens whose loss is positive, and a weight that follows from the loss."""
    one = case()
    hidden, weight, rest = leaves(one)
    loss, _ = hybrid_loss(hidden, weight, **rest, mode="recompute", reduction="none")
    (loss.clamp(min=0).sum() / (loss > 0).sum()).backward()
    exact_loss = truth(one, torch.ones(7))[0]
    share = (exact_loss > 0).double() / (exact_loss > 0).sum()
    _, expected_hidden, expected_weight = truth(one, share)
    close(hidden.grad, expected_hidden, 2e-5)
    close(weight.grad, expected_weight, 2e-5)


def test_a_sequence_ratio_is_trained_through_the_ratios_of_its_tokens() -> None:
    """GSPO: -A (s clipped), s the geometric mean of a sequence's ratios, here of 3 and 4 tokens.

    With A = -1 and no clip the loss of a token is its ratio, and so its log the log-ratio.
    """
    one = case()
    hidden, weight, _ = leaves(one)
    advantage = torch.tensor([1.5, -0.7])

    def gspo(log_ratio: Tensor) -> Tensor:
        s = torch.stack([part.mean() for part in log_ratio.split([3, 4])]).exp()
        a = advantage.to(s.dtype)
        return torch.maximum(-a * s, -a * s.clamp(0.7, 1.4)).mean()

    ratio, _ = hybrid_loss(
        hidden, weight, ids=one["ids"], old_logp=one["old_logp"],
        advantage=-torch.ones(7), rl_weight=torch.ones(7), temperature=one["temperature"],
        clip_low=1.0, clip_high=torch.inf, mode="recompute", reduction="none",
    )  # fmt: skip
    loss = gspo(ratio.log())
    loss.backward()

    exact_hidden, exact_weight = (one[n].double().requires_grad_() for n in ("hidden", "weight"))
    logits = exact_hidden @ exact_weight.t() / one["temperature"].double()[:, None]
    logp = logits.log_softmax(dim=1).gather(1, one["ids"][:, None])[:, 0]
    exact = gspo(logp - one["old_logp"].double())
    exact.backward()
    close(loss.detach(), exact.detach(), 2e-5)
    close(hidden.grad, exact_hidden.grad, 2e-5)
    close(weight.grad, exact_weight.grad, 2e-5)
    assert hidden.grad[:3].abs().max() > 0 and hidden.grad[3:].abs().max() > 0, "nothing is clipped"


def test_one_number_as_upstream_gradient_gives_what_the_forward_mode_gives() -> None:
    for factor in (1.0, -2.5):
        found = []
        for mode in ("forward", "recompute"):
            hidden, weight, rest = leaves(case())
            loss, metrics = hybrid_loss(hidden, weight, **rest, mode=mode)
            (factor * loss).backward()
            found.append((loss.detach(), hidden.grad, weight.grad, metrics))
        assert torch.equal(found[0][0], found[1][0])
        close(found[1][1], found[0][1])
        close(found[1][2], found[0][2])
        assert all(torch.equal(found[0][3][name], found[1][3][name]) for name in found[0][3])


def test_a_token_without_a_term_has_loss_zero_and_no_gradient_whatever_comes_from_above() -> None:
    hidden, weight, rest = leaves(case())
    loss, _ = hybrid_loss(hidden, weight, **rest, mode="recompute", reduction="none")
    upstream = torch.ones(7)
    upstream[3] = 1e30
    loss.backward(upstream)
    assert loss[3] == 0
    assert not hidden.grad[3].any()
    assert hidden.grad.abs().max() < 10


def test_the_sum_hands_back_a_gradient_of_stride_zero_and_it_is_read_right() -> None:
    """`sum` expands one number over the tokens; `cat` hands back a strided one."""
    one = case()
    plain = run(one, mode="recompute", reduction="none")
    summed = run(one, mode="recompute", reduction="sum")
    close(plain[1], summed[1])
    hidden, weight, rest = leaves(one)
    loss, _ = hybrid_loss(hidden, weight, **rest, mode="recompute", reduction="none")
    strided = torch.stack([torch.ones(7), torch.full((7,), 9.0)], dim=1)[:, 0]
    loss.backward(strided)
    close(hidden.grad, plain[1])


def test_nothing_is_kept_between_the_passes_but_the_arguments() -> None:
    one, saved = case(), []
    hidden, weight, rest = leaves(one)
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor.data_ptr()) or tensor, lambda tensor: tensor
    )
    with hooks:
        hybrid_loss(hidden, weight, **rest, mode="recompute")
    assert saved == [hidden.data_ptr(), weight.data_ptr()]


def test_a_weight_that_changed_before_the_backward_pass_is_an_error() -> None:
    hidden, weight, rest = leaves(case())
    loss, _ = hybrid_loss(hidden, weight, **rest, mode="recompute")
    with torch.no_grad():
        weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("mode", ["forward", "recompute"])
def test_a_tied_embedding_gets_both_gradients(mode: str) -> None:
    one = case()
    rest = {n: v for n, v in one.items() if n not in ("hidden", "weight")}
    tokens = torch.arange(7) * 5
    table = one["weight"].clone().requires_grad_()
    loss, _ = hybrid_loss(torch.tanh(table[tokens]), table, **rest, mode=mode)
    (3.0 * loss).backward()
    exact = one["weight"].double().requires_grad_()
    (3.0 * token_losses(torch.tanh(exact[tokens]), exact, one).sum()).backward()
    close(table.grad, exact.grad, 2e-5)


def test_a_tied_embedding_may_give_its_own_gradient_as_the_place_to_add_to() -> None:
    one = case()
    rest = {n: v for n, v in one.items() if n not in ("hidden", "weight")}
    tokens = torch.arange(7) * 5
    table = one["weight"].clone().requires_grad_()
    table.grad = torch.zeros_like(table)
    place = table.grad
    loss, _ = hybrid_loss(
        torch.tanh(table[tokens]), table, **rest, mode="recompute", weight_grad=place
    )
    (3.0 * loss).backward()
    exact = one["weight"].double().requires_grad_()
    (3.0 * token_losses(torch.tanh(exact[tokens]), exact, one).sum()).backward()
    close(table.grad, exact.grad, 2e-5)


@pytest.mark.parametrize("mode", ["forward", "recompute"])
def test_gradients_of_micro_batches_add_up_in_the_given_tensor(mode: str) -> None:
    """In float32 also where the weight is bfloat16, and beside what was there before."""
    one = case(9)
    one |= {n: one[n].bfloat16() for n in ("hidden", "weight")}
    before = torch.randn(130, one["weight"].shape[1])
    place, weight = before.clone(), one["weight"].clone().requires_grad_()
    for part in (slice(0, 2), slice(2, 9)):
        some = {n: v[part] for n, v in one.items() if n not in ("hidden", "weight")}
        hidden = one["hidden"][part].clone().requires_grad_()
        loss, _ = hybrid_loss(hidden, weight, **some, mode=mode, weight_grad=place)
        loss.backward()
        assert hidden.grad is not None
    assert weight.grad is None
    whole = torch.zeros_like(before)
    hidden, weight, rest = leaves(one)
    loss, _ = hybrid_loss(hidden, weight, **rest, mode=mode, weight_grad=whole)
    loss.backward()
    assert whole.any()
    close(place - before, whole, 2e-2)  # of bfloat16 products
    close(whole, truth(one, torch.ones(9))[2], 2e-2)


def test_the_forward_mode_refuses_to_scale_what_it_already_added() -> None:
    hidden, weight, rest = leaves(case())
    loss, _ = hybrid_loss(hidden, weight, **rest, weight_grad=torch.zeros_like(weight))
    with pytest.raises(RuntimeError, match=r"weight_grad: found an upstream gradient of 2\.0"):
        (2.0 * loss).backward()


def test_the_recompute_mode_scales_what_it_adds() -> None:
    hidden, weight, rest = leaves(case())
    place = torch.zeros_like(weight)
    loss, _ = hybrid_loss(hidden, weight, **rest, mode="recompute", weight_grad=place)
    assert not place.any()  # nothing before the backward pass
    (2.0 * loss).backward()
    close(place, 2.0 * run(case())[2])


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts matrix products, and the tensors as large as the weight."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape, self.products, self.large = shape, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_)
        made = isinstance(out, Tensor) and out.shape == self.shape and out.is_contiguous()
        self.large += made and func.overloadpacket is not torch.ops.aten.detach
        return out


@pytest.mark.parametrize(("mode", "products"), [("forward", 2), ("recompute", 3)])
def test_nothing_is_computed_or_allocated_for_a_frozen_head(mode: str, products: int) -> None:
    one = case()
    expected = run(one, mode=mode)[1]
    hidden, weight, rest = leaves(one)
    with Products(weight.shape) as seen:
        loss, _ = hybrid_loss(hidden, weight.detach(), **rest, mode=mode)
        loss.backward()
    assert torch.equal(hidden.grad, expected)
    assert (seen.products, seen.large) == (products, 0)
    hidden, weight, rest = leaves(one)
    with Products(weight.shape) as seen:
        loss, _ = hybrid_loss(hidden, weight, **rest, mode=mode)
        loss.backward()
    assert seen.products == products + 1 and seen.large > 0  # the meter meters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "later"}, "mode: found 'later'; allowed: 'forward' or 'recompute'"),
        ({"reduction": "mean"}, "reduction: found 'mean'; allowed: 'sum' or 'none'"),
        ({"reduction": "none"}, "reduction: found 'none' in mode 'forward'"),
        ({"weight_grad": torch.zeros(130, 15)}, "weight_grad: found shape"),
        ({"weight_grad": torch.zeros(130, 16).bfloat16()}, "weight_grad: found torch.bfloat16"),
    ],
)
def test_a_bad_option_is_refused_by_name(change: dict, message: str) -> None:
    hidden, weight, rest = leaves(case())
    with pytest.raises(ValueError, match=message):
        hybrid_loss(hidden, weight, **rest | change)


def test_a_place_for_the_gradient_of_a_frozen_weight_is_refused() -> None:
    hidden, weight, rest = leaves(case())
    place = torch.zeros_like(weight)
    with pytest.raises(ValueError, match="weight_grad: found a weight without gradients"):
        hybrid_loss(hidden, weight.detach(), **rest, weight_grad=place)


def test_scoring_and_training_see_the_same_log_probs() -> None:
    """The ratio of the first step is exactly 1 when l_old comes from `score`."""
    one = case()
    found = score(one["hidden"], one["weight"], one["ids"][:, None], 0, one["temperature"])
    one["old_logp"] = found.logp[:, 0]
    metrics = run(one, mode="recompute")[3]
    assert metrics["rl_tokens"] == 6 and metrics["abs_log_ratio_max"] == 0
