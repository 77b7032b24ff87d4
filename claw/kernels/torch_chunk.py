"""A chunk in plain torch: the logits in float32 and a second buffer for their exponentials.

C rows of a chunk, H hidden size, V vocabulary size (of this shard), J ids of a row, k top ids.
"""

import torch
from torch import Tensor

from claw.kernels.chunk import Reading, Slope
from claw.kernels.topk import stable_topk

SLAB = 8192
"""columns that are multiplied at once"""


class TorchChunk:
    """`claw.kernels.chunk.Chunk` on any device."""

    def __init__(self, hidden_TH: Tensor, rows: int, num_vocab: int) -> None:
        self.dtype = hidden_TH.dtype
        self.z_RV, self.exp_RV = hidden_TH.new_empty(2, rows, num_vocab, dtype=torch.float32)

    def fill(self, hidden_CH: Tensor, weight_VH: Tensor) -> None:
        size = len(hidden_CH)
        self.z_CV, self.exp_CV = self.z_RV[:size], self.exp_RV[:size]
        if self.dtype == torch.float32:
            torch.mm(hidden_CH, weight_VH.t(), out=self.z_CV)
        else:
            self.z_CV.copy_(hidden_CH @ weight_VH.t())

    def read(self, inv_tau_C: Tensor, ids_CJ: Tensor, topk: int) -> Reading:
        """The logits become z = (logits - peak) / tau, the other buffer e^z.

        Subtracting before scaling keeps the top exact at low temperatures.
        """
        z_CV, exp_CV = self.z_CV, self.exp_CV
        picked_CJ = z_CV.gather(1, ids_CJ.clamp(min=0)).masked_fill(ids_CJ < 0, 0.0)
        top_Ck, top_ids_Ck = stable_topk(z_CV, topk)
        peak_C = z_CV.amax(dim=1)
        z_CV.sub_(peak_C[:, None]).mul_(inv_tau_C[:, None])
        torch.exp(z_CV, out=exp_CV)
        return Reading(peak_C, exp_CV.sum(1), _dot(exp_CV, z_CV), picked_CJ, top_Ck, top_ids_Ck)

    def gradient(self, slope: Slope) -> Tensor:
        """e^z becomes the gradient; z is scratch.

        The sparse part is added before any rounding, as p - 1 of a confident token is all its
        signal.
        """
        scale_C = slope.offset_C.exp()  # p = scale e^z, log p = z + offset
        if slope.slope_C is None:
            self.exp_CV.mul_((slope.base_C * scale_C)[:, None])
        else:
            flat_C = slope.base_C + slope.slope_C * slope.offset_C
            self.z_CV.mul_((slope.slope_C * scale_C)[:, None]).add_((flat_C * scale_C)[:, None])
            self.exp_CV.mul_(self.z_CV)
        here_CJ = slope.grad_CJ.masked_fill(slope.ids_CJ < 0, 0.0)
        self.exp_CV.scatter_add_(1, slope.ids_CJ.clamp(min=0), here_CJ)
        return self.exp_CV.to(self.dtype)


def _dot(left_CV: Tensor, right_CV: Tensor) -> Tensor:
    """The dot product of each row.

    A batched matrix product adds up 150,000 numbers with errors of 1e-3; one product of the whole
    matrices would be a third buffer.
    """
    slabs = zip(left_CV.split(SLAB, dim=1), right_CV.split(SLAB, dim=1), strict=True)
    return sum(((left * right).sum(dim=1) for left, right in slabs), left_CV.new_zeros(()))
