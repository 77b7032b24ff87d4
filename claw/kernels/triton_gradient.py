"""The gradient to the logits in Triton, in the place of the logits.

C rows, V vocabulary size (of this shard), J ids of a row. The dense part is written by one launch
and the ids' entries, sparse and dense part added in float32, by a second one; so no entry is read
after it was overwritten and no sparse part is added to a rounded number.
"""

import triton
import triton.language as tl
from torch import Tensor

from claw.kernels.chunk import Slope
from claw.kernels.triton_launch import WIDE, check_logits, on, options, power_of_2, vector


@triton.jit
def dense_gradient(
    X, INV_TAU, PEAK, OFFSET, BASE, SLOPE, stride_x,
    V: tl.constexpr, WITH_SLOPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x becomes p (base + slope log p), log p = (x - peak) / tau + offset."""
    row = tl.program_id(0).to(tl.int64)  # row * stride does not fit 32 bits
    X += row * stride_x
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
    logp = (x - tl.load(PEAK + row)) * tl.load(INV_TAU + row) + tl.load(OFFSET + row)
    p = tl.exp(logp)
    slope = tl.load(BASE + row)
    if WITH_SLOPE:
        slope += tl.load(SLOPE + row) * logp
    out = tl.where(p > 0, p * slope, 0.0)  # 0 * log 0 is 0 here, not NaN
    tl.store(X + cols, out.to(X.dtype.element_ty), mask=cols < V)


@triton.jit
def gradient_at_ids(
    X, IDS, GRAD, LOGP, BASE, SLOPE, stride_x,
    J: tl.constexpr, JP: tl.constexpr, WITH_SLOPE: tl.constexpr,
):  # fmt: skip
    """Write the whole entry of each id. Equal ids all write the same number, their sum."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.arange(0, JP)
    ids = tl.load(IDS + row * J + slot, mask=slot < J, other=-1)
    logp = tl.load(LOGP + row * J + slot, mask=slot < J, other=0.0)
    sparse = tl.zeros((JP,), tl.float32)
    for j in range(J):
        same = ids == tl.load(IDS + row * J + j)
        sparse += tl.where(same, tl.load(GRAD + row * J + j), 0.0)
    p = tl.exp(logp)
    slope = tl.load(BASE + row)
    if WITH_SLOPE:
        slope += tl.load(SLOPE + row) * logp
    out = sparse + tl.where(p > 0, p * slope, 0.0)
    tl.store(X + row * stride_x + ids, out.to(X.dtype.element_ty), mask=ids >= 0)


def gradient(logits_CV: Tensor, inv_tau_C: Tensor, peak_C: Tensor, slope: Slope) -> Tensor:
    """Overwrite the logits with `slope`, and return them."""
    rows, num_vocab = check_logits(logits_CV)
    if not rows:
        return logits_CV
    block = min(WIDE, power_of_2(num_vocab))
    with_slope = slope.slope_C is not None
    base_C = vector(slope.base_C)
    slope_C = vector(slope.slope_C) if slope.slope_C is not None else base_C
    ids_CJ = slope.ids_CJ.contiguous()
    with on(logits_CV):
        dense_gradient[(rows, triton.cdiv(num_vocab, block))](
            logits_CV, vector(inv_tau_C), vector(peak_C), vector(slope.offset_C), base_C, slope_C,
            logits_CV.stride(0), V=num_vocab, WITH_SLOPE=with_slope, BLOCK=block, **options(8),
        )  # fmt: skip
        if width := ids_CJ.shape[1]:
            gradient_at_ids[(rows,)](
                logits_CV, ids_CJ, vector(slope.grad_CJ), vector(slope.logp_CJ), base_C, slope_C,
                logits_CV.stride(0), J=width, JP=power_of_2(width), WITH_SLOPE=with_slope,
                **options(1),
            )  # fmt: skip
    return logits_CV
