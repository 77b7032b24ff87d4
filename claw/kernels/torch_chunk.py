"""A chunk in plain torch: one float32 buffer that holds logits, then e^z, then the gradient.

C rows of a chunk, B rows of a block, H hidden size, V vocabulary size (of this shard), J ids of a
row, k top ids. z = (logit - peak) / tau.
"""

import torch
from torch import Tensor

from claw.kernels.chunk import Reading, Slope
from claw.kernels.product import product_dtype, write_logits
from claw.kernels.topk import stable_topk

CACHE = 1 << 18
"""numbers of a block on a CPU: its passes find them in the cache, where a pass over a whole chunk
waits for memory"""
SLAB = 8192
"""columns that are multiplied at once"""


class TorchChunk:
    """`claw.kernels.chunk.Chunk` on any device."""

    def __init__(self, hidden_TH: Tensor, rows: int, num_vocab: int) -> None:
        self.dtype = product_dtype(hidden_TH)
        self.buffer_RV = hidden_TH.new_empty(rows, num_vocab, dtype=torch.float32)
        is_cpu = hidden_TH.device.type == "cpu"
        self.block = max(1, CACHE // num_vocab) if is_cpu else rows

    def fill(self, hidden_CH: Tensor, weight_VH: Tensor) -> None:
        self.values_CV = self.buffer_RV[: len(hidden_CH)]
        write_logits(self.values_CV, hidden_CH, weight_VH)

    def read(self, inv_tau_C: Tensor, ids_CJ: Tensor, topk: int) -> Reading:
        """The logits become e^z."""
        picked_CJ = self.values_CV.gather(1, ids_CJ.clamp(min=0)).masked_fill(ids_CJ < 0, 0.0)
        top_Ck, top_ids_Ck = stable_topk(self.values_CV, topk)
        peak_C, sum_C, dot_C = inv_tau_C.new_empty(3, len(inv_tau_C))
        for start in range(0, len(inv_tau_C), self.block):
            part = slice(start, start + self.block)
            values_BV = self.values_CV[part]
            peak_C[part], dot_C[part] = _exponentials(values_BV, inv_tau_C[part])
            sum_C[part] = values_BV.sum(dim=1)
        return Reading(peak_C, sum_C, dot_C, picked_CJ, top_Ck, top_ids_Ck)

    def gradient(self, slope: Slope) -> Tensor:
        """e^z becomes the gradient.

        The sparse part is added before any rounding, as p - 1 of a confident token is all its
        signal.
        """
        scale_C = slope.offset_C.exp()  # p = scale e^z, log p = z + offset
        if slope.slope_C is None:
            self.values_CV.mul_((slope.base_C * scale_C)[:, None])
        else:
            flat_C = (slope.base_C + slope.slope_C * slope.offset_C) * scale_C
            steep_C = slope.slope_C * scale_C
            for start in range(0, len(scale_C), self.block):
                part = slice(start, start + self.block)
                exp_BV = self.values_CV[part]
                with_z_BV = torch.xlogy(exp_BV, exp_BV)  # z e^z, and 0 where e^z is
                exp_BV.mul_(flat_C[part, None]).addcmul_(with_z_BV, steep_C[part, None])
        here_CJ = slope.grad_CJ.masked_fill(slope.ids_CJ < 0, 0.0)
        self.values_CV.scatter_add_(1, slope.ids_CJ.clamp(min=0), here_CJ)
        return self.values_CV.to(self.dtype)


def _exponentials(values_BV: Tensor, inv_tau_B: Tensor) -> tuple[Tensor, Tensor]:
    """logits -> e^z, in place. -> (the peaks, sum_j e^z z).

    Subtracting before scaling keeps the top exact at low temperatures.
    """
    peak_B = values_BV.amax(dim=1)
    z_BV = values_BV.sub_(peak_B[:, None]).mul_(inv_tau_B[:, None])
    exp_BV = z_BV.exp()
    dot_B = _dot(exp_BV, z_BV)
    values_BV.copy_(exp_BV)
    return peak_B, dot_B


def _dot(left_BV: Tensor, right_BV: Tensor) -> Tensor:
    """The dot product of each row.

    A batched matrix product adds up 150,000 numbers with errors of 1e-3; one product of the whole
    matrices would be another buffer.
    """
    slabs = zip(left_BV.split(SLAB, dim=1), right_BV.split(SLAB, dim=1), strict=True)
    return sum(((left * right).sum(dim=1) for left, right in slabs), left_BV.new_zeros(()))
