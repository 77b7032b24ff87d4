"""The embedded backend: continuous batching over transformers' own forward.

Owns: which request runs when; the events. One token per running request and step.
Does not own: the forward (model), rows (batch, slots), sampling (sampler), versions (held).

transformers' own continuous batching (`generation.continuous_batching`) is not used: it returns
the log-prob of the sampled id only, after temperature and truncation, and no top-k; its generator
is one per process, so a seed does not name a reply; and it has no way to change weights between
tokens and recompute the entries of running requests.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from claw.config import RunConfig
from claw.engine.versions import Manifest
from claw.engine.worker.backend import (
    Code,
    Done,
    Event,
    Failed,
    Generate,
    Key,
    Limits,
    Load,
    Loaded,
    Score,
    Scored,
)
from claw.engine.worker.batch import Batch, Slot
from claw.engine.worker.eyes import Seen
from claw.engine.worker.held import Held
from claw.engine.worker.model import Model, load_model
from claw.engine.worker.prefix import Prefixes
from claw.engine.worker.sampler import draw, score_rows
from claw.engine.worker.slots import SlotCache
from claw.records import FinishReason, Version

READ_TOKENS = {"cpu": 128, "mps": 512, "cuda": 2048}
"""prompt tokens of one step: bounds how long running streams wait for a new prompt"""
READ_ALONE = 4
"""times as many when nothing is being sampled"""


def make(config: RunConfig, model_dir: Path) -> "TransformersBackend":
    """Load the model of a run."""
    if config.worker.threads:
        torch.set_num_threads(config.worker.threads)
    return TransformersBackend(load_model(model_dir, config), model_dir, config)


class TransformersBackend:
    """See `backend.Backend`."""

    def __init__(self, model: Model, model_dir: Path, config: RunConfig) -> None:
        self.model = model
        w = config.worker
        self.limits = Limits(
            "transformers", config.model, model.vocab_size, model.context, w.slots, w.queue,
            model.lens, model.device.type,
        )
        self.cache = SlotCache(w.slots, model.context)
        self.batch = Batch(self.cache)
        self.prefixes = Prefixes()
        self.waiting: OrderedDict[str, Generate | Score] = OrderedDict()
        self.num_sampled = 0
        self._cancelled: set[str] = set()
        self.held = Held(
            model, model_dir, config.gate.canary_tolerance, self.batch, self.prefixes
        )
        self.read_tokens = READ_TOKENS.get(model.device.type, 512)

    # --- requests ----------------------------------------------------------------------------

    def submit(self, request: Generate | Score) -> None:
        self.waiting[request.id] = request

    def cancel(self, id: str) -> None:
        self._cancelled.add(id)

    def status(self) -> Load:
        return Load(
            len(self.batch.slots), len(self.waiting), self.num_sampled, self.held.serving()
        )

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Sample one token for every running request, and read on in new prompts."""
        events = [*self._end_early()]
        self._admit()
        events += self._decode()
        events += self._read()
        return events

    def fail_all(self, code: str, message: str) -> list[Event]:
        ids = [s.request.id for s in self.batch.slots] + list(self.waiting)
        self.waiting.clear()
        self.batch.slots.clear()
        self.batch.num_decoding = 0
        self.prefixes.clear()
        self.held.unload_unused()
        return [Failed(id, code, message) for id in ids]

    def close(self) -> None:
        pass

    def _end_early(self) -> Iterator[Event]:
        """End what was cancelled and what is past its deadline."""
        now = time.monotonic()
        for slot in list(self.batch.slots):
            if slot.request.id in self._cancelled:
                yield from self._end(slot, FinishReason.CANCELLED)
            elif now > slot.request.deadline:
                yield from self._fail(slot, Code.DEADLINE, _too_late(slot))
        for id, request in list(self.waiting.items()):
            if id in self._cancelled:
                yield Done(id, FinishReason.CANCELLED, 0)
            elif now > request.deadline:
                yield Failed(id, Code.DEADLINE, "the deadline passed while waiting for a slot")
            else:
                continue
            del self.waiting[id]
        self._cancelled.clear()

    def _admit(self) -> None:
        while self.waiting and len(self.batch.slots) < self.limits.slots:
            _, request = self.waiting.popitem(last=False)
            weights = self.held.weights_of(request.owner, request.adapter)
            if isinstance(request, Score):
                slot = Slot(request, weights, frozenset(), 0, request.ids.tolist())
            else:
                slot = self._slot(request, weights)
            row = self.batch.add(slot)
            if isinstance(request, Generate) and request.session:
                session = (request.session, request.owner, request.adapter)
                marks = slot.marks(request.prompt_ids)
                size, entries = self.prefixes.find(session, weights, marks)
                if size:
                    self.cache.copy_in(row, entries, size)
                    slot.filled = slot.cached = size

    def _slot(self, request: Generate, weights: Key | None) -> Slot:
        stops = frozenset(request.stop_ids) | self.model.eos_ids
        longest = min(len(request.prompt_ids) + request.sampling.max_tokens, self.model.context)
        seen = None
        if request.pictures and self.model.lens is not None:
            seen = Seen.of(self.model.lens, request.prompt_ids, request.pictures)
        return Slot(request, weights, frozenset() if request.sampling.ignore_eos else stops,
                    longest, request.prompt_ids.tolist(), seen=seen)

    # --- the step ----------------------------------------------------------------------------

    def _decode(self) -> Iterator[Event]:
        slots = self.batch.decoding
        if slots:
            logits = self._forward(0, slots, [[s.tokens[-1]] for s in slots])
            yield from self._sample(slots, logits)

    def _read(self) -> Iterator[Event]:
        """Read a bounded piece of the prompts that are not in the cache yet."""
        group = self._reading_group()
        if not group:
            return
        start, budget = self.batch.num_decoding, self._budget()
        pieces = [s.tokens[s.filled : s.filled + budget] for s in group]
        if isinstance(group[0].request, Score):
            yield from self._score(group[0], start, pieces[0])
            return
        logits = self._forward(start, group, pieces)
        ready = [i for i, s in enumerate(group) if s.missing == 0]
        if not ready:
            return
        slots = [group[i] for i in ready]
        for slot in slots:
            self.batch.start_decoding(slot)
            slot.drop_features()
        rows = torch.tensor(ready, device=logits.device)
        yield from self._sample(slots, logits if len(ready) == len(group) else logits[rows])

    def _budget(self) -> int:
        return self.read_tokens * (1 if self.batch.num_decoding else READ_ALONE)

    def _reading_group(self) -> list[Slot]:
        """The first rows that fit the step's budget, padding counted; a score reads alone."""
        group: list[Slot] = []
        budget, widest = self._budget(), 0
        for slot in self.batch.reading:
            widest = max(widest, min(slot.missing, budget))
            is_score = isinstance(slot.request, Score)
            if group and (is_score or (len(group) + 1) * widest > budget):
                break
            group.append(slot)
            if is_score:
                break
        return group

    def _forward(
        self, start: int, slots: Sequence[Slot], tokens: Sequence[Sequence[int]],
        *, keep_all: bool = False,
    ) -> Tensor:
        self.held.adapters.routing.set([s.weights for s in slots], self.model.device)
        filled = [s.filled for s in slots]
        logits = self.model.forward(self.cache, start, tokens, filled, keep_all=keep_all,
                                    seen=[s.seen for s in slots])
        for slot, new in zip(slots, tokens, strict=True):
            slot.filled += len(new)
        return logits

    def _sample(self, slots: Sequence[Slot], logits: Tensor) -> Iterator[Event]:
        samplings = [s.request.sampling for s in slots if isinstance(s.request, Generate)]
        drawn = draw(logits, samplings, [s.uniform() for s in slots])
        for i, slot in enumerate(slots):
            if not np.isfinite(drawn.logps[i]):
                yield from self._fail(slot, Code.ENGINE, "the model's logits are not numbers")
                continue
            slot.take(drawn, i, self.held.number(slot))
            self.num_sampled += 1
            if slot.finish:
                yield from self._end(slot, slot.finish)
            elif (chunk := slot.chunk(whole=False)) is not None:
                yield chunk

    def _score(self, slot: Slot, row: int, piece: Sequence[int]) -> Iterator[Event]:
        request, start = slot.request, slot.filled
        assert isinstance(request, Score), "only scores are scored"
        logits = self._forward(row, [slot], [piece], keep_all=True)[0]
        next_ids = request.ids[start + 1 : start + 1 + len(piece)]
        if len(next_ids):
            slot.rows.append(
                score_rows(logits[: len(next_ids)], next_ids, request.temperature, request.topk)
            )
        if slot.missing == 0:
            logps, topk_ids, topk_logps = (np.concatenate(c) for c in zip(*slot.rows, strict=True))
            self._remove(slot)
            yield Scored(request.id, self.held.number(slot), logps, topk_ids, topk_logps)

    # --- ends --------------------------------------------------------------------------------

    def _end(self, slot: Slot, finish: FinishReason) -> Iterator[Event]:
        if (chunk := slot.chunk(whole=True)) is not None:
            yield chunk
        self._remember(slot)
        self._remove(slot)
        yield Done(slot.request.id, finish, slot.cached)

    def _fail(self, slot: Slot, code: str, message: str) -> Iterator[Event]:
        if (chunk := slot.chunk(whole=True)) is not None:
            yield chunk
        self._remove(slot)
        yield Failed(slot.request.id, code, message)

    def _remember(self, slot: Slot) -> None:
        request = slot.request
        if isinstance(request, Generate) and request.session and slot.filled:
            session = (request.session, request.owner, request.adapter)
            ids = np.array(slot.tokens[: slot.filled], np.int32)
            entries = self.cache.copy_out(self.batch.slots.index(slot), slot.filled)
            self.prefixes.keep(session, slot.weights, slot.marks(ids), entries)

    def _remove(self, slot: Slot) -> None:
        self.batch.remove(slot)
        if slot.weights is not None:
            self.held.unload_unused()

    @torch.inference_mode()
    def load(self, version: Version, manifest: Manifest | None) -> Loaded:
        return self.held.load(version, manifest)


def _too_late(slot: Slot) -> str:
    num = slot.num_sent + (len(slot.rows) if isinstance(slot.request, Generate) else 0)
    return f"the deadline passed after {num} tokens"
