"""The table of losses against float64 computed here from the formulas. T tokens, K ids."""

import math

import numpy as np
import pytest
import torch

from claw.engine.trainer.loss import (
    METHODS,
    choose_hint,
    combined_advantage,
    opd_advantage,
    sampled_opd_advantage,
    subset,
    token_weights,
    truncated_is_weight,
)
from claw.kernels import hybrid_loss, overlap

INF = math.inf


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_table_names_five_methods_and_their_terms() -> None:
    assert set(METHODS) == {"grpo", "opd", "opd-sampled", "hybrid", "combined"}
    assert {name for name, method in METHODS.items() if method.rl} == {"grpo", "hybrid", "combined"}
    assert {name for name, method in METHODS.items() if method.topk} == {"opd", "hybrid"}
    assert not METHODS["grpo"].opd


SAMPLES = torch.tensor([0, 0, 0, 1, 1, 2])
MASK = torch.tensor([1, 1, 0, 1, 0, 0]).bool()
LENGTHS = torch.tensor([2, 1, 0])


def test_the_sample_mean_is_over_tokens_then_over_samples_that_have_the_term() -> None:
    values = normal(6)
    weights = token_weights(LENGTHS, SAMPLES, MASK, "sample-mean", count=2)
    expected = (values[:2].double().mean() + values[3].double()) / 2
    assert (weights * values).sum().item() == pytest.approx(expected.item(), rel=1e-6)
    assert weights.dtype == torch.float32
    assert not weights[~MASK].any()


def test_the_token_mean_is_over_all_tokens_that_have_the_term() -> None:
    values = normal(6)
    weights = token_weights(LENGTHS, SAMPLES, MASK, "token-mean", count=3)
    expected = values[MASK].double().mean()
    assert (weights * values).sum().item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(("rule", "count"), [("sample-mean", 2), ("token-mean", 3)])
def test_a_batch_in_parts_weighs_what_the_whole_batch_does(rule: str, count: int) -> None:
    whole = token_weights(LENGTHS, SAMPLES, MASK, rule, count)
    parts = [
        token_weights(LENGTHS, SAMPLES[part], MASK[part], rule, count)
        for part in (slice(0, 1), slice(1, 6))
    ]
    assert torch.equal(whole, torch.cat(parts))
    assert whole.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("rule", ["sample-mean", "token-mean"])
def test_a_fully_masked_batch_has_loss_zero_and_gradients_zero(rule: str) -> None:
    none = torch.zeros(6).bool()
    weights = token_weights(torch.zeros(3).long(), SAMPLES, none, rule, count=0)
    assert not weights.any()
    hidden, weight = normal(6, 8).requires_grad_(), normal(20, 8).requires_grad_()
    nan = torch.full((6,), torch.nan)
    loss, _ = hybrid_loss(
        hidden, weight, ids=SAMPLES, old_logp=nan, advantage=nan, rl_weight=weights
    )
    loss.backward()
    assert loss.item() == 0
    assert not hidden.grad.any()
    assert not weight.grad.any()


def test_token_weights_refuse_what_they_cannot_mean() -> None:
    with pytest.raises(ValueError, match="rule: found 'mean'"):
        token_weights(LENGTHS, SAMPLES, MASK, "mean", 2)
    with pytest.raises(ValueError, match="count: found 0 with a term"):
        token_weights(LENGTHS, SAMPLES, MASK, "token-mean", 0)
    with pytest.raises(ValueError, match="lengths: found 0"):
        token_weights(torch.zeros(3).long(), SAMPLES, MASK, "sample-mean", 2)


def expected_advantage(old: np.ndarray, teacher: np.ndarray, valid: np.ndarray, c: float):
    """Row by row from the definition, float64."""
    out = np.zeros_like(old)
    for t in range(len(old)):
        known = [
            v
            for v in range(old.shape[1])
            if valid[t, v] and old[t, v] != -np.inf and teacher[t, v] != -np.inf
        ]
        total = sum(math.exp(old[t, v]) for v in known)
        for v in known:
            delta = min(max(teacher[t, v] - old[t, v], -c), c)
            out[t, v] = delta * math.exp(old[t, v]) / total
    return out


@pytest.mark.parametrize("k", [1, 4, 20])
@pytest.mark.parametrize("clip_c", [0.3, 1.0, INF])
def test_the_top_k_advantage_is_the_clipped_gap_times_the_student_weight(k, clip_c) -> None:
    old, teacher = -normal(7, k).abs() * 3, -normal(7, k, seed=1).abs() * 3
    valid = torch.rand(7, k, generator=torch.Generator().manual_seed(2)) < 0.7
    valid[3] = False
    old[1, 0] = teacher[2, -1] = old[4, -1] = teacher[4, -1] = -INF
    old[5], teacher[6] = -INF, -INF
    found = opd_advantage(old, teacher, valid, clip_c)
    expected = expected_advantage(
        old.double().numpy(), teacher.double().numpy(), valid.numpy(), clip_c
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-7)
    known = valid & (old != -INF) & (teacher != -INF)
    assert not found[~known].any()
    assert not found[[3, 5, 6]].any()


