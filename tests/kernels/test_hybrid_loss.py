"""The training loss against a float64 loop over tokens written here from the formulas.

T tokens, H hidden size, V vocabulary size, K top-k ids of a token.
"""

import math

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from claw.kernels import hybrid_loss, reference

H = 16
BOTH = pytest.mark.parametrize("function", [hybrid_loss, reference.hybrid_loss])


def matrices(tokens: int, vocab: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, H, generator=generator)
    return hidden, torch.randn(vocab, H, generator=generator) * 0.5


def case(tokens: int, vocab: int, k: int, seed: int = 0, tau: float | Tensor = 1.0) -> dict:
    """Every term on, old log-probs stale enough to clip, the sampled id often in the subset."""
    generator = torch.Generator().manual_seed(seed + 1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    hidden, weight = matrices(tokens, vocab, seed)
    logits = hidden @ weight.t() / (tau[:, None] if isinstance(tau, Tensor) else tau)
    logp = logits.log_softmax(dim=1)
    ids = torch.randint(vocab, (tokens,), generator=generator)
    topk_ids = logits.topk(k, dim=1).indices
    topk_ids[::2, -1] = ids[::2]
    if k > 3:
        topk_ids[:, 1] = topk_ids[:, 0]
        topk_ids[::3, 2] = -1
    return {
        "hidden": hidden,
        "weight": weight,
        "ids": ids,
        "old_logp": logp.gather(1, ids[:, None])[:, 0] + 0.5 * normal(tokens),
        "advantage": normal(tokens),
        "rl_weight": torch.rand(tokens, generator=generator) / tokens,
        "is_weight": torch.rand(tokens, generator=generator) * 2,
        "topk_ids": topk_ids,
        "topk_old_logp": logp.gather(1, topk_ids.clamp(min=0)) + 0.5 * normal(tokens, k),
        "topk_advantage": normal(tokens, k),
        "opd_weight": torch.rand(tokens, generator=generator) / tokens,
        "ref_logp": logp.gather(1, ids[:, None])[:, 0] + normal(tokens),
        "kl_weight": torch.rand(tokens, generator=generator) / tokens,
        "entropy_weight": 0.3 * torch.rand(tokens, generator=generator) / tokens,
        "temperature": tau,
    }


def clipped_term(log_p: Tensor, old: float, advantage: float, low: float, high: float) -> Tensor:
    rho = (log_p - old).clamp(-20, 20).exp()
    return torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - low, 1 + high))


def loss_of_token(z: Tensor, t: int, case: dict, low: float, high: float) -> Tensor:
    """The terms of token t from its float64 logits at its temperature."""
    log_p = z - z.logsumexp(dim=0)
    loss = z.new_zeros(())
    item = {name: value[t] for name, value in case.items() if name not in ("hidden", "weight")}
    if item["rl_weight"] != 0:
        one = clipped_term(log_p[item["ids"]], item["old_logp"], item["advantage"], low, high)
        loss = loss + item["rl_weight"] * item.get("is_weight", 1.0) * one
    if item.get("opd_weight", 0) != 0:
        for v, old, advantage in zip(
            item["topk_ids"], item["topk_old_logp"], item["topk_advantage"], strict=True
        ):
            if v >= 0:
                one = clipped_term(log_p[v], old, advantage, low, high)
                loss = loss + item["opd_weight"] * one
    if item.get("kl_weight", 0) != 0:
        d = (item["ref_logp"] - log_p[item["ids"]]).clamp(-10, 10)
        loss = loss + item["kl_weight"] * (d.exp() - d - 1)
    if item.get("entropy_weight", 0) != 0:
        loss = loss + item["entropy_weight"] * (log_p.exp() * log_p).sum()
    return loss


def truth(case: dict, low: float = 0.2, high: float = 0.28) -> tuple[float, Tensor, Tensor]:
    """-> (loss, d loss / d hidden, d loss / d weight), all float64, by autograd."""
    tensors = {
        name: value.double() if value.is_floating_point() else value
        for name, value in case.items()
        if isinstance(value, Tensor)
    }
    hidden, weight = (tensors[name].clone().requires_grad_() for name in ("hidden", "weight"))
    tau = torch.as_tensor(case.get("temperature", 1.0)).double().expand(len(hidden))
    loss = (hidden * 0).sum() + (weight * 0).sum()
    tensors.pop("temperature", None)
    for t in range(len(hidden)):
        loss = loss + loss_of_token(weight @ hidden[t] / tau[t], t, tensors, low, high)
    loss.backward()
    return loss.item(), hidden.grad, weight.grad


