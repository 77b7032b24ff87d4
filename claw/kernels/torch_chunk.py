"""A chunk in plain torch: one float32 buffer that holds logits, then e^z, then the gradient.

C rows of a chunk, B ids of a block, H hidden size, V vocabulary size (of this shard), J ids of a
row, k top ids. z = (logit - peak) / tau.

The buffer is [V, C]: so a product with few rows has long sides on the weight's side, which is the
faster way on a CPU.
"""

import torch
from torch import Tensor

from claw.kernels.chunk import Reading, Slope
from claw.kernels.product import product_dtype, write_logits
from claw.kernels.topk import stable_topk

CACHE = 1 << 18
"""numbers of a block: its passes find them in the cache, where a pass over the whole buffer waits
for memory"""


class TorchChunk:
    """`claw.kernels.chunk.Chunk` on any device."""

    def __init__(self, hidden_TH: Tensor, rows: int, num_vocab: int) -> None:
        self.dtype = product_dtype(hidden_TH)
        self.buffer_VR = hidden_TH.new_empty(num_vocab, rows, dtype=torch.float32)
        is_cpu = hidden_TH.device.type == "cpu"
        self.block = max(1, CACHE // max(rows, 1)) if is_cpu else num_vocab

    def fill(self, hidden_CH: Tensor, weight_VH: Tensor) -> None:
        self.values_VC = self.buffer_VR[:, : len(hidden_CH)]
        write_logits(self.values_VC, hidden_CH, weight_VH)

    def read(self, inv_tau_C: Tensor, ids_CJ: Tensor, topk: int) -> Reading:
        """The logits become e^z."""
        values_CV = self.values_VC.t()
        picked_CJ = values_CV.gather(1, ids_CJ.clamp(min=0)).masked_fill(ids_CJ < 0, 0.0)
        top_Ck, top_ids_Ck = stable_topk(values_CV, topk)
        peak_C = self.values_VC.amax(dim=0)
        sum_C, dot_C = peak_C.new_zeros(2, len(peak_C))
        has_tau = bool((inv_tau_C != 1).any())
        for z_BC in self.values_VC.split(self.block):
            z_BC.sub_(peak_C)  # before scaling: the top is exact at a low temperature
            if has_tau:
                z_BC.mul_(inv_tau_C)
            exp_BC = z_BC.exp()
            sum_C += exp_BC.sum(dim=0)
            dot_C += z_BC.mul_(exp_BC).sum(dim=0)
            z_BC.copy_(exp_BC)
        return Reading(peak_C, sum_C, dot_C, picked_CJ, top_Ck, top_ids_Ck)

    def gradient(self, slope: Slope) -> Tensor:
        """e^z becomes the gradient.

        The sparse part is added before any rounding, as p - 1 of a confident token is all its
        signal.
        """
        scale_C = slope.offset_C.exp()  # p = scale e^z, log p = z + offset
        if slope.slope_C is None:
            self.values_VC.mul_(slope.base_C * scale_C)
        else:
            flat_C = (slope.base_C + slope.slope_C * slope.offset_C) * scale_C
            steep_C = slope.slope_C * scale_C
            for exp_BC in self.values_VC.split(self.block):
                with_z_BC = torch.xlogy(exp_BC, exp_BC)  # z e^z, and 0 where e^z is
                exp_BC.mul_(flat_C).addcmul_(with_z_BC, steep_C)
        here_CJ = slope.grad_CJ.masked_fill(slope.ids_CJ < 0, 0.0)
        gradient_CV = self.values_VC.t()
        gradient_CV.scatter_add_(1, slope.ids_CJ.clamp(min=0), here_CJ)
        return gradient_CV.to(self.dtype)
