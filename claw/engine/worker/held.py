"""The versions that the transformers backend holds, and how a new one comes in.

Owns: which version is current, loading, unloading what nobody uses.
Does not own: reading files and copying tensors (adapters, weights), the canary (canary), the
requests (batch).

Full weights replace the base between two tokens: running requests go on, their entries are computed
again. An adapter comes in beside the older ones: running requests finish on theirs.
"""

import time
from pathlib import Path

from claw.engine import versions as disk
from claw.engine.versions import Canary, Manifest, VersionError
from claw.engine.worker.adapters import Adapters
from claw.engine.worker.backend import Busy, Key, Loaded
from claw.engine.worker.batch import Batch, Slot
from claw.engine.worker.canary import Probe
from claw.engine.worker.model import Model
from claw.engine.worker.prefix import Prefixes
from claw.engine.worker.weights import FullWeights
from claw.records import DEFAULT_OWNER, Version

MAX_HELD = 4
"""versions of one adapter that are held at once: the newest, and those that requests still use"""


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
        started = time.monotonic()
        key = (version.owner, version.adapter, version.number)
        is_held = key in self.adapters.keys or key in self._loaded
        if is_held or (version.kind == "lora" and manifest is None):
            self._make_current(key)
            return self._loaded.get(key, Loaded(*key, 0.0, 0.0, 0.0))
        if version.kind == "lora":
            assert manifest is not None, "checked above"
            worst, mean = self._load_lora(key, Path(version.path), manifest)
        else:
            worst, mean = self._load_full(key, Path(version.path), manifest)
        self._loaded[key] = Loaded(*key, worst, mean, time.monotonic() - started)
        return self._loaded[key]

    def _load_lora(self, key: Key, folder: Path, manifest: Manifest) -> tuple[float, float]:
        if self.base_number:
            raise VersionError("an adapter cannot be served over changed base weights",
                               found=f"base weights of version {self.base_number}")
        if sum(k[:2] == key[:2] for k in self.adapters.keys) >= MAX_HELD:
            raise Busy(f"{MAX_HELD} versions of the adapter are in use by running requests")
        canary = disk.read_canary(folder, manifest)
        self._remember(canary, self.weights_of(*key[:2]))
        self.adapters.load(key, folder, manifest.weight_files)
        try:
            self.adapters.check_binding(key, folder, manifest.weight_files)
            self._route(key)
            found = self.probe.compare(canary, key)
        except VersionError:
            self.adapters.unload(key)
            raise
        self._make_current(key)
        return found

    def _make_current(self, key: Key) -> None:
        self.current[key[:2]] = key[2]
        self.unload_unused()

    def unload_unused(self) -> None:
        used = {s.weights for s in self.batch.slots}
        used |= {(o, a, n) for (o, a), n in self.current.items()}
        for key in [k for k in self.adapters.keys if k not in used]:
            self.adapters.unload(key)
            self.prefixes.drop(key)
            self._loaded.pop(key, None)

    def _load_full(
        self, key: Key, folder: Path, manifest: Manifest | None
    ) -> tuple[float, float]:
        """Swap the base weights; running requests go on, their entries are computed again."""
        if self.adapters.keys:
            raise VersionError("full weights cannot be changed under adapters that are served")
        canary = None
        if manifest is not None:
            self.full.check(folder, manifest)
            canary = disk.read_canary(folder, manifest)
            self._remember(canary, None)
        stash = self.full.stash()
        try:
            if manifest is not None:
                self.full.copy_version(folder, manifest)
                self.full.check_arrival(folder, manifest)
            else:
                self.full.copy_first()
            self.prefixes.clear()
            self._route(None)
            found = self.probe.compare(canary, None)
        except Exception:
            self.full.restore(stash)  # whatever went wrong, the previous weights serve on
            self.prefixes.clear()
            raise
        self.base_number = key[2]
        self.current = {key[:2]: key[2]}
        self.batch.forget_entries()
        self._loaded.clear()
        return found

    def _remember(self, canary: Canary | None, weights: Key | None) -> None:
        self._route(weights)
        self.probe.remember(canary, weights)

    def _route(self, weights: Key | None) -> None:
        """The next forward is the canary's, with these weights in every row."""
        self.adapters.routing.set([weights], self.model.device)
