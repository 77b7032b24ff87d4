"""A backend without weights: answers by rule, deterministic, with log-probs of a real softmax.

Owns: the script and the distribution it stands for.
Does not own: anything of a model. It is a double for tests of everything around one.

The distribution: the id that the script wants next has probability P_WANTED, the rest is shared
evenly by the other ids; greedy requests take the wanted id, others draw. `script.json` in the model
folder may say more than the defaults: {"rule": "echo" | "count" | "replies" | "cues",
"replies": [[ids], ...], "cues": [[[ids to look for], [ids of the reply]], ...],
"vocab_size": N, "eos": id, "pace_s": seconds per token, "context": tokens}. Without it the
vocabulary is bytes (0..255) and an end-of-turn id (256), or that of `config.json` where there is
one, and the rule is `echo`.
"""

import hashlib
import json
import math
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from claw.config import RunConfig
from claw.engine.versions import Manifest
from claw.engine.worker.backend import (
    Chunk,
    Code,
    Done,
    Event,
    Failed,
    Generate,
    Limits,
    Load,
    Loaded,
    Score,
    Scored,
)
from claw.records import DEFAULT_OWNER, FinishReason, Sampling, Version

P_WANTED = 0.9
ECHOED = 32
"""ids of the prompt's end that `echo` repeats"""
EOS = 256


@dataclass(frozen=True)
class Script:
    """What the backend says."""

    rule: str = "echo"
    replies: tuple[tuple[int, ...], ...] = ()
    cues: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """the cue that comes last in the prompt is answered; without one the prompt is echoed"""
    vocab_size: int = 257
    eos: int = EOS
    pace_s: float = 0.0
    context: int = 1 << 20

    def reply(self, prompt: np.ndarray) -> list[int]:
        """The ids that the script wants after this prompt, the end-of-turn id last."""
        if self.rule == "cues" and (cued := self._cued(prompt)) is not None:
            said = cued
        elif self.rule in ("echo", "cues"):
            said = [int(i) for i in prompt[-ECHOED:] if i != self.eos]
        elif self.rule == "count":
            said = [i for i in range(self.vocab_size) if i != self.eos][:ECHOED]
        else:
            digest = hashlib.sha256(np.ascontiguousarray(prompt, np.int32).tobytes()).digest()
            said = list(self.replies[int.from_bytes(digest[:4], "big") % len(self.replies)])
        return [*said, self.eos]

    def _cued(self, prompt: np.ndarray) -> list[int] | None:
        at, reply = max((_last(prompt, cue), reply) for cue, reply in self.cues)
        return list(reply) if at >= 0 else None


def _last(prompt: np.ndarray, cue: tuple[int, ...]) -> int:
    """Return where `cue` begins for the last time, or -1."""
    if len(cue) > len(prompt):
        return -1
    windows = np.lib.stride_tricks.sliding_window_view(prompt, len(cue))
    found = np.flatnonzero((windows == np.array(cue)).all(axis=1))
    return int(found[-1]) if len(found) else -1


def read_script(folder: Path) -> Script:
    """Read `script.json`; the vocabulary comes from `config.json` where the script has none."""
    values: dict[str, Any] = {}
    if (path := folder / "config.json").is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
        eos = config.get("eos_token_id", EOS)
        values = {"vocab_size": config["vocab_size"],
                  "eos": eos[0] if isinstance(eos, list) else eos}
    if (path := folder / "script.json").is_file():
        values |= json.loads(path.read_text(encoding="utf-8"))
    values["replies"] = tuple(tuple(r) for r in values.get("replies", ()))
    values["cues"] = tuple((tuple(cue), tuple(reply)) for cue, reply in values.get("cues", ()))
    script = Script(**values)
    needed = {"replies": script.replies, "cues": script.cues}.get(script.rule, True)
    assert needed, f"rule `{script.rule}` needs {script.rule}"
    return script


