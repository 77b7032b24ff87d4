"""Scoring against float64 computed here from the definition of a log-prob.

T tokens, H hidden size, V vocabulary size, K top ids.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from claw.kernels import reference, score
from claw.kernels.topk import stable_topk


def truth(hidden: Tensor, weight: Tensor, tau: np.ndarray) -> np.ndarray:
    """log softmax(logits / tau), [T, V] float64, by the definition."""
    z = hidden.double().numpy() @ weight.double().numpy().T / tau[:, None]
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def matrices(tokens: int, vocab: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, 24, generator=generator)
    return hidden, torch.randn(vocab, 24, generator=generator) * 0.5


def tied_matrices(tokens: int, vocab: int) -> tuple[Tensor, Tensor]:
    """Small integers: logits are exact in float32 and many of them are equal."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randint(-1, 2, (tokens, 6), generator=generator).float()
    return hidden, torch.randint(-1, 2, (vocab, 6), generator=generator).float()


@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("vocab", [130, 1013])
@pytest.mark.parametrize("chunk", [1, 3, 256])
def test_the_numbers_are_those_of_float64(tokens: int, vocab: int, chunk: int) -> None:
    hidden, weight = matrices(tokens, vocab)
    tau = np.linspace(0.5, 1.5, tokens)
    ids = torch.arange(tokens * 3).view(tokens, 3) * 37 % vocab
    expected = truth(hidden, weight, tau)
    z = hidden.double().numpy() @ weight.double().numpy().T / tau[:, None]
    temperature = torch.tensor(tau, dtype=torch.float32)
    for out in (
        score(hidden, weight, ids, 4, temperature, chunk),
        reference.score(hidden, weight, ids, 4, temperature, chunk),
    ):
        order = np.argsort(-z, axis=1, kind="stable")[:, :4]
        close(out.logp, np.take_along_axis(expected, ids.numpy(), 1))
        close(out.lse, np.log(np.exp(z).sum(axis=1)))
        close(out.entropy, -(np.exp(expected) * expected).sum(axis=1))
        assert out.topk_ids.tolist() == order.tolist()
        close(out.topk_logp, np.take_along_axis(expected, order, 1))
        for values in (out.lse, out.entropy, out.logp, out.topk_logp):
            assert values.dtype == torch.float32


