"""A chunk whose products are torch's and whose passes over the logits are Triton's.

C rows of a chunk, H hidden size, V vocabulary size (of this shard), J ids of a row.
"""

import torch
from torch import Tensor

from claw.kernels import triton_gradient, triton_read
from claw.kernels.chunk import Reading, Slope

ALIGN = 64
"""elements: rows start on 128 bytes whatever the vocabulary, for wide loads and the products"""


class TritonChunk:
    """`claw.kernels.chunk.Chunk` with one buffer, in the operands' dtype."""

    def __init__(self, hidden_TH: Tensor, rows: int, num_vocab: int) -> None:
        wide = -(-num_vocab // ALIGN) * ALIGN
        self.logits_RV = hidden_TH.new_empty(rows, wide)[:, :num_vocab]

    def fill(self, hidden_CH: Tensor, weight_VH: Tensor) -> None:
        self.logits_CV = self.logits_RV[: len(hidden_CH)]
        torch.mm(hidden_CH, weight_VH.t(), out=self.logits_CV)

    def read(self, inv_tau_C: Tensor, ids_CJ: Tensor, topk: int) -> Reading:
        reading = triton_read.read(self.logits_CV, inv_tau_C, ids_CJ, topk)
        self.inv_tau_C, self.peak_C = inv_tau_C, reading.peak_C
        return reading

    def gradient(self, slope: Slope) -> Tensor:
        return triton_gradient.gradient(self.logits_CV, self.inv_tau_C, self.peak_C, slope)
