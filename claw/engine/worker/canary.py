"""The identity canary on the transformers backend: scored as requests are, kept prefixes included.

Owns: the scores of the canary's sequences, the comparison with the trainer's.
Does not own: loading weights (weights, adapters), what happens after a refusal (held).

The first half of each sequence is kept like the prefix of a conversation. Right after a swap it
must not be found again: entries that older weights computed spoil the second half, and are seen so.
"""

from collections.abc import Sequence

import numpy as np
import torch

from claw.engine.versions import Canary, CanaryError, canary_verdict, check_canary_ids
from claw.engine.worker.backend import Key
from claw.engine.worker.model import Model
from claw.engine.worker.prefix import MIN_TOKENS, Prefixes
from claw.engine.worker.sampler import score_rows
from claw.engine.worker.slots import SlotCache


class Probe:
    """Scores fixed sequences with the weights that are in the model now."""

    def __init__(self, model: Model, prefixes: Prefixes, tolerance: float) -> None:
        self.model, self.prefixes, self.tolerance = model, prefixes, tolerance

    def remember(self, canary: Canary | None, weights: Key | None) -> None:
        """Have the present weights compute the kept halves, unless they did."""
        if canary is None or not canary.logps.size or self._is_kept(canary, weights):
            return
        check_canary_ids(canary, self.model.vocab_size)
        self._score(canary.ids, weights)

    def compare(self, canary: Canary | None, weights: Key | None) -> tuple[float, float]:
        """Return the largest and the mean difference in nats; CanaryError beyond the tolerance."""
        if canary is None or not canary.logps.size:
            return 0.0, 0.0
        check_canary_ids(canary, self.model.vocab_size)
        scores, starts = self._score(canary.ids, weights)
        gaps = [np.abs(row.astype(np.float64) - logps[start:]) for row, logps, start in
                zip(scores, canary.logps, starts, strict=True)]
        try:
            return canary_verdict(gaps, self.tolerance, starts)
        except CanaryError as error:
            raise error.because(
                "every tensor is the trainer's own, so what differs is the computing, or what was "
                "kept of older weights") from None

    def _is_kept(self, canary: Canary, weights: Key | None) -> bool:
        return all(self.prefixes.find(_session(i), weights, ids)[0]
                   for i, ids in enumerate(canary.ids))

    def _score(
        self, ids_NL: np.ndarray, weights: Key | None
    ) -> tuple[list[np.ndarray], list[int]]:
        """Log-probs of each sequence's ids after what was kept of it, and how much that was."""
        num, length = ids_NL.shape
        cache = SlotCache(num, length)
        cache.reserve(length)
        starts = [self._copy_in(cache, i, ids, weights) for i, ids in enumerate(ids_NL)]
        rows = [ids[start:].tolist() for ids, start in zip(ids_NL, starts, strict=True)]
        logits_NTV = self.model.forward(cache, 0, rows, starts, keep_all=True)
        half = max(length // 2, MIN_TOKENS)
        scores = []
        for i, (ids, start) in enumerate(zip(ids_NL, starts, strict=True)):
            own = logits_NTV[i, -len(rows[i]) :][:-1]
            scores.append(score_rows(own, ids[start + 1 :], 1.0, 0)[0])
            if half < length:
                self.prefixes.keep(_session(i), weights, ids[:half], cache.copy_out(i, half))
        return scores, starts

    def _copy_in(
        self, cache: SlotCache, row: int, ids: np.ndarray, weights: Key | None
    ) -> int:
        size, entries = self.prefixes.find(_session(row), weights, ids)
        if size:
            _make_room(cache, entries)
            cache.copy_in(row, entries, size)
        return size


def _session(row: int) -> tuple[str, str, str]:
    """No client's: theirs are not empty of owner and adapter."""
    return f"canary {row}", "", ""


def _make_room(cache: SlotCache, entries: Sequence[torch.Tensor]) -> None:
    """The buffers of a cache that no forward has filled yet."""
    if not cache.keys:
        half = len(entries) // 2
        for buffers, of in ((cache.keys, entries[:half]), (cache.values, entries[half:])):
            buffers += [e.new_zeros(cache.num_rows, e.shape[0], cache.width, e.shape[2])
                        for e in of]