def test_the_top_k_advantage_has_no_gradient_and_hides_no_nan() -> None:
    old, teacher = normal(3, 4).requires_grad_(), normal(3, 4, seed=1)
    valid = torch.ones(3, 4).bool()
    assert not opd_advantage(old, teacher, valid, 1.0).requires_grad
    teacher[1, 2] = torch.nan
    assert opd_advantage(old, teacher, valid, 1.0)[1, 2].isnan()
    valid[1, 2] = False
    assert not opd_advantage(old, teacher, valid, 1.0).isnan().any()
    with pytest.raises(ValueError, match="clip_c: found 0"):
        opd_advantage(old, teacher, valid, 0)


def test_the_sampled_advantage_is_the_gap_and_unknown_is_zero() -> None:
    old, teacher = torch.tensor([-1.0, -INF, -2.0, -5.0]), torch.tensor([-3.0, -1.0, -INF, -1.0])
    assert sampled_opd_advantage(old, teacher).tolist() == [-2.0, 0.0, 0.0, 4.0]
    assert sampled_opd_advantage(old, teacher, 1.0).tolist() == [-1.0, 0.0, 0.0, 1.0]


def test_the_additive_combination_uses_the_gap_only_where_there_is_a_hint() -> None:
    old, teacher = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-3.0, torch.nan, -INF])
    has_hint = torch.tensor([True, False, True])
    reward = torch.tensor([1.0, -1.0, 1.0])
    found = combined_advantage(old, teacher, has_hint, reward, w_opd=2.0, w_rl=0.5)
    assert found.tolist() == [2.0 * -2.0 + 0.5, -0.5, 0.5]


STUDENT = torch.tensor([[1, 2, 3], [4, 5, -1]])
TEACHER = torch.tensor([[3, 9, 1], [-1, 7, 8]])


def test_the_subset_is_the_students_the_teachers_or_what_they_share() -> None:
    assert torch.equal(subset("student", STUDENT, TEACHER), STUDENT)
    assert torch.equal(subset("teacher", STUDENT, TEACHER), TEACHER)
    assert subset("overlap", STUDENT, TEACHER).tolist() == [[1, -1, 3], [-1, -1, -1]]
    with pytest.raises(ValueError, match="subset mode: found 'both'"):
        subset("both", STUDENT, TEACHER)


def test_the_hint_is_chosen_by_sequence_by_token_by_length_or_by_chance() -> None:
    student = torch.tensor([[1, 2], [3, 4], [5, 6]])
    first = torch.tensor([[1, 2], [9, 9], [9, 9]])
    second = torch.tensor([[1, 9], [3, 9], [5, 9]])
    shared = overlap(student, torch.stack([first, second, second]), torch.ones(3).bool())
    assert choose_hint("sequence", shared, 0).tolist() == [1, 1, 1]
    assert choose_hint("token", shared, 0).tolist() == [0, 1, 1]
    assert choose_hint("shortest", shared, 0).tolist() == [0, 0, 0]
    drawn = [choose_hint("random", shared, seed) for seed in range(30)]
    assert all(len(set(hint.tolist())) == 1 for hint in drawn)
    assert {int(hint[0]) for hint in drawn} == {0, 1, 2}
    assert torch.equal(drawn[4], choose_hint("random", shared, 4))
    with pytest.raises(ValueError, match="hint mode: found 'best'"):
        choose_hint("best", shared, 0)


def test_the_importance_weight_is_truncated_above_only() -> None:
    prox = torch.tensor([-1.0, -1.0, -1.0, -INF, -1.0, -INF])
    behaviour = torch.tensor([-1.5, -0.5, -90.0, -1.0, -INF, -INF])
    found = truncated_is_weight(prox.requires_grad_(), behaviour, 2.0)
    expected = [math.exp(0.5), math.exp(-0.5), 2.0, 0.0, 0.0, 0.0]
    assert found.tolist() == pytest.approx(expected, rel=1e-6)
    assert not found.requires_grad
    with pytest.raises(ValueError, match="cap: found 0"):
        truncated_is_weight(prox, behaviour, 0)


def test_the_teachers_weight_lifts_an_id_that_the_student_hardly_knows() -> None:
    old = torch.tensor([[-0.01, -9.0]])
    teacher = torch.tensor([[-0.7, -0.7]])
    valid = torch.ones(1, 2, dtype=torch.bool)
    by_student = opd_advantage(old, teacher, valid, 2.0)
    by_teacher = opd_advantage(old, teacher, valid, 2.0, "teacher")
    # by hand: softmax of l_old over two ids gives the second e^-8.99 / (1 + e^-8.99); of l_T, 1/2
    rare = math.exp(-8.99) / (1 + math.exp(-8.99))
    assert by_student[0, 1].item() == pytest.approx(2.0 * rare, rel=1e-4)
    assert by_teacher[0, 1].item() == pytest.approx(1.0, rel=1e-6)
    assert by_teacher[0, 0].item() == pytest.approx(-0.345, rel=1e-5)
