"""The logits of a few rows: what is read off them, and the gradient that takes their place.

C rows of a chunk, H hidden size, V vocabulary size (of this shard), J ids of a row, k top ids.
Scoring and training go through the same lines, so that their rounding cancels in a ratio of old
and current log-probs.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from claw.kernels import backend

CPU_ROWS = 256
"""the logits of a vocabulary of 32,000 fit in the cache; products are hardly slower than of more"""
GPU_ROWS = (2048, 4096)
"""fewer and the products wait for the weight, more and only memory grows"""
GPU_BYTES = 5 << 28
"""of logits on a GPU; within these bounds the rows of a chunk follow from it"""


@dataclass(frozen=True)
class Reading:
    """What one pass over the logits tells, in float32; logits here are before the temperature."""

    peak_C: Tensor
    """the largest logit"""
    sum_C: Tensor
    """sum_j e^{z_j}, z_j = (logit_j - peak) / tau"""
    dot_C: Tensor
    """sum_j e^{z_j} z_j"""
    picked_CJ: Tensor
    """the logits at the given ids, 0 at -1"""
    top_Ck: Tensor
    """the largest logits, best first, equal ones in id order"""
    top_ids_Ck: Tensor


@dataclass(frozen=True)
class Slope:
    """d loss / d logit_j = sum of grad over ids = j, + p_j (base + slope log p_j); 1 / tau inside.

    log p_j = (logit_j - peak) / tau + offset, with the peak of the reading.
    """

    offset_C: Tensor
    base_C: Tensor
    slope_C: Tensor | None
    ids_CJ: Tensor
    """-1 is not of this shard"""
    grad_CJ: Tensor
    logp_CJ: Tensor


class Chunk(Protocol):
    """Buffers for the logits of up to `rows` rows; fill, read and gradient in this order."""

    def fill(self, hidden_CH: Tensor, weight_VH: Tensor) -> None:
        """logits = hidden @ weight^T, rounded to the operands' dtype."""

    def read(self, inv_tau_C: Tensor, ids_CJ: Tensor, topk: int) -> Reading:
        """One pass over the logits. Rows that are -inf throughout have sum 0."""

    def gradient(self, slope: Slope) -> Tensor:
        """[C, V] in the dtype that products run in, rounded once; the logits are gone."""


def open_chunk(hidden_TH: Tensor, rows: int, num_vocab: int) -> Chunk:
    """A chunk of the backend that belongs to the tensor's device."""
    if backend.choose(hidden_TH.device.type) == "triton":
        from claw.kernels.triton_chunk import TritonChunk

        return TritonChunk(hidden_TH, rows, num_vocab)
    from claw.kernels.torch_chunk import TorchChunk

    return TorchChunk(hidden_TH, rows, num_vocab)


def rows_of(chunk_tokens: int | None, hidden_TH: Tensor, num_vocab: int) -> int:
    """Rows of a chunk: as asked, else 256 on a CPU and by a byte budget on a GPU.

    Never from the shape of the head: every chunk of training reads and writes the whole weight
    gradient, so a small one is slow however small the head.
    """
    if chunk_tokens is not None:
        return chunk_tokens
    if hidden_TH.device.type == "cpu":
        return CPU_ROWS
    is_torch = backend.choose(hidden_TH.device.type) == "torch"
    return gpu_rows(num_vocab * (8 if is_torch else hidden_TH.element_size()))


def gpu_rows(row_bytes: int) -> int:
    """Rows of a chunk on a GPU, of which each takes so many bytes."""
    low, high = GPU_ROWS
    return min(max(GPU_BYTES // row_bytes // 128 * 128, low), high)
