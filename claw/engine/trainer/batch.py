"""Samples -> micro-batches: padded or packed tensors that keep the boundaries of their sequences.

Owns: grouping under a token limit, padding and packing, where each reply token is predicted.
Does not own: which tokens are trained (plan), the forward pass (model, attention).

B rows, L their length, T reply tokens of all sequences one after the other. Padded, each sequence
is a row; packed, all are one row without padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Pair = tuple[np.ndarray, ...]
"""prompt ids [P >= 1] and reply ids [R >= 1] of one sequence, then the pictures of the prompt"""


@dataclass(frozen=True)
class MicroBatch:
    """Sequences padded on the right: a causal model never looks there, so no mask is needed.

    Packed ones need their boundaries: attention ends there, and positions begin again.
    """

    ids_BL: Tensor
    """int64; padding is 0"""
    cu_seqlens: Tensor
    """int32, one more than sequences: where each starts once the padding is taken out"""
    is_packed: bool
    sequence_T: Tensor
    """int64: the sequence of each reply token"""
    row_T: Tensor
    """int64: the row of each reply token"""
    column_T: Tensor
    """int64: the position whose hidden state predicts the token (one before it)"""
    reply_ids_T: Tensor
    """int64"""
    reply_lengths: tuple[int, ...]
    """R of each sequence, in order"""
    pictures: tuple[tuple[np.ndarray, ...], ...] = ()
    """of each sequence, uint8 [H, W, 3] each"""

    @property
    def num_tokens(self) -> int:
        return int(self.cu_seqlens[-1])

    @property
    def bounds(self) -> Tensor | None:
        """`cu_seqlens` where the model must be told of them."""
        return self.cu_seqlens if self.is_packed else None

    def at_replies(self, hidden_BLH: Tensor) -> Tensor:
        """[B, L, H] -> [T, H]: the hidden states that predict the reply tokens."""
        return hidden_BLH[self.row_T, self.column_T]

    def per_sequence(self, values_T: Tensor) -> tuple[Tensor, ...]:
        """Cut a tensor over T (first dimension) at the sequence boundaries."""
        return values_T.split(self.reply_lengths)


def lay(
    pairs: Sequence[Pair], device: torch.device | str = "cpu", *, packed: bool = False
) -> MicroBatch:
    """Lay sequences beside each other, each in a row, or, packed, one after the other in one row.

    ValueError: an empty prompt or reply, or no sequence.
    """
    if not pairs or any(len(p) == 0 or len(r) == 0 for p, r, *_ in pairs):
        raise ValueError("a micro-batch needs sequences with a prompt and a reply each")
    lengths = [len(p) + len(r) for p, r, *_ in pairs]
    starts = np.cumsum([0, *lengths])
    shape = (1, sum(lengths)) if packed else (len(pairs), max(lengths))
    ids = np.zeros(shape, dtype=np.int64)
    sequences, rows, columns = [], [], []
    for i, (prompt, reply, *_) in enumerate(pairs):
        row, start = (0, starts[i]) if packed else (i, 0)
        ids[row, start : start + lengths[i]] = np.concatenate([prompt, reply])
        sequences.append(np.full(len(reply), i))
        rows.append(np.full(len(reply), row))
        columns.append(start + np.arange(len(prompt) - 1, lengths[i] - 1))

    def tensor(values: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(values, dtype=dtype).to(device)

    return MicroBatch(
        ids_BL=tensor(ids),
        cu_seqlens=tensor(starts, torch.int32),
        is_packed=packed,
        sequence_T=tensor(np.concatenate(sequences)),
        row_T=tensor(np.concatenate(rows)),
        column_T=tensor(np.concatenate(columns)),
        reply_ids_T=tensor(np.concatenate([r for _, r, *_ in pairs])),
        reply_lengths=tuple(len(r) for _, r, *_ in pairs),
        pictures=tuple(tuple(shown) for _, _, *shown in pairs),
    )


def group(lengths: Sequence[int], max_tokens: int, *, packed: bool = False) -> list[list[int]]:
    """Split indices into groups whose size is within `max_tokens`.

    The size of a padded group is sequences x longest: those of like length go together. That of a
    packed one is the sum: each goes where it still fits, the longest first. A sequence that is
    longer than the limit goes alone. The order among equal lengths is that of the argument.
    """
    if packed:
        return _fill(lengths, max_tokens)
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        fits = groups and (len(groups[-1]) + 1) * lengths[i] <= max_tokens
        if fits:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _fill(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    groups: list[list[int]] = []
    sizes: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        at = next((g for g, size in enumerate(sizes) if size + lengths[i] <= max_tokens), None)
        if at is None:
            groups.append([i])
            sizes.append(lengths[i])
        else:
            groups[at].append(i)
            sizes[at] += lengths[i]
    return groups
