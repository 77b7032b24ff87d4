"""The gradient to the logits in Triton's interpreter, against float64 by autograd, written here.

C rows, V vocabulary size, J ids of a row. Run by test_triton.py.
"""

import pytest
import torch
from torch import Tensor

from claw.kernels import triton_gradient, triton_read
from claw.kernels.chunk import Slope
from claw.kernels.softmax import Softmax


def case(rows: int, vocab: int, width: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Doubles and -1 among the ids, the entropy's weight on and the temperature low and high."""
    generator = torch.Generator().manual_seed(vocab + width)
    ids = torch.randint(vocab, (rows, width), generator=generator)
    ids[:, 0] = vocab - 1
    if width > 3:
        ids[:, 1], ids[:, 2] = ids[:, 3], -1
    return {
        "logits": (2 * torch.randn(rows, vocab, generator=generator)).to(dtype),
        "ids": ids,
        "grad": torch.randn(rows, width, generator=generator),
        "entropy_weight": torch.rand(rows, generator=generator),
        "tau": torch.linspace(0.05, 1.5, rows) if rows > 1 else torch.ones(1),
    }


def truth(case: dict[str, Tensor]) -> Tensor:
    """d/d logits of sum_v g_v log p_v - w H, float64."""
    logits = case["logits"].double().requires_grad_()
    logp = (logits / case["tau"].double()[:, None]).log_softmax(dim=1)
    entropy = -torch.where(logp > -torch.inf, logp.exp() * logp, 0.0).sum(dim=1)
    given = logp.gather(1, case["ids"].clamp(min=0))
    grad = case["grad"].double().masked_fill(case["ids"] < 0, 0.0)
    total = (grad * given).sum() - (case["entropy_weight"].double() * entropy).sum()
    return torch.autograd.grad(total, logits)[0]


def strided(values: Tensor) -> Tensor:
    """The same numbers, each beside one that must not be read."""
    return torch.stack([values, torch.full_like(values, 99)], dim=-1)[..., 0]


def found(case: dict[str, Tensor], with_slope: bool = True, layout=lambda values: values) -> Tensor:
    logits, inv_tau = case["logits"].clone(), 1.0 / case["tau"]
    reading = triton_read.read(logits, inv_tau, case["ids"], 0)
    softmax = Softmax.of(reading, inv_tau)
    grad = case["grad"].masked_fill(case["ids"] < 0, 0.0)
    slope = Slope(
        offset_C=layout(-softmax.log_sum_C),
        base_C=layout((case["entropy_weight"] * softmax.entropy_C - grad.sum(dim=1)) * inv_tau),
        slope_C=layout(case["entropy_weight"] * inv_tau) if with_slope else None,
        ids_CJ=layout(case["ids"]),
        grad_CJ=layout(case["grad"] * inv_tau[:, None]),
        logp_CJ=layout(softmax.logp(reading.picked_CJ)),
    )
    out = triton_gradient.gradient(logits, layout(inv_tau), layout(reading.peak_C), slope)
    assert out.data_ptr() == logits.data_ptr()  # in place
    return out


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest entry of the row; rows of different temperature differ much."""
    error = (found.double() - expected).abs().amax(dim=1) / expected.abs().amax(dim=1)
    assert error.max() <= tolerance, error


@pytest.mark.parametrize("vocab", [130, 20_011, 151_936])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("width", [1, 4, 21, 51])
def test_gradients_are_those_of_float64(vocab: int, rows: int, width: int) -> None:
    one = case(rows, vocab, width, torch.float32)
    close(found(one), truth(one), 2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_in_half_precision_are_rounded_once(dtype: torch.dtype) -> None:
    """Every entry within one spacing of its dtype: the interpreter cuts off, a GPU rounds."""
    one = case(3, 20_011, 5, dtype)
    one["tau"] = torch.ones(3)
    expected = truth(one)
    spacing = torch.finfo(dtype).eps * expected.abs() + 1e-7
    assert bool(((found(one).double() - expected).abs() <= spacing).all())


def test_without_an_entropy_term_there_is_no_slope() -> None:
    one = case(3, 300, 5, torch.float32)
    one["entropy_weight"] = torch.zeros(3)
    close(found(one, with_slope=False), truth(one), 2e-5)


def test_equal_ids_are_summed() -> None:
    one = case(2, 300, 6, torch.float32)
    one["ids"] = torch.full((2, 6), 7)
    close(found(one), truth(one), 2e-5)


def test_a_confident_token_keeps_its_gradient_in_bfloat16() -> None:
    """p = 0.9991: p - 1 is formed before rounding; rounding p first would leave nothing of it."""
    logits = torch.zeros(1, 130, dtype=torch.bfloat16)
    logits[0, 3] = 11.875
    one = {
        "logits": logits, "ids": torch.tensor([[3]]), "grad": torch.ones(1, 1),
        "entropy_weight": torch.zeros(1), "tau": torch.ones(1),
    }  # fmt: skip
    assert found(one)[0, 3].item() == pytest.approx(truth(one)[0, 3].item(), rel=8e-3)


def test_entries_of_minus_infinity_have_no_gradient() -> None:
    one = case(3, 300, 4, torch.float32)
    one["logits"][:, 200:] = -torch.inf
    one["ids"] = one["ids"].clamp(max=150)
    out = found(one)
    assert not out[:, 200:].any()
    close(out[:, :200], truth({**one, "logits": one["logits"][:, :200]}), 2e-5)


def test_a_row_of_minus_infinity_spoils_no_other() -> None:
    one = case(3, 300, 4, torch.float32)
    expected = found(one)
    one["logits"][1] = -torch.inf
    out = found(one)
    assert torch.equal(out[::2], expected[::2])


def test_strided_numbers_are_read_right() -> None:
    one = case(3, 300, 4, torch.float32)
    assert torch.equal(found(one, layout=strided), found(one))


def test_numbers_of_stride_zero_are_read_right() -> None:
    """A sum hands back one number expanded over the rows."""
    one = case(1, 300, 4, torch.float32)
    rows = {name: values.expand(3, *values.shape[1:]) for name, values in one.items()}
    rows["logits"] = rows["logits"].clone()
    assert torch.equal(found(rows, layout=lambda values: values[:1].expand_as(values)),
                       found(one).expand(3, -1))  # fmt: skip


def test_memory_between_the_rows_is_left_alone() -> None:
    one = case(3, 130, 4, torch.float32)
    plain = found(one)
    wide = torch.full((3, 192), 5.0)
    wide[:, :130] = one["logits"]

    class Same(dict):
        """The same case whose logits are not copied before they are overwritten."""

    logits = wide[:, :130]
    logits.clone = lambda: logits  # type: ignore[method-assign]
    assert torch.equal(found({**one, "logits": logits}), plain)
    assert bool((wide[:, 130:] == 5.0).all())


def test_offsets_beyond_two_to_the_31_are_written_right() -> None:
    one = case(3, 1000, 4, torch.float32)
    one["tau"] = torch.ones(3)
    plain = found(one)
    stride = 2**30 + 7
    memory = torch.empty(2 * stride + 1000)  # pages of the rows only
    logits = memory.as_strided((3, 1000), (stride, 1))
    logits.copy_(one["logits"])
    logits.clone = lambda: logits  # type: ignore[method-assign]
    assert torch.equal(found({**one, "logits": logits}), plain)
