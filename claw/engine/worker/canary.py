"""The identity canary on the transformers backend: scored between the tokens of requests.

Owns: the scores of the canary's sequences, the comparison with the trainer's.
Does not own: loading weights (weights, adapters), what happens after a refusal (held).

The sequences are scored before the swap, some tokens at a time, so that running requests wait for
no more than one such piece. The first half of the first sequence is kept like the prefix of a
conversation. Right after the swap it must not be found again: when it is, its second half is scored
over it, and entries that older weights computed spoil that.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from claw.engine import faults
from claw.engine.versions import Canary, CanaryError, canary_verdict, check_canary_ids
from claw.engine.worker.backend import Key
from claw.engine.worker.model import Model
from claw.engine.worker.prefix import MIN_TOKENS, Prefixes
from claw.engine.worker.sampler import score_rows
from claw.engine.worker.slots import SlotCache

KEPT = ("canary", "", "")
"""the session of the kept half; no client's: theirs are not empty of owner and adapter"""

PIECE_TOKENS = {"cpu": 8}
"""of one piece; elsewhere a whole sequence. Fewer cost no less: the weights are read once anyway"""

Pieces = Generator[None, None, Any]
Within = Callable[[], AbstractContextManager[None]]
"""inside it a forward uses the weights that are asked about"""


class Probe:
    """Scores fixed sequences with the weights that a forward uses."""

    def __init__(self, model: Model, prefixes: Prefixes, tolerance: float) -> None:
        self.model, self.prefixes, self.tolerance = model, prefixes, tolerance

    def remember(self, canary: Canary | None, weights: Key | None, within: Within) -> Pieces:
        """Have the weights that serve compute the half that is kept, unless they did."""
        if _is_empty(canary) or self._kept(canary, weights)[0]:
            return
        check_canary_ids(canary, self.model.vocab_size)
        half = max(canary.ids.shape[1] // 2, MIN_TOKENS)
        if half < canary.ids.shape[1]:
            cache = SlotCache(1, half)
            yield from self._score(cache, canary.ids[0][:half], 0, within)
            self.prefixes.keep(KEPT, weights, canary.ids[0][:half], cache.copy_out(0, half))

    def scores(self, canary: Canary | None, within: Within) -> Pieces:
        """Log-probs of every sequence; a yield before each piece."""
        if _is_empty(canary):
            return []
        check_canary_ids(canary, self.model.vocab_size)
        found = []
        for ids in canary.ids:
            found.append((yield from self._score(SlotCache(1, len(ids)), ids, 0, within)))
        return found

    @faults.around("worker.canary")
    def verdict(
        self, canary: Canary | None, weights: Key | None, within: Within,
        scores: list[np.ndarray],
    ) -> tuple[float, float]:
        """Compare the scores, over what is kept of the first sequence in their place.

        Returns the largest and the mean difference in nats; CanaryError beyond the tolerance.
        """
        if _is_empty(canary):
            return 0.0, 0.0
        starts = [0] * len(scores)
        starts[0], entries = self._kept(canary, weights)
        if starts[0]:
            cache = SlotCache(1, canary.ids.shape[1])
            _fill(cache, entries, starts[0])
            scores = [_whole(self._score(cache, canary.ids[0], starts[0], within)), *scores[1:]]
        gaps = [np.abs(row.astype(np.float64) - logps[start:]) for row, logps, start in
                zip(scores, canary.logps, starts, strict=True)]
        try:
            return canary_verdict(gaps, self.tolerance, starts)
        except CanaryError as error:
            raise error.because(
                "every tensor is the trainer's own, so what differs is the computing, or what was "
                "kept of older weights") from None

    def _kept(self, canary: Canary, weights: Key | None) -> tuple[int, list[torch.Tensor]]:
        return self.prefixes.find(KEPT, weights, canary.ids[0])

    def _score(self, cache: SlotCache, ids: np.ndarray, start: int, within: Within) -> Pieces:
        """Log-probs of ids[start + 1 :], after `start` tokens that the cache holds."""
        rows, size = [], PIECE_TOKENS.get(self.model.device.type, len(ids))
        for at in range(start, len(ids), size):
            yield
            piece, next_ids = ids[at : at + size], ids[at + 1 : at + 1 + size]
            with within():
                logits_1TV = self.model.forward(
                    cache, 0, [piece.tolist()], [at], keep_all=True)
            rows.append(score_rows(logits_1TV[0][: len(next_ids)], next_ids, 1.0, 0)[0])
        return np.concatenate(rows)


def _is_empty(canary: Canary | None) -> bool:
    return canary is None or not canary.logps.size


def _fill(cache: SlotCache, entries: list[torch.Tensor], size: int) -> None:
    """Put kept entries into a cache that no forward has used yet."""
    cache.reserve(size)
    half = len(entries) // 2
    for buffers, of in ((cache.keys, entries[:half]), (cache.values, entries[half:])):
        buffers += [e.new_zeros(1, e.shape[0], cache.width, e.shape[2]) for e in of]
    cache.copy_in(0, entries, size)


def _whole(pieces: Pieces) -> Any:
    """All pieces at once; what they return."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            return end.value
