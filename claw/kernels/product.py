"""The three matrix products at a head, each in the arithmetic that is fast on its device.

C rows of a chunk, H hidden size, V vocabulary size (of this shard).

A CPU without instructions for bfloat16 or float16 multiplies them one number at a time: 0.6 to 7
billion operations a second where float32 has 130. There a slab of the weight is converted, and
multiplied in float32, which is also the more exact.
"""

from functools import cache

import torch
from torch import Tensor

SLAB = 4096
"""rows of the weight that are converted at once"""


def product_dtype(operand: Tensor) -> torch.dtype:
    """The dtype in which products of such operands run."""
    return torch.float32 if _is_slow(operand.device.type, operand.dtype) else operand.dtype


def write_logits(out_VC: Tensor, hidden_CH: Tensor, weight_VH: Tensor) -> None:
    """out = weight @ hidden^T in float32, each number rounded to the operands' dtype."""
    if hidden_CH.dtype == torch.float32:
        torch.mm(weight_VH, hidden_CH.t(), out=out_VC)
    elif product_dtype(hidden_CH) == torch.float32:
        wide_HC = hidden_CH.float().t()
        for rows in _slabs(weight_VH):
            out_VC[rows] = (weight_VH[rows].float() @ wide_HC).to(hidden_CH.dtype)
    else:
        out_VC.copy_(weight_VH @ hidden_CH.t())


def times_weight(left_CV: Tensor, weight_VH: Tensor) -> Tensor:
    """left @ weight, [C, H]; in float32 where products of the weight's dtype run in it."""
    if product_dtype(weight_VH) == weight_VH.dtype:
        return left_CV @ weight_VH
    out_CH = left_CV.new_zeros(len(left_CV), weight_VH.shape[1], dtype=torch.float32)
    for rows in _slabs(weight_VH):
        out_CH.addmm_(left_CV[:, rows].float(), weight_VH[rows].float())
    return out_CH


def add_product(sum_VH: Tensor, left_VC: Tensor, right_CH: Tensor) -> None:
    """sum += left @ right with a float32 sum; the product stays in the operands' fast dtype."""
    if product_dtype(right_CH) == torch.float32:
        sum_VH.addmm_(left_VC.float(), right_CH.float())
    elif left_VC.device.type == "cuda" and torch.version.hip is None:
        # One product that reads and writes the sum; `+=` would read and write it twice more.
        torch.addmm(sum_VH, left_VC, right_CH, out_dtype=torch.float32, out=sum_VH)
    else:
        sum_VH += left_VC @ right_CH


def _slabs(weight_VH: Tensor) -> list[slice]:
    return [slice(start, start + SLAB) for start in range(0, len(weight_VH), SLAB)]


@cache
def _is_slow(device_type: str, dtype: torch.dtype) -> bool:
    if device_type != "cpu" or dtype == torch.float32:
        return False
    kind = "bf16" if dtype == torch.bfloat16 else "fp16"
    ask = getattr(torch.ops.mkldnn, f"_is_mkldnn_{kind}_supported", None)  # what torch itself asks
    return ask is None or not ask()
