"""Finished replies' key-value entries, kept for the next turn of their session.

Owns: one entry per session, bounded in bytes, the least recently used go first.
Does not own: the rows of running requests (slots).
"""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from claw.engine.worker.backend import Key

MAX_BYTES = 1 << 30
"""of all entries together, on the model's device"""
MIN_TOKENS = 16
"""shorter prefixes are as quickly computed again"""


@dataclass(frozen=True, slots=True)
class Entry:
    weights: Key | None
    """the weights that computed it; None for the base"""
    ids: np.ndarray
    entries: list[Tensor]
    num_bytes: int


class Prefixes:
    """Session -> what its last request computed."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._entries: OrderedDict[tuple[str, str, str], Entry] = OrderedDict()

    def keep(
        self, session: tuple[str, str, str], weights: Key | None, ids: np.ndarray,
        entries: list[Tensor],
    ) -> None:
        """Remember the entries of `ids`; older ones make room."""
        self._drop(session)
        size = sum(t.numel() * t.element_size() for t in entries)
        if size > self.max_bytes:
            return
        self._entries[session] = Entry(weights, ids, entries, size)
        self.num_bytes += size
        while self.num_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))

    def find(
        self, session: tuple[str, str, str], weights: Key | None, ids: np.ndarray
    ) -> tuple[int, list[Tensor]]:
        """Return how many tokens of `ids` are known, and their entries; (0, []) for none."""
        entry = self._entries.get(session)
        if entry is None or entry.weights != weights:
            return 0, []
        self._entries.move_to_end(session)
        size = min(len(ids) - 1, len(entry.ids))  # the last token's logits are needed anew
        differs = np.flatnonzero(entry.ids[:size] != ids[:size])
        size = int(differs[0]) if len(differs) else size
        return (size, entry.entries) if size >= MIN_TOKENS else (0, [])

    def drop(self, weights: Key | None) -> None:
        """Forget what these weights computed."""
        for session in [s for s, e in self._entries.items() if e.weights == weights]:
            self._drop(session)

    def clear(self) -> None:
        self._entries.clear()
        self.num_bytes = 0

    def _drop(self, session: tuple[str, str, str]) -> None:
        if (entry := self._entries.pop(session, None)) is not None:
            self.num_bytes -= entry.num_bytes