def close(found: Tensor, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


def test_each_token_has_its_own_temperature_and_it_may_be_very_low() -> None:
    hidden, weight = matrices(6, 130)
    tau = np.array([0.05, 1.5, 0.05, 1.0, 1.5, 0.05])
    ids = torch.arange(6).view(6, 1)
    expected = truth(hidden, weight, tau)
    out = score(hidden, weight, ids, 4, torch.tensor(tau, dtype=torch.float32), 4)
    close(out.logp, np.take_along_axis(expected, ids.numpy(), 1), 1e-4)
    close(out.entropy, -(np.exp(expected) * expected).sum(axis=1), 1e-4)
    close(out.topk_logp, np.sort(expected, axis=1)[:, :-5:-1], 1e-4)


def test_the_entropy_of_a_large_vocabulary_is_as_exact_as_that_of_a_small_one() -> None:
    hidden, weight = matrices(5, 151_936)
    logp = truth(hidden, weight, np.ones(5))
    close(score(hidden, weight).entropy, -(np.exp(logp) * logp).sum(axis=1), 2e-6)


@pytest.mark.parametrize("vocab", [130, 1013])
@pytest.mark.parametrize("topk", [0, 1, 4, 20, 130])
def test_equal_logits_are_ranked_by_id_like_a_stable_sort(vocab: int, topk: int) -> None:
    hidden, weight = tied_matrices(40, vocab)
    logits = hidden @ weight.t()
    expected = logits.sort(dim=1, descending=True, stable=True)
    out = score(hidden, weight, topk=topk, chunk_tokens=16)
    assert torch.equal(out.topk_ids, expected.indices[:, :topk])
    values, ids = stable_topk(logits, topk)
    assert torch.equal(ids, expected.indices[:, :topk])
    assert torch.equal(values, expected.values[:, :topk])
    edge = expected.values[:, topk - 1] == expected.values[:, min(topk, vocab - 1)]
    assert topk in (0, 130) or edge.float().mean() > 0.5  # the case asked about does occur


def test_a_vocabulary_of_equal_logits_gives_the_first_ids() -> None:
    values, ids = stable_topk(torch.zeros(2, 300), 140)
    assert ids.tolist() == [list(range(140))] * 2
    assert not values.any()


def test_the_ranking_is_that_of_the_logits_at_any_temperature() -> None:
    hidden, weight = tied_matrices(9, 200)
    cold, warm = (score(hidden, weight, topk=20, temperature=tau) for tau in (0.05, 1.7))
    assert torch.equal(cold.topk_ids, warm.topk_ids)


def test_padded_ids_score_zero_and_change_nothing_else() -> None:
    hidden, weight = matrices(5, 130)
    ids = torch.tensor([[3, -1], [-1, 9], [-1, -1], [0, 129], [7, 7]])
    out = score(hidden, weight, ids)
    full = score(hidden, weight, ids.clamp(min=0))
    assert torch.equal(out.logp[ids == -1], torch.zeros(4))
    assert torch.equal(out.logp[ids >= 0], full.logp[ids >= 0])
    assert torch.equal(out.lse, full.lse)


def test_no_tokens_and_no_ids_are_a_score_too() -> None:
    hidden, weight = matrices(3, 130)
    assert score(hidden, weight).logp is None
    empty = score(hidden[:0], weight, torch.zeros(0, 2, dtype=torch.int64), 4)
    assert empty.logp.shape == (0, 2)
    assert empty.topk_ids.shape == (0, 4)


def test_strided_matrices_give_the_same_score() -> None:
    hidden, weight = matrices(7, 130)
    wide = torch.randn(7, 48)
    wide[:, ::2] = hidden
    strided = score(wide[:, ::2], weight.t().contiguous().t(), topk=4)
    plain = score(hidden, weight, topk=4)
    assert torch.equal(strided.topk_ids, plain.topk_ids)
    torch.testing.assert_close(strided.topk_logp, plain.topk_logp)


def test_bfloat16_matrices_are_scored_in_float32_after_the_product() -> None:
    hidden, weight = (matrix.bfloat16() for matrix in matrices(7, 130))
    out = score(hidden, weight, topk=4, temperature=0.7)
    logits = (hidden @ weight.t()).float()
    assert torch.equal(out.topk_ids, logits.sort(dim=1, descending=True, stable=True)[1][:, :4])
    expected = (logits.double() / 0.7).log_softmax(1).gather(1, out.topk_ids)
    close(out.topk_logp, expected.numpy())


def test_scoring_leaves_no_gradient_behind() -> None:
    hidden, weight = matrices(3, 130)
    out = score(hidden.requires_grad_(), weight.requires_grad_(), topk=2)
    assert not out.topk_logp.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": torch.zeros(3)}, "hidden: found shape"),
        ({"hidden": torch.zeros(3, 24, dtype=torch.float64)}, "hidden: found torch.float64"),
        ({"hidden": torch.full((3, 24), torch.nan)}, "hidden: found NaN"),
        ({"weight": torch.zeros(130, 23)}, "weight: found shape"),
        ({"weight": torch.zeros(130, 24, dtype=torch.bfloat16)}, "weight: found torch.bfloat16"),
        ({"weight": torch.zeros(130, 24, device="meta")}, "weight: found meta"),
        ({"weight": torch.full((130, 24), torch.inf)}, "weight: found NaN, inf"),
        ({"ids": torch.zeros(3, dtype=torch.int64)}, "ids: found shape"),
        ({"ids": torch.zeros(2, 1, dtype=torch.int64)}, "ids: found shape"),
        ({"ids": torch.zeros(3, 1, dtype=torch.int32)}, "ids: found torch.int32"),
        ({"ids": torch.full((3, 1), 130)}, "ids: found id 130; allowed: 0 to 129"),
        ({"ids": torch.full((3, 1), -2)}, "ids: found id -2"),
        ({"topk": 131}, "topk: found 131; allowed: 0 to 130"),
        ({"topk": -1}, "topk: found -1"),
        ({"temperature": 0.0}, "temperature: found 0.0"),
        ({"temperature": float("nan")}, "temperature: found nan"),
        ({"temperature": torch.tensor([1.0, 0.0, 1.0])}, "temperature: found 0.0"),
        ({"temperature": torch.ones(2)}, "temperature: found shape"),
        ({"chunk_tokens": 0}, "chunk_tokens: found 0"),
    ],
)
def test_a_bad_argument_is_refused_by_name(change: dict, message: str) -> None:
    hidden, weight = matrices(3, 130)
    with pytest.raises(ValueError, match=message):
        score(**{"hidden": hidden, "weight": weight} | change)
