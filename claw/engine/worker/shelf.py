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
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from claw.engine import tensors
from claw.engine import versions as disk
from claw.engine.tensors import Checksums
from claw.engine.versions import Canary, CanaryError, Manifest, Shapes, VersionError
from claw.engine.worker import adapter_files, arrival
from claw.engine.worker.backend import EngineLost, Key, Loaded
from claw.engine.worker.engine import Engine, EngineError
from claw.engine.worker.group import Broadcast, Group
from claw.records import DEFAULT_OWNER, Version

log = logging.getLogger(__name__)

MAX_HELD = 4
"""versions of one adapter that are held at once: the newest, and those that requests still use"""
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
WHOLE = ("every tensor is the trainer's own, so what differs is the computing, or what was kept of "
         "older weights")
UNSEEN = "this engine gives no checksums that can be compared, so no tensor can be named"
SAME = 1e-5
"""nats: scores that differ by less come from the same weights"""


@dataclass(frozen=True, slots=True)
class Incoming:
    """Full weights that may come in."""

    folder: Path
    files: list[str]
    canary: Canary | None
    wanted: Checksums
    """what the engine should answer of its tensors then; empty when it cannot tell"""
    broadcast: Broadcast | None = None
    """by which they come; the engine is in its group"""
    read: Any = None
    """what the engine has read of them already. Neither: it reads the folder when nothing runs"""


class Shelf:
    """Base weights and adapters of one engine."""

    def __init__(self, engine: Engine, model_dir: Path, tolerance: float, max_rank: int,
                 patience_s: float, group: Group | None = None) -> None:
        self.engine, self.model_dir = engine, model_dir
        self.tolerance, self.max_rank = tolerance, max_rank
        self.patience_s, self.group = patience_s, group
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
        self._held: Checksums | None = None
        """of the base weights that serve, as the engine calls its tensors; asked only when they
        change, for it holds up the requests that run"""

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
        await self._remember(canary, self.names.get((*key[:2], self.current.get(key[:2], 0))))
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

    async def prepare_full(self, version: Version, manifest: Manifest | None) -> Incoming:
        """Refuse full weights that cannot serve before anything is touched."""
        if self.names:
            raise VersionError("full weights cannot be changed under adapters that are served")
        if manifest is None:
            return Incoming(self.model_dir, weight_files(self.model_dir), None, {})
        folder, found = Path(version.path), Shapes()
        for file in manifest.weight_files:
            found |= disk.tensor_shapes(folder / file)
        disk.check_shapes(found, self.shapes, self.tied)
        canary = disk.read_canary(folder, manifest)
        await self._remember(canary, None)
        wanted = await self._wanted(folder, manifest)
        new = partial(Incoming, folder, manifest.weight_files, canary, wanted)
        if self.group is not None:
            return new(broadcast=await self.group.meet(self.engine, version, found))
        return new(read=await self.engine.read([folder / f for f in manifest.weight_files]))

    async def _wanted(self, folder: Path, manifest: Manifest) -> Checksums:
        """What the engine should answer of its tensors when these are in it."""
        files = manifest.weight_files
        kinds = set().union(*(tensors.dtypes(folder / file) for file in files))
        if kinds != {DTYPES.get(self.engine.dtype)}:
            return {}  # it holds them rounded: the canary alone decides
        if self._held is None:
            self._held = await self.engine.checksums()
        return await asyncio.to_thread(
            arrival.expected, folder, files, list(self._held), manifest.tensors)

    async def load_full(self, version: Version, new: Incoming) -> Loaded:
        """Replace the base weights while nothing runs; the old ones come back when refused."""
        started, key = time.monotonic(), (version.owner, version.adapter, version.number)
        try:
            await self._bring_in(new)
            held = await self.engine.checksums() if new.wanted else None
            if held is not None:
                arrival.check(held, new.wanted)
            worst, mean = await self.compare(new.canary, None, is_whole=bool(new.wanted))
        except (VersionError, EngineError):
            await self._restore()
            raise
        self.base_number, self.base_folder, self._held = key[2], new.folder, held
        self.current = {key[:2]: key[2]}
        self._loaded = {key: Loaded(*key, worst, mean, time.monotonic() - started)}
        return self._loaded[key]

    async def _bring_in(self, new: Incoming) -> None:
        if new.broadcast is not None:
            with closing(new.broadcast):
                await self.engine.receive(new.broadcast.offer, new.broadcast.send)
        elif new.read is not None:
            await self.engine.place(new.read)
        else:
            with staged(new.folder, new.files) as stage:
                await self.engine.load_weights(stage)

    async def _restore(self) -> None:
        try:
            with staged(self.base_folder, weight_files(self.base_folder)) as stage:
                await self.engine.load_weights(stage)
            if self._held:
                arrival.check(await self.engine.checksums(), self._held)
        except (VersionError, EngineError, OSError) as error:
            raise EngineLost("a version was refused, and the weights before it did not come back",
                             found=str(error)) from error

    # --- the canary --------------------------------------------------------------------------

    async def _remember(self, canary: Canary | None, adapter: str | None) -> None:
        """Have the present weights fill the prefix cache with the first sequence.

        If that is found again after the swap, its second half is scored over stale entries.
        """
        if canary is not None and canary.logps.size:
            disk.check_canary_ids(canary, self.engine.vocab_size)
            await self._logps(canary.ids[0].tolist(), adapter, 0)

    async def compare(
        self, canary: Canary | None, adapter: str | None, *, is_whole: bool = False
    ) -> tuple[float, float]:
        """Score the canary with the engine; (largest, mean) difference in nats.

        `is_whole`: the engine holds exactly the version's tensors, as was seen before.
        """
        if canary is None or not canary.logps.size:
            return 0.0, 0.0
        disk.check_canary_ids(canary, self.engine.vocab_size)
        starts = [canary.ids.shape[1] // 2, *[0] * (len(canary.ids) - 1)]
        # one after the other: running requests wait for no more than one between two tokens
        found = [await self._logps(ids.tolist(), adapter, start)
                 for ids, start in zip(canary.ids, starts, strict=True)]
        gaps = [np.abs(row - logps[start:])
                for row, logps, start in zip(found, canary.logps, starts, strict=True)]
        try:
            return disk.canary_verdict(gaps, self.tolerance, starts)
        except CanaryError as error:
            why = WHOLE if is_whole else UNSEEN if adapter is None else await self._about(
                canary, adapter, starts[0], found[0])
            raise error.because(why) from None

    async def _about(self, canary: Canary, adapter: str, start: int, found: np.ndarray) -> str:
        """What can be said of an adapter that disagrees; `found`: scores of the first sequence."""
        bare = await self._logps(canary.ids[0].tolist(), None, start)
        if np.abs(bare - found).max() < SAME:
            return "with and without the adapter the scores are the same: it binds no layer"
        return "this engine shows no adapter's tensors, so none can be named"

    async def _logps(self, ids: list[int], adapter: str | None, start: int) -> np.ndarray:
        work = self.engine.score(f"canary-{next(_canaries):012d}", ids, 0, adapter, start)
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
