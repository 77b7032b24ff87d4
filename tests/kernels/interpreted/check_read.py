"""Reading logits in Triton's interpreter, against float64 by the definitions, written here.

C rows, V vocabulary size, J ids of a row, k top ids. Run by test_triton.py.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from claw.kernels import triton_read
from claw.kernels.chunk import Reading
from claw.kernels.softmax import Softmax


def logits_of(rows: int, vocab: int, dtype: torch.dtype, peaked: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(rows + vocab)
    logits = torch.randn(rows, vocab, generator=generator) * 2
    if peaked:  # entropy well below a nat, as in sampled text
        logits[torch.arange(rows), torch.arange(rows) * 11 % vocab] += 20
    return logits.to(dtype)


def truth(logits: Tensor, tau: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-> (log p [C, V], lse [C], entropy [C]); an entry of -inf has p = 0 and adds nothing."""
    z = logits.double().numpy() / tau.double().numpy()[:, None]
    peak = z.max(axis=1, keepdims=True)
    lse = peak + np.log(np.exp(z - peak).sum(axis=1, keepdims=True))
    logp = z - lse
    p = np.exp(logp)
    return logp, lse[:, 0], -(p * np.where(p > 0, logp, 0.0)).sum(axis=1)


def ranks(logits: Tensor, k: int) -> list[list[int]]:
    """Best first, equal ones by id: numpy's stable sort."""
    return np.argsort(-logits.double().numpy(), axis=1, kind="stable")[:, :k].tolist()


def agrees(logits: Tensor, tau: Tensor, ids: Tensor, k: int, tolerance: float = 2e-6) -> Reading:
    reading = triton_read.read(logits, 1.0 / tau, ids, k)
    softmax = Softmax.of(reading, 1.0 / tau)
    logp, lse, entropy = truth(logits, tau)
    close(softmax.lse_C, lse, tolerance)
    close(softmax.entropy_C, entropy, tolerance)
    given = ids.clamp(min=0).numpy()
    expected = np.take_along_axis(logp, given, 1)
    close(softmax.logp(reading.picked_CJ)[ids >= 0], expected[ids.numpy() >= 0], tolerance)
    assert not reading.picked_CJ[ids < 0].any()
    assert reading.top_ids_Ck.tolist() == ranks(logits, k)
    assert torch.equal(reading.top_Ck, logits.float().gather(1, reading.top_ids_Ck))
    return reading


def close(found: Tensor, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance * 10)


def some_ids(rows: int, vocab: int, width: int) -> Tensor:
    """With the last column, a double and a -1 in every row that has room for them."""
    ids = torch.arange(rows * width).view(rows, width) * 7919 % vocab
    ids[:, 0] = vocab - 1
    if width > 3:
        ids[:, 1], ids[:, 2] = ids[:, 3], -1
    return ids