def run(function, case: dict, **options) -> tuple[float, Tensor, Tensor, dict]:
    leaves = {name: case[name].clone().requires_grad_() for name in ("hidden", "weight")}
    loss, metrics = function(**case | leaves | options)
    assert loss.dtype == torch.float32
    assert all(value.dtype == torch.float32 and value.ndim == 0 for value in metrics.values())
    loss.backward()
    return loss.item(), leaves["hidden"].grad, leaves["weight"].grad, metrics


def close(found: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    error = (found.double() - expected.double()).abs().max().item()
    assert error <= tolerance * max(expected.abs().max().item(), 1e-12), error


def agrees(function, case: dict, tolerance: float = 2e-5, **options) -> dict:
    clip = {name[5:]: value for name, value in options.items() if name.startswith("clip_")}
    loss, hidden_grad, weight_grad, metrics = run(function, case, **options)
    expected_loss, expected_hidden, expected_weight = truth(case, **clip)
    assert loss == pytest.approx(expected_loss, rel=tolerance, abs=1e-6)
    close(hidden_grad, expected_hidden, tolerance)
    close(weight_grad, expected_weight, tolerance)
    parts = sum(metrics[name] for name in ("rl_loss", "opd_loss", "kl_loss", "entropy_loss"))
    assert loss == pytest.approx(parts.item(), rel=1e-6, abs=1e-6)
    return metrics


@BOTH
@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("vocab", [130, 1013])
@pytest.mark.parametrize("k", [1, 4, 20])
def test_values_and_gradients_are_those_of_float64(function, tokens, vocab, k) -> None:
    agrees(function, case(tokens, vocab, k), chunk_tokens=3)


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 1000])
def test_the_chunk_size_changes_nothing_but_rounding(chunk: int) -> None:
    one = run(hybrid_loss, case(7, 130, 4), chunk_tokens=chunk)
    whole = run(hybrid_loss, case(7, 130, 4), chunk_tokens=7)
    assert one[0] == pytest.approx(whole[0], rel=1e-5)
    close(one[1], whole[1], 1e-5)
    close(one[2], whole[2], 1e-5)
    for name, value in one[3].items():
        assert value.item() == pytest.approx(whole[3][name].item(), rel=1e-4, abs=1e-5), name


@BOTH
@pytest.mark.parametrize("tau", [0.05, 1.5])
def test_the_gradient_carries_the_temperature(function, tau: float) -> None:
    agrees(function, case(7, 130, 4, tau=tau), tolerance=2e-4)


@BOTH
def test_each_token_has_its_own_temperature(function) -> None:
    tau = torch.tensor([0.05, 1.5, 1.0, 0.05, 0.7, 1.5, 1.0])
    agrees(function, case(7, 130, 4, tau=tau), tolerance=2e-4, chunk_tokens=4)


@BOTH
@pytest.mark.parametrize("term", ["rl", "opd", "kl", "entropy"])
def test_each_term_alone_is_right(function, term: str) -> None:
    one = case(7, 130, 4)
    for name in {"rl", "opd", "kl", "entropy"} - {term}:
        one[f"{name}_weight"] = torch.zeros(7)
    metrics = agrees(function, one, chunk_tokens=2)
    assert metrics[f"{term}_loss"].item() != 0


def test_the_plain_version_counts_the_same() -> None:
    one = case(40, 130, 4)
    one["old_logp"][3] = one["topk_old_logp"][5, 0] = one["ref_logp"][7] = -torch.inf
    fast, plain = run(hybrid_loss, one)[3], run(reference.hybrid_loss, one)[3]
    assert set(fast) == set(plain)
    for name, value in fast.items():
        assert value.item() == pytest.approx(plain[name].item(), rel=1e-4, abs=1e-5), name
    assert fast["missing_logp"] == 3
    assert min(fast[f"{name}_count"].item() for name in ("clip_low", "clip_high", "opd_clip")) > 0


