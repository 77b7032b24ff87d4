"""Samples -> micro-batches: padded tensors that keep the boundaries of their sequences.

Owns: grouping under a token limit, padding, where each reply token is predicted.
Does not own: which tokens are trained (plan), the forward pass (model).

B sequences, L longest of them, T reply tokens of all sequences one after the other.
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
    """Sequences padded on the right: a causal model never looks there, so no mask is needed."""

    ids_BL: Tensor
    """int64; padding is 0"""
    lengths_B: Tensor
    """int64, prompt + reply"""
    cu_seqlens: Tensor
    """int32 [B + 1]: where each sequence starts once the padding is taken out"""
    row_T: Tensor
    """int64: the sequence of each reply token"""
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

    def at_replies(self, hidden_BLH: Tensor) -> Tensor:
        """[B, L, H] -> [T, H]: the hidden states that predict the reply tokens."""
        return hidden_BLH[self.row_T, self.column_T]

    def per_sequence(self, values_T: Tensor) -> tuple[Tensor, ...]:
        """Cut a tensor over T (first dimension) at the sequence boundaries."""
        return values_T.split(self.reply_lengths)


def pad(pairs: Sequence[Pair], device: torch.device | str = "cpu") -> MicroBatch:
    """Lay sequences beside each other. ValueError: an empty prompt or reply, or no sequence."""
    if not pairs or any(len(p) == 0 or len(r) == 0 for p, r, *_ in pairs):
        raise ValueError("a micro-batch needs sequences with a prompt and a reply each")
    lengths = [len(p) + len(r) for p, r, *_ in pairs]
    ids = np.zeros((len(pairs), max(lengths)), dtype=np.int64)
    rows, columns = [], []
    for i, (prompt, reply, *_) in enumerate(pairs):
        ids[i, : len(prompt)] = prompt
        ids[i, len(prompt) : lengths[i]] = reply
        rows.append(np.full(len(reply), i))
        columns.append(np.arange(len(prompt) - 1, lengths[i] - 1))

    def tensor(values: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.as_tensor(values, dtype=dtype).to(device)

    return MicroBatch(
        ids_BL=tensor(ids),
        lengths_B=tensor(np.array(lengths)),
        cu_seqlens=tensor(np.cumsum([0, *lengths]), torch.int32),
        row_T=tensor(np.concatenate(rows)),
        column_T=tensor(np.concatenate(columns)),
        reply_ids_T=tensor(np.concatenate([r for _, r, *_ in pairs])),
        reply_lengths=tuple(len(r) for _, r, *_ in pairs),
        pictures=tuple(tuple(shown) for _, _, *shown in pairs),
    )


def group(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Split indices into groups whose padded size (sequences x longest) is within `max_tokens`.

    Sequences of like length go together; one that is longer than the limit goes alone. The order
    among equal lengths is that of the argument.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        fits = groups and (len(groups[-1]) + 1) * lengths[i] <= max_tokens
        if fits:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
