"""The identity canary on the transformers backend: scored between the tokens of requests.

Owns: the scores of the canary's sequences, the comparison with the trainer's.
Does not own: loading weights (weights, adapters), what happens after a refusal (held).

The first half of the first sequence is kept like the prefix of a conversation. Right after a swap
it must not be found again: entries that older weights computed spoil the second half, and are seen
so. The other sequences are scored before the swap, one at a time, so that running requests wait for
no more than one of them.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager

import numpy as np
import torch

from claw.engine.versions import Canary, CanaryError, canary_verdict, check_canary_ids
from claw.engine.worker.backend import Key
from claw.engine.worker.model import Model
from claw.engine.worker.prefix import MIN_TOKENS, Prefixes
from claw.engine.worker.sampler import score_rows
from claw.engine.worker.slots import SlotCache

KEPT = ("canary", "", "")
"""the session of the kept half; no client's: theirs are not empty of owner and adapter"""

Within = Callable[[], AbstractContextManager[None]]
"""inside it a forward uses the weights that are asked about"""


class Probe:
    """Scores fixed sequences with the weights that a forward uses."""

    def __init__(self, model: Model, prefixes: Prefixes, tolerance: float) -> None:
        self.model, self.prefixes, self.tolerance = model, prefixes, tolerance

    def remember(self, canary: Canary | None, weights: Key | None, within: Within) -> None:
        """Have the weights that serve compute the kept half, unless they did."""
        if _is_empty(canary) or self.prefixes.find(KEPT, weights, canary.ids[0])[0]:
            return
        check_canary_ids(canary, self.model.vocab_size)
        with within():
            self._first(canary.ids[0], weights)

    def others(
        self, canary: Canary | None, within: Within
    ) -> Generator[None, None, list[np.ndarray]]:
        """Score all sequences but the first; a yield before and after each one."""
        found: list[np.ndarray] = []
        if _is_empty(canary):
            return found
        check_canary_ids(canary, self.model.vocab_size)
        for ids in canary.ids[1:]:
            yield
            with within():
                found.append(self._score(SlotCache(1, len(ids)), ids, 0))
        yield
        return found

    def verdict(
        self, canary: Canary | None, weights: Key | None, within: Within,
        others: list[np.ndarray],
    ) -> tuple[float, float]:
        """Score the first sequence too, after what is kept of it.

        Returns the largest and the mean difference in nats; CanaryError beyond the tolerance.
        """
        if _is_empty(canary):
            return 0.0, 0.0
        with within():
            first, start = self._first(canary.ids[0], weights)
        starts = [start, *[0] * len(others)]
        gaps = [np.abs(row.astype(np.float64) - logps[start:]) for row, logps, start in
                zip([first, *others], canary.logps, starts, strict=True)]
        try:
            return canary_verdict(gaps, self.tolerance, starts)
        except CanaryError as error:
            raise error.because(
                "every tensor is the trainer's own, so what differs is the computing, or what was "
                "kept of older weights") from None

    def _first(self, ids: np.ndarray, weights: Key | None) -> tuple[np.ndarray, int]:
        """Log-probs of the ids after what was kept of them, and how much that was."""
        cache = SlotCache(1, len(ids))
        start, entries = self.prefixes.find(KEPT, weights, ids)
        if start:
            _make_room(cache, entries, len(ids))
            cache.copy_in(0, entries, start)
        logps = self._score(cache, ids, start)
        half = max(len(ids) // 2, MIN_TOKENS)
        if half < len(ids):
            self.prefixes.keep(KEPT, weights, ids[:half], cache.copy_out(0, half))
        return logps, start

    def _score(self, cache: SlotCache, ids: np.ndarray, start: int) -> np.ndarray:
        cache.reserve(len(ids))
        logits_1TV = self.model.forward(
            cache, 0, [ids[start:].tolist()], [start], keep_all=True)
        return score_rows(logits_1TV[0][:-1], ids[start + 1 :], 1.0, 0)[0]


def _is_empty(canary: Canary | None) -> bool:
    return canary is None or not canary.logps.size


def _make_room(cache: SlotCache, entries: list[torch.Tensor], width: int) -> None:
    """The buffers of a cache that no forward has filled yet."""
    cache.reserve(width)
    half = len(entries) // 2
    for buffers, of in ((cache.keys, entries[:half]), (cache.values, entries[half:])):
        buffers += [e.new_zeros(1, e.shape[0], cache.width, e.shape[2]) for e in of]