@BOTH
def test_the_entropy_is_summed_over_the_rows_in_use(function) -> None:
    one = case(7, 130, 4)
    for name in ("rl_weight", "opd_weight", "kl_weight", "entropy_weight"):
        one[name][2:4] = 0.0
    p = (one["hidden"].double() @ one["weight"].double().t()).softmax(dim=1)
    entropy = -(p * p.log()).sum(dim=1)
    _, _, _, metrics = run(function, one)
    assert metrics["tokens"] == 5
    expected = (entropy.sum() - entropy[2:4].sum()).item()
    assert metrics["entropy"].item() == pytest.approx(expected, rel=1e-5)


@BOTH
def test_optional_groups_may_be_absent(function) -> None:
    full = case(7, 130, 4)
    names = ("hidden", "weight", "ids", "old_logp", "advantage", "rl_weight")
    agrees(function, {name: full[name] for name in names})


@BOTH
def test_clipping_is_active_on_both_sides_and_counted(function) -> None:
    """Ratios far below and above the window with both signs of the advantage: 4 of 8 are held."""
    one = case(8, 130, 1)
    logp = (one["hidden"] @ one["weight"].t()).log_softmax(dim=1)
    log_ratio = torch.tensor([-1.0, -1.0, 1.0, 1.0, -0.1, 0.1, 25.0, -25.0])
    sign = torch.tensor([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0])
    one |= {
        "old_logp": logp.gather(1, one["ids"][:, None])[:, 0] - log_ratio,
        "advantage": sign,
        "topk_ids": one["ids"][:, None],
        "topk_old_logp": (logp.gather(1, one["ids"][:, None])[:, 0] - log_ratio)[:, None],
        "topk_advantage": sign[:, None],
    }
    metrics = agrees(function, one)
    assert metrics["clip_low_count"] == 2
    assert metrics["clip_high_count"] == 2
    assert metrics["opd_clip_count"] == 4
    assert metrics["rl_tokens"] == metrics["opd_tokens"] == metrics["tokens"] == 8
    assert metrics["abs_log_ratio_sum"].item() == pytest.approx(54.2, rel=1e-4)
    assert metrics["abs_log_ratio_max"].item() == pytest.approx(25.0, rel=1e-4)
    d = log_ratio.double().clamp(-20, 20)
    assert metrics["approx_kl"].item() == pytest.approx((d.exp() - d - 1).sum().item(), rel=1e-4)
    agrees(function, one, clip_low=0.0, clip_high=3.0)


@BOTH
def test_a_log_ratio_beyond_twenty_is_held_and_pushes_no_more(function) -> None:
    one = case(1, 130, 1)
    zero = torch.zeros(1)
    one |= {"opd_weight": zero, "kl_weight": zero, "entropy_weight": zero}
    one |= {"old_logp": torch.tensor([-60.0]), "advantage": -torch.ones(1)}
    one |= {"rl_weight": torch.ones(1), "is_weight": torch.ones(1)}
    loss, hidden_grad, _, _ = run(function, one)
    assert loss == pytest.approx(math.exp(20), rel=1e-5)
    assert not hidden_grad.any()


@BOTH
def test_the_reference_kl_is_clamped_at_ten(function) -> None:
    one = case(2, 130, 1)
    zero = torch.zeros(2)
    one |= {"opd_weight": zero, "rl_weight": zero, "entropy_weight": zero}
    one |= {"ref_logp": torch.tensor([-90.0, 30.0]), "kl_weight": torch.ones(2)}
    loss, hidden_grad, _, _ = run(function, one)
    assert loss == pytest.approx(math.exp(-10) + 10 - 1 + math.exp(10) - 10 - 1, rel=1e-5)
    assert not hidden_grad.any()


@BOTH
def test_an_id_named_twice_gets_both_gradients(function) -> None:
    """The sampled id stands in the subset twice more: three pushes on one logit."""
    one = case(5, 130, 4)
    one["topk_ids"] = one["ids"][:, None].expand(5, 4).clone()
    one["topk_ids"][:, 3] = -1
    logp = (one["hidden"] @ one["weight"].t()).log_softmax(dim=1)
    one["topk_old_logp"] = logp.gather(1, one["ids"][:, None]).expand(5, 4).clone()
    agrees(function, one)


