"""Samples wait here for a step.

Owns: which samples wait, which are leased, what is not worth training, staleness.
Does not own: the journal's copy, and the turn's state (`ledger.py` is told through the returns).
"""

import hashlib
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from claw.records import Sample, new_id

NGRAM = 4
MIN_LOOP_TOKENS = 40
"""shorter replies are never called degenerate"""
MIN_DISTINCT = 0.25
"""share of distinct n-grams below which a reply is a loop"""
REMEMBERED = 20_000
"""digests of samples kept to find duplicates"""

Dropped = list[tuple[Sample, str]]
Key = tuple[str, str]
"""a place that samples come from: `conversation` and its trace, or `hint` and its words"""
Pictures = Callable[[tuple[str, ...]], Awaitable[tuple[np.ndarray, ...]]]


@dataclass(frozen=True, slots=True)
class Waiting:
    sample: Sample
    since: float
    """by the monotonic clock: a step must not wait for a clock that was set back"""
    sources: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class Lease:
    """What one step trains."""

    id: str
    samples: tuple[Sample, ...]


class Buffer:
    """Waiting and leased samples of a run, oldest first."""

    def __init__(
        self, max_staleness: int, *, masks: bool = False, shares: Mapping[str, float] | None = None
    ) -> None:
        """`masks`: the trainer leaves old tokens out; only a sample of nothing else is stale.

        `shares`: the largest share of a step that one source of a kind may have.
        """
        self.max_staleness, self.masks, self.shares = max_staleness, masks, dict(shares or {})
        self.sources: Callable[[Sample], frozenset[Key]] = lambda sample: frozenset()
        """where a sample comes from, as far as shares go"""
        self.over: Counter[str] = Counter()
        """by kind of source: samples that a step left waiting for being over the share"""
        self.waiting: dict[str, Waiting] = {}
        self.leases: dict[str, Lease] = {}
        self.dropped: Counter[str] = Counter()
        """by reason, since the last lease"""
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self.pictures: Pictures | None = None
        """finds the pixels of a sample's images; None where the model sees none"""

    def refusal(self, sample: Sample, *, in_group: bool = False) -> str:
        """Return why a sample is not worth training, or nothing.

        Equal replies inside a group are the group's own business and no duplicates.
        """
        reply = sample.reply_ids
        if len(reply) == 0 or not sample.mask.any():
            return "empty_reply"
        if not sample.has_advantage and not sample.hints:
            return "no_signal"
        if is_loop(reply):
            return "degenerate"
        return "duplicate" if not in_group and _digest(sample) in self._seen else ""

    def add(self, sample: Sample, since: float | None = None) -> None:
        """Let a sample wait."""
        since = time.monotonic() if since is None else since
        self.waiting[sample.id] = Waiting(sample, since, self.sources(sample))
        self._seen[_digest(sample)] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def drop_stale(self, newest: Callable[[Sample], int]) -> Dropped:
        """Take out samples that are too many versions behind `newest(sample)`."""
        stale = [
            w.sample for w in self.waiting.values()
            if newest(w.sample) - self._version(w.sample) > self.max_staleness
        ]
        for sample in stale:
            del self.waiting[sample.id]
            self.dropped["stale"] += 1
        return [(sample, "stale") for sample in stale]

    def _version(self, sample: Sample) -> int:
        """That of the oldest token that would be trained."""
        return int(sample.versions.max()) if self.masks else sample.version

    def is_ready(self, max_samples: int, max_wait_s: float, now: float | None = None) -> bool:
        """Whether a step's worth waits: enough samples, or one that waited long enough."""
        return bool(self._ready(max_samples, max_wait_s, time.monotonic() if now is None else now))

    def lease(
        self, max_samples: int, max_wait_s: float, now: float | None = None, *,
        paused: Callable[[str], bool] = lambda owner: False,
    ) -> Lease | None:
        """Take a step's worth out, oldest first; None when it is not time yet.

        `paused` owners wait, whatever is ready.
        """
        now = time.monotonic() if now is None else now
        ready = self._ready(max_samples, max_wait_s, now, paused)
        if not ready:
            return None
        chosen, over = shared(ready, max_samples, self.shares)
        self.over.update(over)
        for waiting in chosen:
            del self.waiting[waiting.sample.id]
        lease = Lease(new_id("lease"), tuple(w.sample for w in chosen))
        self.leases[lease.id] = lease
        return lease

    async def seen(self, lease: Lease) -> list[Sample]:
        """Return a lease's samples with the pixels of their images; here they wait without.

        One whose images were forgotten meanwhile goes as it is, and the trainer leaves it out.
        """
        made = []
        for sample in lease.samples:
            if sample.images and self.pictures is not None:
                with suppress(KeyError):
                    sample = replace(sample, pictures=await self.pictures(sample.images))
            made.append(sample)
        return made

    def _ready(
        self, max_samples: int, max_wait_s: float, now: float,
        paused: Callable[[str], bool] = lambda owner: False,
    ) -> list[Waiting]:
        """All that waits, oldest first, of the owner whose step it is: a step trains one adapter,
        and the one that waits longest goes first."""
        by_adapter: dict[tuple[str, str], list[Waiting]] = {}
        for w in sorted(self.waiting.values(), key=lambda w: w.since):
            if not paused(w.sample.owner):
                by_adapter.setdefault((w.sample.owner, w.sample.adapter), []).append(w)
        for those in by_adapter.values():
            if len(those) >= max_samples or now - those[0].since >= max_wait_s:
                return those
        return []

    def restore(self, samples: list[tuple[Sample, str]]) -> None:
        """Take (sample, lease id) of leases that an earlier process gave out."""
        by_lease: dict[str, list[Sample]] = {}
        for sample, lease_id in samples:
            by_lease.setdefault(lease_id, []).append(sample)
        for id, those in by_lease.items():
            self.leases[id] = Lease(id, tuple(those))

    def finish(self, lease_id: str) -> Lease | None:
        """Take a lease away that was trained."""
        return self.leases.pop(lease_id, None)

    def release(self, lease_id: str) -> Lease | None:
        """Put a lease's samples back."""
        lease = self.leases.pop(lease_id, None)
        for sample in lease.samples if lease else ():
            self.add(sample)
        return lease

    def remove(self, sample_id: str) -> Sample | None:
        """Take one waiting sample out (its turn was judged anew or forgotten)."""
        waiting = self.waiting.pop(sample_id, None)
        if waiting is not None:
            self._seen.pop(_digest(waiting.sample), None)
        return waiting.sample if waiting else None

    def oldest_s(self) -> float:
        """Return for how long the oldest sample has waited; 0 without one."""
        return time.monotonic() - min((w.since for w in self.waiting.values()),
                                      default=time.monotonic())

    def by_owner(self) -> dict[str, int]:
        """Return how many samples of each owner wait."""
        return dict(Counter(w.sample.owner for w in self.waiting.values()))

    def take_dropped(self) -> dict[str, int]:
        """Return what was dropped since the last call, by reason."""
        counts, self.dropped = dict(self.dropped), Counter()
        return counts