@dataclass(eq=False)
class Slot:
    request: Generate
    wanted: list[int]
    random: np.random.Generator
    ready_at: float
    """on the monotonic clock: when the next token may be said"""
    said: list[int] = field(default_factory=list)


def make(config: RunConfig, model_dir: Path) -> "ScriptedBackend":
    return ScriptedBackend(config, read_script(model_dir))


class ScriptedBackend:
    """See `backend.Backend`."""

    def __init__(self, config: RunConfig, script: Script) -> None:
        self.script = script
        w = config.worker
        self.limits = Limits("scripted", config.model, script.vocab_size,
                             min(w.context, script.context), w.slots, w.queue)
        self.waiting: OrderedDict[str, Generate | Score] = OrderedDict()
        self.slots: list[Slot] = []
        self.current: dict[tuple[str, str], int] = {(DEFAULT_OWNER, DEFAULT_OWNER): 0}
        self.num_sampled = 0
        self._cancelled: set[str] = set()

    def submit(self, request: Generate | Score) -> None:
        self.waiting[request.id] = request

    def cancel(self, id: str) -> None:
        self._cancelled.add(id)

    def load(self, version: Version, manifest: Manifest | None) -> Loaded:
        self.current[version.owner, version.adapter] = version.number
        return Loaded(version.owner, version.adapter, version.number, 0.0, 0.0, 0.0)

    def status(self) -> Load:
        return Load(len(self.slots), len(self.waiting), self.num_sampled,
                    tuple((o, a, n) for (o, a), n in self.current.items()))

    def fail_all(self, code: str, message: str) -> list[Event]:
        ids = [s.request.id for s in self.slots] + list(self.waiting)
        self.slots, self.waiting = [], OrderedDict()
        return [Failed(id, code, message) for id in ids]

    def close(self) -> None:
        pass

    def step(self) -> list[Event]:
        """One token for every request whose pace allows it."""
        events = [*self._end_early(), *self._admit()]
        now = time.monotonic()
        ready = [s for s in self.slots if s.ready_at <= now]
        for slot in ready:
            events += self._say(slot, now)
        if self.slots and not ready:
            time.sleep(min(0.01, max(min(s.ready_at for s in self.slots) - now, 0.0)))
        return events

    def _end_early(self) -> Iterator[Event]:
        now = time.monotonic()
        running = [(s.request, s) for s in self.slots]
        for request, slot in [*running, *((r, None) for r in list(self.waiting.values()))]:
            if request.id in self._cancelled:
                yield Done(request.id, FinishReason.CANCELLED, 0)
            elif now > request.deadline:
                num = len(slot.said) if slot else 0
                yield Failed(request.id, Code.DEADLINE, f"the deadline passed after {num} tokens")
            else:
                continue
            self.waiting.pop(request.id, None)
            self.slots = [s for s in self.slots if s is not slot]
        self._cancelled.clear()

    def _admit(self) -> Iterator[Event]:
        while self.waiting and len(self.slots) < self.limits.slots:
            _, request = self.waiting.popitem(last=False)
            if isinstance(request, Score):
                yield self._score(request)
                continue
            seed = request.sampling.seed
            random = np.random.default_rng(None if seed is None else seed % 2**64)
            self.slots.append(Slot(request, self.script.reply(request.prompt_ids), random,
                                   ready_at=time.monotonic()))

    def _say(self, slot: Slot, now: float) -> Iterator[Event]:
        request, s = slot.request, slot.request.sampling
        index = len(slot.said)
        wanted = slot.wanted[index] if index < len(slot.wanted) else self.script.eos
        token, p = self._draw(wanted, s, slot.random)
        slot.said.append(token)
        # by the clock, not after the token before: the pace must not drift
        slot.ready_at = max(slot.ready_at, now - self.script.pace_s) + self.script.pace_s
        self.num_sampled += 1
        yield Chunk(request.id, index, self._arrays(request, wanted, token, p))
        is_stop = token in request.stop_ids or token == self.script.eos
        length = len(request.prompt_ids) + len(slot.said)
        if is_stop and not s.ignore_eos:
            finish = FinishReason.STOP
        elif len(slot.said) >= s.max_tokens or length >= self.limits.context:
            finish = FinishReason.LENGTH
        else:
            return
        self.slots.remove(slot)
        yield Done(request.id, finish, 0)

    def _probs(self, temperature: float) -> tuple[float, float]:
        """Log-probs of the wanted id and of each other one, at this temperature."""
        n, t = self.script.vocab_size - 1, temperature or 1.0
        wanted, other = math.log(P_WANTED) / t, math.log((1 - P_WANTED) / n) / t
        total = np.logaddexp(wanted, other + math.log(n))
        return float(wanted - total), float(other - total)

    def _draw(self, wanted: int, s: Sampling, random: np.random.Generator) -> tuple[int, float]:
        """Return the sampled id and its log-prob after truncation."""
        high, low = self._probs(s.temperature)
        if not s.is_truncated:  # the whole vocabulary: nothing to sort
            if s.temperature == 0 or random.random() < math.exp(high):
                return wanted, high
            other = int(random.integers(self.script.vocab_size - 1))
            return other + (other >= wanted), low
        kept = self._kept(wanted, s)
        mass = math.exp(high) + (len(kept) - 1) * math.exp(low)
        if s.temperature == 0 or random.random() * mass < math.exp(high):
            return wanted, high - math.log(mass)
        token = int(kept[1 + int(random.integers(len(kept) - 1))])
        return token, low - math.log(mass)

    def _best(self, wanted: int, k: int) -> np.ndarray:
        """The k most likely ids, ties to the lowest id."""
        others = [i for i in range(min(k, self.script.vocab_size)) if i != wanted]
        return np.array([wanted, *others][:k], np.int32)

    def _kept(self, wanted: int, s: Sampling) -> np.ndarray:
        """The ids that truncation keeps, most likely first, ties to the lowest id."""
        ids = np.arange(self.script.vocab_size, dtype=np.int32)
        order = np.concatenate([[np.int32(wanted)], ids[ids != wanted]]).astype(np.int32)
        if not s.is_truncated:
            return order
        high, low = self._probs(s.temperature)
        order = order[: s.top_k or None]
        p = np.array([math.exp(high), *[math.exp(low)] * (len(order) - 1)])
        p /= p.sum()
        return order[(p.cumsum() - p < s.top_p) | (s.top_p >= 1)]

    def _arrays(
        self, request: Generate, wanted: int, token: int, sampling_logp: float
    ) -> dict[str, np.ndarray]:
        s = request.sampling
        high, low = self._probs(s.temperature)
        best = self._best(wanted, s.logprobs_k)
        number = self.current.get((request.owner, request.adapter), 0)
        arrays = {
            "ids": np.array([token], np.int32),
            "logps": np.array([high if token == wanted else low], np.float32),
            "topk_ids": best[None],
            "topk_logps": np.where(best == wanted, high, low).astype(np.float32)[None],
            "versions": np.array([number], np.int32),
        }
        if s.is_truncated:
            kept = self._kept(wanted, s)
            arrays["sampling_logps"] = np.array([sampling_logp], np.float32)
            arrays["kept_ids"] = kept
            arrays["kept_counts"] = np.array([len(kept)], np.int32)
        return arrays

    def _score(self, request: Score) -> Scored:
        """Each id is taken to want its successor."""
        high, low = self._probs(request.temperature)
        wanted = (request.ids[:-1] + 1) % self.script.vocab_size
        logps = np.where(request.ids[1:] == wanted, high, low).astype(np.float32)
        ids = [self._best(int(w), request.topk) for w in wanted]
        topk_ids = np.stack(ids).astype(np.int32)
        topk_logps = np.where(topk_ids == wanted[:, None], high, low).astype(np.float32)
        number = self.current.get((request.owner, request.adapter), 0)
        return Scored(request.id, number, logps, topk_ids, topk_logps)
