"""A request of the actor while it is at an engine's host: what it said, and what is still to send.

Owns: its tokens, its coalesced chunks, why it was taken out of the engine.
Does not own: tasks and the engine (host).
"""

import time
from dataclasses import dataclass, field

import numpy as np

from claw.engine.wire import Message
from claw.engine.worker.engine import Part
from claw.records import Sampling

CHUNK_TOKENS = 4
CHUNK_S = 0.1
"""a chunk is sent after so many tokens or seconds; the first token goes at once"""
CANCELLED, DEADLINE, SWAP = "cancelled", "deadline", "swap"


@dataclass(eq=False)
class Request:
    """A generate or score message, while it is here."""

    message: Message
    sampling: Sampling
    max_tokens: int
    tokens: list[int]
    """prompt and what was said"""
    said: int = 0
    cached: int = 0
    rid: str = ""
    """its name in the engine; empty while it is not in it"""
    ending: str = ""
    """why it was taken out of the engine"""
    _rows: list[dict[str, np.ndarray]] = field(default_factory=list)
    _num_waiting: int = 0
    _sent_at: float = 0.0

    @property
    def id(self) -> str:
        return self.message.id

    def come_back(self) -> None:
        """It was taken out for a swap only: it may go on."""
        if self.ending == SWAP:
            self.ending = ""

    def hear(self, part: Part, number: int) -> None:
        """Take tokens that the weights of this number sampled."""
        ids = part.arrays["ids"]
        if not self.said:
            self.cached = part.cached
        if not len(ids):
            return
        self.tokens += ids.tolist()
        self.said += len(ids)
        self._num_waiting += len(ids)
        self._rows.append(part.arrays | {"versions": np.full(len(ids), number, np.int32)})

    def is_due(self) -> bool:
        """Whether a chunk goes out now."""
        is_time = time.monotonic() - self._sent_at >= CHUNK_S
        return bool(self._rows) and (is_time or self._num_waiting >= CHUNK_TOKENS)

    def chunk(self) -> Message | None:
        """What waits to be sent."""
        if not self._rows:
            return None
        arrays = {name: np.concatenate([r[name] for r in self._rows]) for name in self._rows[0]}
        start = self.said - self._num_waiting
        self._rows, self._num_waiting, self._sent_at = [], 0, time.monotonic()
        return Message("generate.chunk", self.id, {"start": start}, arrays)