@pytest.mark.parametrize("vocab", [130, 20_011, 151_936])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("k", [1, 4, 20, 50])
def test_a_reading_is_that_of_float64(vocab: int, rows: int, k: int) -> None:
    tau = torch.linspace(0.05, 1.5, rows) if rows > 1 else torch.ones(1)
    logits = logits_of(rows, vocab, torch.float32, peaked=k == 20)
    agrees(logits, tau, some_ids(rows, vocab, k), k, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("peaked", [True, False])
def test_half_precision_logits_are_read_in_float32(dtype: torch.dtype, peaked: bool) -> None:
    tau = torch.tensor([0.05, 1.0, 1.5])
    agrees(logits_of(3, 20_011, dtype, peaked), tau, some_ids(3, 20_011, 4), 20, 1e-5)


@pytest.mark.parametrize("wide", [128, 512, 4096])
def test_the_width_of_a_turn_changes_nothing(monkeypatch, wide: int) -> None:
    """As on a GPU: many turns of the loop, the last of them past the end of the row."""
    monkeypatch.setattr(triton_read, "WIDE", wide)
    tau = torch.tensor([0.05, 0.7, 1.5])
    agrees(logits_of(3, 4999, torch.float32), tau, some_ids(3, 4999, 4), 20)


@pytest.mark.parametrize("vocab", [130, 20_011])
@pytest.mark.parametrize("k", [4, 64, 65, 130])
def test_a_tie_goes_to_the_lowest_id(vocab: int, k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    logits = torch.randint(-3, 2, (3, vocab), generator=generator).bfloat16()
    logits[2] = 1.0
    agrees(logits, torch.ones(3), some_ids(3, vocab, 1), k)
    edge = logits.float().sort(dim=1, descending=True).values[:, k - 1 : k + 1]
    assert k == vocab or bool((edge[:, 0] == edge[:, 1]).all())  # the case asked about occurs


def test_the_two_zeros_are_equal() -> None:
    logits = torch.tensor([[-0.0, 0.0, -1.0, 0.0, -0.0]])
    assert triton_read.read(logits, torch.ones(1), some_ids(1, 5, 1), 4).top_ids_Ck.tolist() == [
        [0, 1, 3, 4]
    ]


def test_all_of_the_vocabulary_can_be_ranked() -> None:
    agrees(logits_of(2, 40, torch.float32), torch.ones(2), some_ids(2, 40, 1), 40)


def test_a_vocabulary_padded_with_minus_infinity_adds_nothing() -> None:
    logits = logits_of(4, 20_011, torch.float32)
    logits[:, 19_000:] = -torch.inf
    logits[1, :300] = -torch.inf  # the first groups hold nothing
    logits[2, 5:] = -torch.inf  # fewer numbers than k: the rest by id
    agrees(logits, torch.tensor([1.0, 0.05, 1.5, 0.7]), torch.zeros(4, 0, dtype=torch.int64), 20)


def test_a_row_of_minus_infinity_has_no_mass_and_makes_no_nan() -> None:
    logits = logits_of(3, 300, torch.float32)
    logits[1] = -torch.inf
    reading = triton_read.read(logits, torch.ones(3), some_ids(3, 300, 1), 4)
    assert reading.sum_C[1] == reading.dot_C[1] == 0
    assert Softmax.of(reading, torch.ones(3)).lse_C[1] == -torch.inf
    assert reading.top_ids_Ck[1].tolist() == [0, 1, 2, 3]
    apart = agrees(logits[::2], torch.ones(2), some_ids(3, 300, 1)[::2], 4)
    assert torch.equal(reading.sum_C[::2], apart.sum_C)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_infinity_reach_the_log_sum_exp(value: float) -> None:
    logits = logits_of(2, 300, torch.float32)
    logits[1, 150] = value
    reading = triton_read.read(logits, torch.ones(2), some_ids(2, 300, 1), 4)
    assert Softmax.of(reading, torch.ones(2)).lse_C.isfinite().tolist() == [True, False]


def test_very_negative_and_very_large_logits_are_exact() -> None:
    """A running maximum that starts at 0 would lose the first row and overflow on the second."""
    logits = logits_of(2, 300, torch.float32)
    logits[0] -= 3e4
    logits[1] += 3e4
    agrees(logits, torch.ones(2), some_ids(2, 300, 4), 4, 1e-5)


def test_the_top_of_a_confident_row_is_exact_at_a_low_temperature() -> None:
    logits = logits_of(4, 20_011, torch.bfloat16, peaked=True)
    reading = agrees(logits, torch.full((4,), 0.05), some_ids(4, 20_011, 4), 4)
    assert Softmax.of(reading, torch.full((4,), 20.0)).logp(reading.top_Ck)[:, 0].max() <= 0


def test_rows_may_be_strided_and_numbers_of_rows_expanded() -> None:
    logits = logits_of(6, 130, torch.float32)
    wide = torch.full((6, 200), torch.nan)
    wide[:, :130] = logits
    inv_tau = torch.tensor([0.5]).expand(6)  # stride 0
    plain = triton_read.read(logits, inv_tau.clone(), some_ids(6, 130, 4), 4)
    every_other = torch.stack([some_ids(6, 130, 4), some_ids(6, 130, 4) * 0], dim=2)[:, :, 0]
    strided = triton_read.read(wide[:, :130], inv_tau, every_other, 4)
    for name in ("peak_C", "sum_C", "dot_C", "picked_CJ", "top_Ck", "top_ids_Ck"):
        assert torch.equal(getattr(plain, name), getattr(strided, name)), name


@pytest.mark.parametrize(
    "logits",
    [
        torch.zeros(130, 3).t(), torch.zeros(3, 260)[:, ::2], torch.zeros(1, 130).expand(3, 130),
        torch.zeros(3), torch.zeros(3, 130).double(), torch.zeros(3, 130).long(),
    ],
)  # fmt: skip
def test_logits_that_a_kernel_would_misread_are_refused(logits: Tensor) -> None:
    with pytest.raises(ValueError, match="logits: found"):
        triton_read.read(logits, torch.ones(3), torch.zeros(3, 1, dtype=torch.int64))


def test_no_rows_are_a_reading_too() -> None:
    reading = triton_read.read(torch.zeros(0, 130), torch.ones(0), torch.zeros(0, 2).long(), 4)
    assert reading.top_ids_Ck.shape == (0, 4) and reading.picked_CJ.shape == (0, 2)


def test_offsets_beyond_two_to_the_31_are_right() -> None:
    """The last row starts where row 14,140 of a vocabulary of 151,936 would."""
    vocab, rows = 151_936, 3
    stride = 14_140 * vocab // (rows - 1)
    assert (rows - 1) * stride > 2**31
    memory = torch.empty((rows - 1) * stride + vocab, dtype=torch.bfloat16)  # pages of rows only
    logits = memory.as_strided((rows, vocab), (stride, 1))
    logits.copy_(logits_of(rows, vocab, torch.bfloat16))
    agrees(logits, torch.ones(rows), some_ids(rows, vocab, 4), 4, 1e-5)