@BOTH
def test_sampled_token_opd_is_top_one_with_the_sampled_id(function) -> None:
    one = case(7, 130, 1)
    zero = torch.zeros(7)
    one |= {"kl_weight": zero, "entropy_weight": zero, "is_weight": torch.ones(7)}
    one |= {"topk_ids": one["ids"][:, None], "topk_old_logp": one["old_logp"][:, None]}
    one |= {"topk_advantage": one["advantage"][:, None], "opd_weight": one["rl_weight"]}
    as_opd = run(function, one | {"rl_weight": zero})
    as_rl = run(function, one | {"opd_weight": zero})
    assert as_opd[0] == pytest.approx(as_rl[0], rel=1e-6)
    close(as_opd[1], as_rl[1], 1e-6)
    close(as_opd[2], as_rl[2], 1e-6)


@BOTH
def test_removing_the_teacher_changes_the_gradient(function) -> None:
    one = case(7, 130, 4)
    _, with_hidden, with_weight, _ = run(function, one)
    names = ("topk_ids", "topk_old_logp", "topk_advantage", "opd_weight")
    bare = {name: value for name, value in one.items() if name not in names}
    _, hidden, weight, metrics = run(function, bare)
    assert (with_hidden - hidden).abs().max() > 0.1 * with_hidden.abs().max()
    assert (with_weight - weight).abs().max() > 0.1 * with_weight.abs().max()
    assert metrics["opd_loss"] == 0
    assert metrics["opd_tokens"] == 0


def garbage(one: dict, off: Tensor) -> dict:
    """All weights 0 where off, and the worst beside them."""
    spoiled = {name: value.clone() for name, value in one.items() if isinstance(value, Tensor)}
    bad = torch.tensor([torch.nan, -torch.inf, torch.inf]).repeat(off.numel())[: off.numel()]
    for name in ("rl_weight", "opd_weight", "kl_weight", "entropy_weight"):
        spoiled[name][off] = 0.0
    for name in ("old_logp", "advantage", "is_weight", "ref_logp"):
        spoiled[name][off] = bad[off]
    for name in ("topk_old_logp", "topk_advantage"):
        spoiled[name][off] = bad[off, None]
    spoiled["ids"][off] = -1
    spoiled["topk_ids"][off] = -1
    return spoiled


@BOTH
def test_nan_and_inf_under_a_zero_weight_do_not_matter(function) -> None:
    one, off = case(7, 130, 4), torch.tensor([1, 0, 1, 1, 0, 0, 1]).bool()
    clean = {name: value.clone() for name, value in one.items() if isinstance(value, Tensor)}
    for name in ("rl_weight", "opd_weight", "kl_weight", "entropy_weight"):
        clean[name][off] = 0.0
    expected_loss, expected_hidden, expected_weight = truth(clean)
    loss, hidden_grad, weight_grad, metrics = run(function, garbage(one, off))
    assert loss == pytest.approx(expected_loss, rel=2e-5)
    close(hidden_grad, expected_hidden)
    close(weight_grad, expected_weight)
    assert not hidden_grad[off].any()
    assert all(value.isfinite() for value in metrics.values())
    assert metrics["tokens"] == 3
    assert metrics["missing_logp"] == 0


def test_rows_without_a_term_may_hold_any_id_temperature_and_hidden_state() -> None:
    one, off = case(7, 130, 4), torch.tensor([1, 0, 1, 1, 0, 0, 1]).bool()
    spoiled = garbage(one, off)
    expected = run(hybrid_loss, spoiled)
    spoiled["ids"][off] = 10**9
    spoiled["topk_ids"][off] = -7
    spoiled["hidden"][off] = torch.nan
    spoiled["temperature"] = torch.where(off, 0.0, 1.0)
    found = run(hybrid_loss, spoiled)
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])
    assert torch.equal(found[2], expected[2])


