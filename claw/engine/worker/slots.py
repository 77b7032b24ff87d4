"""The key-value cache of all running requests: one row each, preallocated, growing in width.

Owns: the buffers, writing new entries in place, moving rows, the attention mask.
Does not own: which request has which row (batch), what is worth keeping (prefix).

S rows, n rows of one forward, T new tokens of each, H heads, W columns, D head size. Column c of a
row is token c of its request. Rows of one forward bring different numbers of new tokens: they are
aligned right, and the padding on their left is written to the last column, which nobody reads.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

FIRST_WIDTH = 256
"""columns at the start; doubled when a request outgrows them"""


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows and columns one forward touches."""

    start: int
    stop: int
    rows_n1: Tensor
    """int64: 0 to n-1"""
    columns_nT: Tensor
    """int64: where each new token is written"""
    width: int
    """columns that are read"""


class SlotCache(Cache):
    """What `forward` sees as its cache; reads are views, so nothing is copied per step."""

    def __init__(self, num_rows: int, max_width: int) -> None:
        self.layers: list[Any] = []  # the parent asks; our buffers are not its layers
        self.num_rows, self.max_width = num_rows, max_width + 1  # and the column of the padding
        self.width = 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.window: Window | None = None

    def reserve(self, width: int) -> None:
        """Make room for `width` columns beside the padding's one."""
        if width + 1 <= self.width:
            return
        grown = max(self.width, FIRST_WIDTH)
        while grown < width + 1:
            grown *= 2
        self.width = max(min(grown, self.max_width), width + 1)
        for buffers in (self.keys, self.values):
            for i, old in enumerate(buffers):
                buffers[i] = self._empty(old, self.width)
                buffers[i][:, :, : old.shape[2] - 1] = old[:, :, :-1]

    def _empty(self, like: Tensor, width: int) -> Tensor:
        # zeros: a masked column still enters the sum as 0 * value, and 0 * nan is nan
        return like.new_zeros(self.num_rows, like.shape[1], width, like.shape[3])

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [n, H, T, D] in place and return what is attended: views [n, H, W, D]."""
        w = self.window
        assert w is not None, "a forward needs a window"
        if layer_idx == len(self.keys):
            self.keys.append(self._empty(key_states, self.width))
            self.values.append(self._empty(value_states, self.width))
        found = []
        for buffer, new in ((self.keys[layer_idx], key_states),
                            (self.values[layer_idx], value_states)):
            part = buffer[w.start : w.stop]
            part[w.rows_n1, :, w.columns_nT] = new.transpose(1, 2)
            found.append(part[:, :, : w.width])
        return found[0], found[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.window.width if self.window else 0

    # --- rows --------------------------------------------------------------------------------

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of a row over another one."""
        for buffer in (*self.keys, *self.values):
            buffer[target, :, :length] = buffer[source, :, :length]

    def swap(self, a: int, b: int, length: int) -> None:
        for buffer in (*self.keys, *self.values):
            kept = buffer[a, :, :length].clone()
            buffer[a, :, :length] = buffer[b, :, :length]
            buffer[b, :, :length] = kept

    def copy_out(self, row: int, length: int) -> list[Tensor]:
        """Return the entries of a row: keys of each layer, then values, [H, length, D] each."""
        return [b[row, :, :length].clone() for b in (*self.keys, *self.values)]

    def copy_in(self, row: int, entries: list[Tensor], length: int) -> None:
        self.reserve(length)
        for buffer, entry in zip((*self.keys, *self.values), entries, strict=True):
            buffer[row, :, :length] = entry[:, :length]


def attention_mask(positions_nT: Tensor, width: int, sliding: int | None = None) -> Tensor:
    """Bool [n, 1, T, W]: token at position p sees columns 0..p (the last `sliding` of them)."""
    columns = torch.arange(width, device=positions_nT.device)
    seen = columns <= positions_nT[:, None, :, None]
    if sliding:
        seen &= columns > positions_nT[:, None, :, None] - sliding
    return seen
