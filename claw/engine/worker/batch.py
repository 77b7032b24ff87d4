"""The requests that are in the model: one slot each, arranged so that a forward is one slice.

Owns: slots, and their rows: decoding rows first, then rows whose prompt is still being read.
Does not own: the forward (model) or what to do with its result (the backend).
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from claw.engine.worker.backend import Chunk, Generate, Key, Score
from claw.engine.worker.eyes import Seen
from claw.engine.worker.sampler import Draw
from claw.engine.worker.slots import SlotCache
from claw.records import FinishReason

CHUNK_TOKENS = 4
CHUNK_S = 0.1
"""a chunk is sent after so many tokens or seconds; the first token goes at once"""


@dataclass(eq=False)
class Slot:
    """A running request."""

    request: Generate | Score
    weights: Key | None
    """its adapter; None for the base weights"""
    stops: frozenset[int]
    max_length: int
    """tokens of prompt and reply together"""
    tokens: list[int]
    """prompt and reply"""
    filled: int = 0
    """tokens whose key-value entries are in the cache"""
    cached: int = 0
    num_sent: int = 0
    sent_at: float = 0.0
    """time.monotonic(); 0 makes the first token due at once"""
    rows: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    """sampled and not sent yet; for a Score: its chunks of results"""
    finish: FinishReason | None = None
    seen: Seen | None = None
    """its pictures"""
    generator: torch.Generator = field(default_factory=torch.Generator)

    def __post_init__(self) -> None:
        seed = self.request.sampling.seed if isinstance(self.request, Generate) else 0
        self.generator.manual_seed(secrets.randbits(63) if seed is None else seed)

    @property
    def missing(self) -> int:
        """Tokens that the model has not read yet; 1 while decoding."""
        return len(self.tokens) - self.filled

    def marks(self, ids: np.ndarray) -> np.ndarray:
        """What a kept prefix is known by: the ids, and which pictures they show."""
        return ids if self.seen is None else self.seen.marked(ids)

    def uniform(self) -> float:
        return torch.rand(1, generator=self.generator, dtype=torch.float64).item()

    def take(self, draw: Draw, i: int, version: int) -> None:
        """Append the token that row `i` of the draw sampled."""
        assert isinstance(self.request, Generate), "a score samples nothing"
        k = self.request.sampling.logprobs_k
        kept = draw.kept_ids[i]
        self.rows.append((
            draw.ids[i], draw.logps[i], draw.topk_ids[i, :k], draw.topk_logps[i, :k],
            np.int32(version), draw.sampling_logps[i], kept if kept is not None else np.empty(0),
        ))
        token = int(draw.ids[i])
        self.tokens.append(token)
        if token in self.stops:
            self.finish = FinishReason.STOP
        elif len(self.tokens) >= self.max_length:
            self.finish = FinishReason.LENGTH

    def drop_features(self) -> None:
        """The prompt is read, or other weights see otherwise."""
        if self.seen is not None:
            self.seen.features.clear()

    def chunk(self, *, whole: bool) -> Chunk | None:
        """Return what is to be sent now; `whole` sends whatever there is."""
        if not self.rows or not isinstance(self.request, Generate):
            return None
        now = time.monotonic()
        if not whole and len(self.rows) < CHUNK_TOKENS and now - self.sent_at < CHUNK_S:
            return None
        arrays = _columns(self.rows, self.request.sampling.is_truncated)
        chunk = Chunk(self.request.id, self.num_sent, arrays)
        self.num_sent += len(self.rows)
        self.sent_at, self.rows = now, []
        return chunk


def _columns(rows: Sequence[tuple[np.ndarray, ...]], is_truncated: bool) -> dict[str, np.ndarray]:
    ids, logps, topk_ids, topk_logps, versions, sampling, kept = zip(*rows, strict=True)
    arrays = {
        "ids": np.array(ids, np.int32), "logps": np.array(logps, np.float32),
        "topk_ids": np.stack(topk_ids).astype(np.int32),
        "topk_logps": np.stack(topk_logps).astype(np.float32),
        "versions": np.array(versions, np.int32),
    }
    if is_truncated:
        arrays["sampling_logps"] = np.array(sampling, np.float32)
        arrays["kept_ids"] = np.concatenate(kept).astype(np.int32)
        arrays["kept_counts"] = np.array([len(k) for k in kept], np.int32)
    return arrays


class Batch:
    """Slots by row. Rows 0 to num_decoding-1 decode, the others read their prompt."""

    def __init__(self, cache: SlotCache) -> None:
        self.cache = cache
        self.slots: list[Slot] = []
        self.num_decoding = 0

    @property
    def decoding(self) -> list[Slot]:
        return self.slots[: self.num_decoding]

    @property
    def reading(self) -> list[Slot]:
        return self.slots[self.num_decoding :]

    def add(self, slot: Slot) -> int:
        """Give the slot the next row, and return it."""
        self.slots.append(slot)
        return len(self.slots) - 1

    def start_decoding(self, slot: Slot) -> None:
        """Its prompt is read: move it to the end of the decoding rows."""
        self._swap(self.slots.index(slot), self.num_decoding)
        self.num_decoding += 1

    def remove(self, slot: Slot) -> None:
        """Free its row; the others move up, those that read keep their order."""
        row = self.slots.index(slot)
        if row < self.num_decoding:
            self._move(self.num_decoding - 1, row)
            self.num_decoding -= 1
            row = self.num_decoding
        for later in range(row + 1, len(self.slots)):
            self._move(later, later - 1)
        self.slots.pop()

    def forget_entries(self) -> None:
        """The weights changed: every request reads its tokens again."""
        for slot in self.slots:
            slot.filled = 0
            slot.drop_features()
            if isinstance(slot.request, Score):
                slot.rows = []
        self.num_decoding = 0

    def _move(self, source: int, target: int) -> None:
        if source != target:
            slot = self.slots[target] = self.slots[source]
            if slot.filled:
                self.cache.move(source, target, slot.filled)

    def _swap(self, a: int, b: int) -> None:
        if a != b:
            first, second = self.slots[a], self.slots[b]
            if second.filled:
                self.cache.swap(a, b, max(first.filled, second.filled))
            else:
                self.cache.move(a, b, first.filled)
            self.slots[a], self.slots[b] = second, first