def test_a_row_with_one_term_ignores_what_the_others_hold() -> None:
    """OPD without a reward, and a reward without a hint, in one batch."""
    one = case(6, 130, 4)
    zero = torch.zeros(6)
    opd_only = torch.tensor([1, 1, 1, 0, 0, 0]).bool()
    one |= {"kl_weight": zero, "entropy_weight": zero}
    one["rl_weight"] = one["rl_weight"].masked_fill(opd_only, 0.0)
    one["opd_weight"] = one["opd_weight"].masked_fill(~opd_only, 0.0)
    expected_loss, expected_hidden, expected_weight = truth(one)
    one["ids"] = one["ids"].masked_fill(opd_only, -100)
    one["old_logp"] = one["old_logp"].masked_fill(opd_only, torch.nan)
    one["topk_ids"] = one["topk_ids"].masked_fill(~opd_only[:, None], 10**9)
    one["topk_advantage"] = one["topk_advantage"].masked_fill(~opd_only[:, None], torch.nan)
    loss, hidden_grad, weight_grad, metrics = run(hybrid_loss, one)
    assert loss == pytest.approx(expected_loss, rel=2e-5)
    close(hidden_grad, expected_hidden)
    close(weight_grad, expected_weight)
    assert metrics["rl_tokens"] == metrics["opd_tokens"] == 3


@BOTH
@pytest.mark.parametrize("tokens", [0, 7])
def test_a_fully_masked_batch_has_loss_zero_and_gradients_zero(function, tokens: int) -> None:
    one = garbage(case(7, 130, 4), torch.ones(7).bool())
    one = {name: value if name == "weight" else value[:tokens] for name, value in one.items()}
    loss, hidden_grad, weight_grad, metrics = run(function, one)
    assert loss == 0
    assert hidden_grad.shape == (tokens, H)
    assert not hidden_grad.any()
    assert not weight_grad.any()
    assert not any(value.item() for value in metrics.values())


@BOTH
def test_an_unknown_log_prob_is_no_term_and_is_counted(function) -> None:
    """-inf in old, top-k old and reference log-probs is the same as a weight of 0 there."""
    one = case(7, 130, 4)
    known = {name: value.clone() for name, value in one.items() if isinstance(value, Tensor)}
    known["rl_weight"][2] = 0.0
    known["kl_weight"][3] = 0.0
    known["topk_ids"][4, 3] = -1
    known["opd_weight"][5] = 0.0
    expected_loss, expected_hidden, expected_weight = truth(known)
    one["old_logp"][2] = -torch.inf
    one["ref_logp"][3] = -torch.inf
    one["topk_old_logp"][4, 3] = -torch.inf
    one["topk_old_logp"][5] = -torch.inf
    loss, hidden_grad, weight_grad, metrics = run(function, one)
    assert loss == pytest.approx(expected_loss, rel=2e-5)
    close(hidden_grad, expected_hidden)
    close(weight_grad, expected_weight)
    assert metrics["missing_logp"] == 3 + (one["topk_ids"][5] >= 0).sum()
    assert metrics["rl_tokens"] == 6


@BOTH
def test_a_tied_embedding_gets_both_gradients(function) -> None:
    one = case(7, 130, 4)
    tokens = torch.arange(7) * 5
    extra = {name: value for name, value in one.items() if name not in ("hidden", "weight")}

    table = one["weight"].clone().requires_grad_()
    loss, _ = function(torch.tanh(table[tokens]), table, **extra)
    (3.0 * loss).backward()

    exact = one["weight"].double().requires_grad_()
    hidden = torch.tanh(exact[tokens])
    doubles = {
        name: value.double() if value.is_floating_point() else value
        for name, value in extra.items()
        if isinstance(value, Tensor)
    }
    total = sum(loss_of_token(exact @ hidden[t], t, doubles, 0.2, 0.28) for t in range(len(tokens)))
    (3.0 * total).backward()
    close(table.grad, exact.grad)


