"""The versions that the transformers backend holds, and how a new one comes in.

Owns: which version is current, loading piece by piece, unloading what nobody uses.
Does not own: reading files and placing tensors (adapters, weights), the canary (canary), the
requests (batch).

A version is read, compared and scored in pieces, between the tokens of requests that older ones
serve. Full weights then replace the base between two tokens: running requests go on, their entries
are computed again. An adapter stands beside the older ones: running requests finish on theirs.
"""

import functools
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from claw.engine import faults
from claw.engine import versions as disk
from claw.engine.versions import Manifest, VersionError
from claw.engine.worker.adapters import Adapters
from claw.engine.worker.backend import Busy, Key, Loaded, Unfinished
from claw.engine.worker.batch import Batch, Slot
from claw.engine.worker.canary import Probe
from claw.engine.worker.model import Model
from claw.engine.worker.prefix import Prefixes
from claw.engine.worker.weights import FullWeights, Tensors
from claw.records import DEFAULT_OWNER, Version

MAX_HELD = 4
"""versions of one adapter that are held at once: the newest, and those that requests still use"""

T = TypeVar("T")
Pieces = Generator[None, None, T]
"""work that requests may go on between; its result comes last"""


@dataclass(frozen=True, slots=True)
class Coming:
    """The version that comes in."""

    version: Version
    key: Key
    pieces: Pieces[Loaded]


class Held:
    """Base weights and adapters of one model."""

    def __init__(
        self, model: Model, model_dir: Path, tolerance: float, batch: Batch, prefixes: Prefixes
    ) -> None:
        self.model = model
        self.batch, self.prefixes = batch, prefixes
        self.probe = Probe(model, prefixes, tolerance)
        self.full = FullWeights(model.module, model_dir)
        self.adapters = Adapters(model.module)
        self.current: dict[tuple[str, str], int] = {}
        self.base_number = 0
        self._loaded: dict[Key, Loaded] = {}
        self._coming: Coming | None = None

    def serving(self) -> tuple[Key, ...]:
        """The version that new requests get, for each adapter."""
        current = {(DEFAULT_OWNER, DEFAULT_OWNER): self.base_number} | self.current
        return tuple((owner, adapter, n) for (owner, adapter), n in current.items())

    def weights_of(self, owner: str, adapter: str) -> Key | None:
        key = (owner, adapter, self.current.get((owner, adapter), 0))
        return key if key in self.adapters.keys else None

    def number(self, slot: Slot) -> int:
        return slot.weights[2] if slot.weights is not None else self.base_number

    def load(self, version: Version, manifest: Manifest | None) -> Loaded:
        """See `Backend.load`."""
        coming = self._come(version, manifest)
        try:
            next(coming.pieces)
        except StopIteration as end:
            self._coming = None
            loaded: Loaded = end.value
            return loaded
        except BaseException:
            self._coming = None
            raise
        raise Unfinished(f"version {version.number} comes in between tokens")

    def _come(self, version: Version, manifest: Manifest | None) -> Coming:
        """What comes in already, or this; a newer one of its adapter takes its place."""
        key = (version.owner, version.adapter, version.number)
        if self._coming is not None and self._coming.version != version:
            if self._coming.key[:2] != key[:2]:
                raise Busy("a version of another adapter comes in first")
            self._coming.pieces.close()
            self._coming = None
        if self._coming is None:
            self._coming = Coming(version, key, self._load(key, version, manifest))
        return self._coming

    def _load(self, key: Key, version: Version, manifest: Manifest | None) -> Pieces[Loaded]:
        started = time.monotonic()
        is_held = key in self.adapters.keys or key in self._loaded
        if is_held or (version.kind == "lora" and manifest is None):
            self._make_current(key)
            return self._loaded.get(key, Loaded(*key, 0.0, 0.0, 0.0))
        if version.kind == "lora":
            assert manifest is not None, "checked above"
            worst, mean = yield from self._load_lora(key, Path(version.path), manifest)
        else:
            worst, mean = yield from self._load_full(key, Path(version.path), manifest)
        self._loaded[key] = Loaded(*key, worst, mean, time.monotonic() - started)
        return self._loaded[key]

    def _load_lora(
        self, key: Key, folder: Path, manifest: Manifest
    ) -> Pieces[tuple[float, float]]:
        if self.base_number:
            raise VersionError("an adapter cannot be served over changed base weights",
                               found=f"base weights of version {self.base_number}")
        if sum(k[:2] == key[:2] for k in self.adapters.keys) >= MAX_HELD:
            raise Busy(f"{MAX_HELD} versions of the adapter are in use by running requests")
        canary, old = disk.read_canary(folder, manifest), self.weights_of(*key[:2])
        yield from self.probe.remember(canary, old, functools.partial(self._routed, old))
        within = functools.partial(self._routed, key)
        try:
            self.adapters.load(key, folder, manifest.weight_files)
            yield
            self.adapters.check_binding(key, folder, manifest.weight_files)
            scores = yield from self.probe.scores(canary, within)
            found = self.probe.verdict(canary, key, within, scores)
        except BaseException:  # refused, or a newer one takes its place
            self.adapters.unload(key)
            self.prefixes.drop(key)
            raise
        self._make_current(key)
        return found

    @faults.around("worker.swap")
    def _make_current(self, key: Key) -> None:
        self.current[key[:2]] = key[2]
        self.unload_unused()

    def unload_unused(self) -> None:
        used = {s.weights for s in self.batch.slots}
        used |= {(o, a, n) for (o, a), n in self.current.items()}
        used |= {self._coming.key} if self._coming else set()
        for key in [k for k in self.adapters.keys if k not in used]:
            self.adapters.unload(key)
            self.prefixes.drop(key)
            self._loaded.pop(key, None)

    def _load_full(
        self, key: Key, folder: Path, manifest: Manifest | None
    ) -> Pieces[tuple[float, float]]:
        """Swap the base weights; running requests go on, their entries are computed again."""
        if self.adapters.keys:
            raise VersionError("full weights cannot be changed under adapters that are served")
        canary = None
        if manifest is None:
            new = self.full.first()
        else:
            self.full.check(folder, manifest)
            canary = disk.read_canary(folder, manifest)
            yield from self.probe.remember(canary, None, functools.partial(self._routed, None))
            new = yield from self.full.read(folder, manifest)
            yield from self.full.check_arrival(new, folder, manifest)
        scores = yield from self.probe.scores(canary, functools.partial(self._tried, new))
        faults.at("worker.swap.before")
        old = self.full.place(new)
        faults.at("worker.swap.after")
        self.prefixes.clear()
        try:
            within = functools.partial(self._routed, None)
            found = self.probe.verdict(canary, None, within, scores)
        except BaseException:
            self.full.place(old)  # whatever went wrong, the previous weights serve on
            self.prefixes.clear()
            raise
        self.base_number = key[2]
        self.current = {key[:2]: key[2]}
        self.batch.forget_entries()
        self._loaded.clear()
        return found

    @contextmanager
    def _routed(self, weights: Key | None) -> Iterator[None]:
        """A forward inside is the canary's, with these weights in every row."""
        self.adapters.routing.set([weights], self.model.device)
        yield

    @contextmanager
    def _tried(self, new: Tensors) -> Iterator[None]:
        """A forward inside uses these base weights; requests outside go on with the old ones."""
        with self.full.placed(new), self._routed(None):
            yield
