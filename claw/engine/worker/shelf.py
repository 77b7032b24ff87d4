"""The versions that a hosted engine holds, and how a new one comes in.

Owns: which version is current, who uses which, checks by file headers, the canary's verdict,
unloading what nobody uses.
Does not own: hashing files (loader), the engine's calls (engine), requests (host).

An adapter comes in beside the older ones: running requests finish on theirs. Full weights replace
the base while nothing runs: the host takes its requests out of the engine and puts them back after
the canary, so no token is ever sampled with weights that are then refused.
"""

import asyncio
import itertools
import json
import logging
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from claw.engine import versions as disk
from claw.engine.versions import Canary, Manifest, Shapes, VersionError
from claw.engine.worker import adapter_files
from claw.engine.worker.backend import EngineLost, Key, Loaded
from claw.engine.worker.engine import Engine, EngineError
from claw.records import DEFAULT_OWNER, Version

log = logging.getLogger(__name__)

MAX_HELD = 4
"""versions of one adapter that are held at once: the newest, and those that requests still use"""
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"


class Shelf:
    """Base weights and adapters of one engine."""

    def __init__(self, engine: Engine, model_dir: Path, tolerance: float, max_rank: int,
                 patience_s: float) -> None:
        self.engine, self.model_dir = engine, model_dir
        self.tolerance, self.max_rank = tolerance, max_rank
        self.patience_s = patience_s
        self.shapes, self.tied = folder_shapes(model_dir)
        self.current: dict[tuple[str, str], int] = {}
        self.base_number = 0
        self.base_folder = model_dir
        self.names: dict[Key, str] = {}
        """adapter -> its name in the engine; a name is never used twice"""
        self.uses: Counter[Key] = Counter()
        self._loaded: dict[Key, Loaded] = {}
        self._names = (f"claw-{i}" for i in itertools.count())
        self._freed = asyncio.Event()

    def serving(self) -> list[Key]:
        """The version that new requests get, for each adapter."""
        current = {(DEFAULT_OWNER, DEFAULT_OWNER): self.base_number} | self.current
        return [(owner, adapter, n) for (owner, adapter), n in current.items()]

    def take(self, owner: str, adapter: str) -> tuple[Key | None, int]:
        """Use the current version: (its adapter, or None for the base weights; its number)."""
        key = (owner, adapter, self.current.get((owner, adapter), 0))
        if key not in self.names:
            return None, self.base_number
        self.uses[key] += 1
        return key, key[2]

    async def give_back(self, key: Key | None) -> None:
        """A request ended; the last one of an old version unloads it."""
        if key is None:
            return
        self.uses[key] -= 1
        self._freed.set()
        await self.unload_unused()

    async def unload_unused(self) -> None:
        now = {(o, a, n) for (o, a), n in self.current.items()}
        for key in [k for k in self.names if k not in now and not self.uses[k]]:
            self._loaded.pop(key, None)
            await self.engine.unload_adapter(self.names.pop(key))

    # --- loading -----------------------------------------------------------------------------

    def is_held(self, version: Version) -> bool:
        """Whether serving it needs nothing of the engine."""
        key = (version.owner, version.adapter, version.number)
        is_first_adapter = version.kind == "lora" and not version.path
        return key in self.names or key in self._loaded or is_first_adapter

    async def make_current(self, key: Key) -> Loaded:
        self.current[key[:2]] = key[2]
        await self.unload_unused()
        return self._loaded.get(key, Loaded(*key, 0.0, 0.0, 0.0))

    async def load_lora(self, version: Version, manifest: Manifest) -> Loaded:
        """Load an adapter beside the older ones."""
        started, key = time.monotonic(), (version.owner, version.adapter, version.number)
        folder = Path(version.path)
        self._check_lora(folder, manifest)
        canary = disk.read_canary(folder, manifest)
        while sum(k[:2] == key[:2] for k in self.names) >= MAX_HELD:
            self._freed.clear()  # each is bounded by the deadline of the requests that use it
            await self._freed.wait()
            await self.unload_unused()
        name = next(self._names)
        with staged(folder, [*manifest.weight_files, "adapter_config.json"]) as stage:
            await self.engine.load_adapter(name, stage)
        try:
            worst, mean = await self.compare(canary, name)
        except (VersionError, EngineError):
            await self.engine.unload_adapter(name)
            raise
        self.names[key] = name
        self._loaded[key] = Loaded(*key, worst, mean, time.monotonic() - started)
        return await self.make_current(key)

    def _check_lora(self, folder: Path, manifest: Manifest) -> None:
        if not self.engine.has_adapters:
            raise VersionError("this engine serves no adapters", do="train full weights with "
                               "lora.rank=0, or see `claw doctor` for what adapters need")
        if self.base_number:
            raise VersionError("an adapter cannot be served over changed base weights",
                               found=f"base weights of version {self.base_number}")
        config = adapter_files.read_config(folder)
        for name in ("use_rslora", "alpha_pattern", "rank_pattern"):
            if config.get(name):
                raise VersionError("the adapter uses what this engine scales otherwise",
                                   found=f"{name} = {config[name]}")
        found: Shapes = {}
        for file in manifest.weight_files:
            found |= disk.tensor_shapes(folder / file)
        rank = adapter_files.check_shapes(found, manifest.weight_files, self.shapes)
        if rank > self.max_rank:
            raise VersionError("the adapter's rank is larger than the engine was started for",
                               found=str(rank), allowed=f"at most {self.max_rank} (lora.rank)")

    def check_full(self, version: Version, manifest: Manifest | None) -> Canary | None:
        """Refuse full weights that cannot serve before anything is touched."""
        if self.names:
            raise VersionError("full weights cannot be changed under adapters that are served")
        if manifest is None:
            return None
        folder, found = Path(version.path), Shapes()
        for file in manifest.weight_files:
            found |= disk.tensor_shapes(folder / file)
        disk.check_shapes(found, self.shapes, self.tied)
        return disk.read_canary(folder, manifest)

    async def load_full(
        self, version: Version, manifest: Manifest | None, canary: Canary | None
    ) -> Loaded:
        """Replace the base weights while nothing runs; the old ones come back when refused."""
        started, key = time.monotonic(), (version.owner, version.adapter, version.number)
        folder = Path(version.path) if manifest is not None else self.model_dir
        files = manifest.weight_files if manifest is not None else weight_files(folder)
        try:
            with staged(folder, files) as stage:
                await self.engine.load_weights(stage)
            worst, mean = await self.compare(canary, None)
        except (VersionError, EngineError):
            await self._restore()
            raise
        self.base_number, self.base_folder = key[2], folder
        self.current = {key[:2]: key[2]}
        self._loaded = {key: Loaded(*key, worst, mean, time.monotonic() - started)}
        return self._loaded[key]

    async def _restore(self) -> None:
        try:
            with staged(self.base_folder, weight_files(self.base_folder)) as stage:
                await self.engine.load_weights(stage)
        except (VersionError, EngineError, OSError) as error:
            raise EngineLost("a version was refused, and the weights before it did not come back",
                             found=str(error)) from error

    async def compare(self, canary: Canary | None, adapter: str | None) -> tuple[float, float]:
        """Score the canary with the engine; (largest, mean) difference in nats."""
        if canary is None or not canary.logps.size:
            return 0.0, 0.0
        disk.check_canary_ids(canary, self.engine.vocab_size)
        gaps = [np.abs(await self._logps(ids.tolist(), adapter) - logps)
                for ids, logps in zip(canary.ids, canary.logps, strict=True)]
        return disk.canary_verdict(np.stack(gaps), self.tolerance)

    async def _logps(self, ids: list[int], adapter: str | None) -> np.ndarray:
        work = self.engine.score(f"canary-{next(_canaries):012d}", ids, 0, adapter)
        try:
            scores = await asyncio.wait_for(work, self.patience_s)
        except TimeoutError as error:
            raise EngineLost("the engine does not score the canary",
                             found=f"no answer in {self.patience_s:g} s") from error
        return scores.logps.astype(np.float64)


_canaries = itertools.count()


def weight_files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*.safetensors") if p.name != disk.CANARY)


def folder_shapes(folder: Path) -> tuple[Shapes, set[str]]:
    """Shapes of a model folder's tensors, by their headers; and those that may be absent."""
    shapes: Shapes = {}
    for name in weight_files(folder):
        shapes |= disk.tensor_shapes(folder / name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not config.get("tie_word_embeddings") or EMBEDDINGS not in shapes:
        return shapes, set()
    return {HEAD: shapes[EMBEDDINGS]} | shapes, {HEAD}


class staged:
    """A folder with links to these files only: engines load every safetensors file they find."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.names = folder.resolve(), names

    def __enter__(self) -> Path:
        self.path = Path(tempfile.mkdtemp(prefix="claw-stage-"))
        for name in self.names:
            (self.path / name).symlink_to(self.folder / name)
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