def shared(
    waiting: list[Waiting], size: int, shares: Mapping[str, float]
) -> tuple[list[Waiting], Counter[str]]:
    """Return a step's worth, oldest first, and what was passed over, by kind of source.

    Of one source at most its kind's share of `size`, at least one; what is over is first in line
    the next time. A source that everything comes from is not limited: it crowds nobody out, and
    more and smaller steps would move the weights further, not less. So the oldest is always taken.
    """
    everywhere = frozenset.intersection(*(w.sources for w in waiting))
    most = {kind: max(1, int(share * size)) for kind, share in shares.items()}
    chosen: list[Waiting] = []
    used: Counter[Key] = Counter()
    over: Counter[str] = Counter()
    for w in waiting:
        if len(chosen) == size:
            break
        mine = w.sources - everywhere
        full = {kind for kind, name in mine if used[kind, name] >= most.get(kind, size)}
        if full:
            over.update(full)
            continue
        chosen.append(w)
        used.update(mine)
    return chosen, over


def is_loop(ids: np.ndarray) -> bool:
    """Whether a reply repeats itself: few distinct n-grams among many tokens."""
    n = len(ids) - NGRAM + 1
    if len(ids) < MIN_LOOP_TOKENS:
        return False
    grams = np.lib.stride_tricks.sliding_window_view(ids, NGRAM)
    return len(np.unique(grams, axis=0)) < MIN_DISTINCT * n


def _digest(sample: Sample) -> bytes:
    """Names request and reply of one owner: what another was answered as well is no duplicate."""
    whose = json.dumps([sample.owner, sample.adapter]).encode()
    both = hashlib.blake2b(whose, digest_size=16)
    for ids in (sample.prompt_ids, sample.reply_ids):
        both.update(len(ids).to_bytes(8, "little") + np.ascontiguousarray(ids).tobytes())
    both.update("".join(sample.images).encode())
    return both.digest()