class Allocations(TorchDispatchMode):
    """Every tensor made inside: the largest live number of elements, and all shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak, self.shapes = 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.shapes.add(tuple(tensor.shape))
                storage = tensor.untyped_storage()
                self.live[storage._cdata] = (StorageWeakRef(storage), storage.nbytes() // 4)
        self.live = {key: pair for key, pair in self.live.items() if not pair[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return out


def test_a_second_backward_pass_is_refused_as_the_gradients_were_given_away() -> None:
    one = case(9, 130, 2)
    leaves = {name: one[name].requires_grad_() for name in ("hidden", "weight")}
    loss, _ = hybrid_loss(**one | leaves)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"second call; allowed: one in .*recompute"):
        loss.backward()
    again, _ = hybrid_loss(**one | leaves, mode="recompute")
    first = torch.autograd.grad(again, leaves["weight"], retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(again, leaves["weight"])[0])


def test_memory_is_a_few_chunks_and_never_tokens_times_vocabulary() -> None:
    tokens, vocab, chunk = 200, 4003, 8
    one = case(tokens, vocab, 4)
    leaves = {name: one[name].requires_grad_() for name in ("hidden", "weight")}
    with Allocations() as seen:
        loss, _ = hybrid_loss(**one | leaves, chunk_tokens=chunk)
        loss.backward()
    gradients = tokens * H + vocab * H  # made in the forward pass, given away in the backward
    assert seen.peak >= vocab * H + chunk * vocab  # the meter meters
    assert seen.peak <= gradients + 4 * chunk * vocab + 60 * tokens * 5
    assert seen.peak < 0.5 * tokens * vocab
    assert (tokens, vocab) not in seen.shapes


def test_the_meter_sees_the_full_logits_of_the_plain_version() -> None:
    one = case(50, 1013, 4)
    with Allocations() as seen:
        reference.hybrid_loss(**one | {"hidden": one["hidden"].requires_grad_()})
    assert seen.peak > 50 * 1013
    assert (50, 1013) in seen.shapes


def test_nothing_is_computed_for_a_frozen_weight() -> None:
    one = case(7, 130, 4)
    expected = run(hybrid_loss, one)[1]
    hidden = one["hidden"].clone().requires_grad_()
    with Allocations() as seen:
        loss, _ = hybrid_loss(**one | {"hidden": hidden})
        loss.backward()
    assert torch.equal(hidden.grad, expected)
    assert one["weight"].grad is None
    assert (130, H) not in seen.shapes


def test_nothing_is_computed_for_a_frozen_hidden_state() -> None:
    one = case(7, 130, 4)
    expected = run(hybrid_loss, one)[2]
    weight = one["weight"].clone().requires_grad_()
    with Allocations() as seen:
        loss, _ = hybrid_loss(**one | {"weight": weight}, chunk_tokens=7)
        loss.backward()
    assert torch.equal(weight.grad, expected)
    assert (130, H) in seen.shapes


def test_without_gradients_the_loss_is_a_plain_number() -> None:
    one = case(7, 130, 4)
    with torch.no_grad():
        loss, _ = hybrid_loss(**one | {"hidden": one["hidden"].clone().requires_grad_()})
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(truth(one)[0], rel=2e-5)


def test_the_upstream_gradient_scales_and_a_split_batch_adds_up() -> None:
    one = case(7, 130, 4)
    whole = run(hybrid_loss, one)
    leaves = {name: one[name].clone().requires_grad_() for name in ("hidden", "weight")}
    for part in (slice(0, 3), slice(3, 7)):
        some = {
            name: value[part] if isinstance(value, Tensor) else value
            for name, value in (one | {"hidden": leaves["hidden"]}).items()
        }
        loss, _ = hybrid_loss(**some | {"weight": leaves["weight"]})
        (loss * -2.5).backward()
    close(leaves["hidden"].grad, -2.5 * whole[1], 1e-5)
    close(leaves["weight"].grad, -2.5 * whole[2], 1e-5)


def test_bfloat16_gradients_are_rounded_once() -> None:
    one = case(40, 130, 4)
    one |= {name: one[name].bfloat16() for name in ("hidden", "weight")}
    one |= {"opd_weight": torch.zeros(40), "kl_weight": torch.zeros(40)}
    # Far from the edges of the clip, where the rounding of a log-prob would flip a branch.
    one |= {"advantage": -one["advantage"].abs(), "old_logp": one["old_logp"] - 3.0}
    _, expected_hidden, expected_weight = truth(one)
    _, hidden_grad, weight_grad, _ = run(hybrid_loss, one, chunk_tokens=3)
    assert hidden_grad.dtype == weight_grad.dtype == torch.bfloat16
    close(hidden_grad, expected_hidden, 2e-2)
    close(weight_grad, expected_weight, 2e-2)


def test_a_confident_token_keeps_its_gradient_in_bfloat16() -> None:
    """p = 0.9991: p - 1 is formed before rounding; rounding p first would leave nothing of it."""
    vocab = 130
    hidden = torch.zeros(1, vocab, dtype=torch.bfloat16)
    hidden[0, 3] = 11.875
    hidden.requires_grad_()
    one = torch.ones(1)
    loss, _ = hybrid_loss(
        hidden,
        torch.eye(vocab, dtype=torch.bfloat16),
        ids=torch.tensor([3]),
        old_logp=torch.zeros(1),
        advantage=one,
        rl_weight=one,
    )
    loss.backward()
    p = 1 / (1 + (vocab - 1) * math.exp(-11.875))
    assert p > 0.999
    assert hidden.grad[0, 3].item() == pytest.approx(-p * (1 - p), rel=4e-3)


def ones() -> dict:
    full = case(3, 130, 2)
    return {name: value for name, value in full.items() if name != "temperature"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": torch.zeros(3)}, "hidden: found shape"),
        ({"hidden": torch.full((3, H), torch.nan)}, "hidden: found NaN"),
        ({"weight": torch.zeros(130, H + 1)}, "weight: found shape"),
        ({"weight": torch.full((130, H), torch.nan)}, "weight: found NaN"),
        ({"ids": torch.zeros(2, dtype=torch.int64)}, "ids: found shape"),
        ({"ids": torch.zeros(3)}, "ids: found torch.float32"),
        ({"ids": torch.full((3,), 130)}, "ids: found id 130; allowed: 0 to 129"),
        ({"ids": torch.full((3,), -1)}, "ids: found id -1; allowed: 0 to 129"),
        ({"old_logp": torch.zeros(3, 1)}, "old_logp: found shape"),
        ({"old_logp": torch.zeros(3).double()}, "old_logp: found torch.float64"),
        ({"old_logp": torch.full((3,), torch.nan)}, "old_logp: found NaN"),
        ({"advantage": torch.full((3,), torch.inf)}, "advantage: found NaN or inf"),
        ({"advantage": torch.zeros(3, device="meta")}, "advantage: found meta"),
        ({"rl_weight": torch.full((3,), torch.nan)}, "rl_weight . is_weight: found NaN"),
        ({"is_weight": torch.zeros(4)}, "is_weight: found shape"),
        ({"topk_ids": torch.full((3, 2), 130)}, "topk_ids: found id 130"),
        ({"topk_ids": torch.full((3, 2), -2)}, "topk_ids: found id -2"),
        ({"topk_ids": torch.zeros(3, 131).long()}, "topk_ids: found 131 ids a token"),
        ({"topk_ids": torch.zeros(3, 3).long()}, "topk_old_logp: found shape"),
        ({"topk_advantage": torch.full((3, 2), torch.nan)}, "topk_advantage: found NaN"),
        ({"topk_advantage": None}, "topk_advantage: found None; allowed: topk_ids, "),
        ({"opd_weight": torch.full((3,), torch.inf)}, "opd_weight: found NaN or inf"),
        ({"ref_logp": None}, "ref_logp: found None"),
        ({"ref_logp": torch.full((3,), torch.nan)}, "ref_logp: found NaN"),
        ({"entropy_weight": torch.full((3,), torch.nan)}, "entropy_weight: found NaN"),
        ({"temperature": 0.0}, "temperature: found 0.0"),
        ({"temperature": torch.tensor([1.0, -1.0, 1.0])}, "temperature: found -1.0"),
        ({"clip_low": 1.5}, "clip_low: found 1.5"),
        ({"clip_high": -0.1}, "clip_high: found -0.1"),
        ({"chunk_tokens": 2.5}, "chunk_tokens: found 2.5"),
    ],
)
def test_a_bad_argument_is_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hybrid_loss(**ones() | change)
