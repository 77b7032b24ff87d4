"""Checkpoints of one owner: a run that is resumed takes the same next step.

Owns: weights, moments, schedule, random state, counters and the last lease, on disk.
Does not own: versions (weights). Safetensors and JSON only; the manifest comes last.

One process writes one file of tensors; of several ranks each writes its shards, by torch's
distributed checkpoints. Either is read by any number of ranks.
"""

import dataclasses
import json
import logging
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException

from claw.engine import faults, wire
from claw.engine.trainer import durable
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser
from claw.engine.versions import file_sha256
from claw.errors import ClawError, UsageError
from claw.records import Version

log = logging.getLogger(__name__)

FORMAT = 1
KEEP = 2
STATE, TENSORS, MANIFEST = "state.json", "tensors.safetensors", "manifest.json"


@dataclass(frozen=True)
class Progress:
    """How far the run is."""

    step: int = 0
    """steps of this owner that trained something, refused ones included"""
    total: int = 0
    """the same of all owners, when this owner's newest was made"""
    last_lease: str = ""
    """the lease whose samples the newest durable step trained"""
    number: int = 0
    """the highest version number given so far"""
    current: Version | None = None
    """the version that the trained weights are"""
    versions: tuple[Version, ...] = ()
    """those on the disk"""
    last_update: dict[str, Any] = field(default_factory=dict)
    """the record Update of the newest step, plain"""
    last_why: str = ""
    """why the newest step's version does not serve; empty when it does"""
    left_out: dict[str, str] = field(default_factory=dict)
    """samples of last_lease that the newest step did not train, with the reason"""
    gate_first: float | None = None
    held: str = ""
    """why nothing is trained until a person has gone back to an earlier version"""


@faults.around("trainer.checkpoint")
def save(folder: Path, progress: Progress, policy: Policy, optim: Optimiser) -> Path:
    """Write a checkpoint under `folder` and remove all but the newest two."""
    ordinal = 1 + max((_ordinal(p) for p in _all(folder)), default=-1)
    path = folder / f"{ordinal:08d}"
    shutil.rmtree(path, ignore_errors=True)  # a half-written one
    path.mkdir(parents=True)
    faults.at("trainer.tensors.before")
    save_tensors(path, policy, optim)
    faults.at("trainer.tensors.after")
    state = {"progress": _plain(progress), "num_steps": optim.num_steps,
             "random": _random_numbers()}
    durable.save_json(path / STATE, state)
    files = [*sorted(path.glob("*.safetensors")), path / STATE]
    faults.at("trainer.complete.before")
    durable.save_json(path / MANIFEST, {
        "format": FORMAT, "files": {f.name: f.stat().st_size for f in files},
        "sha256": {f.name: file_sha256(f) for f in files},
    })
    faults.at("trainer.complete.after")
    for old in _all(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def save_tensors(path: Path, policy: Policy, optim: Optimiser) -> None:
    """Write the tensors of a checkpoint; of several ranks each its own."""
    ranks = policy.ranks
    ema = {f"ema.{name}": t for name, t in policy.ema.items()}
    random = _random_arrays() if ranks.is_first else {}
    if ranks.size == 1:
        durable.save_tensors(path / TENSORS, optim.tensors() | ema | random)
        return
    ranks.tell("save", path=str(path))
    writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
    try:
        dcp.save(optim.tensors() | ema | random, storage_writer=writer, process_group=ranks.words)
    except CheckpointException as failed:  # every rank hears of it; the first one decides
        if ranks.is_first:
            raise next(iter(failed.failures.values()))[0] from failed
    if ranks.is_first:
        for file in path.iterdir():
            durable.sync(file)
        durable.sync(path)


def _read_tensors(path: Path, policy: Policy) -> dict[str, Tensor]:
    """Each rank's part of the tensors, whoever wrote them."""
    from safetensors.torch import load_file

    ranks = policy.ranks
    if ranks.size == 1 and (path / TENSORS).exists():
        return load_file(path / TENSORS)
    found = HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    tensors = {name: _room(policy, name, about) for name, about in found.items()}
    dcp.load(tensors, storage_reader=HuggingFaceStorageReader(str(path)),
             process_group=ranks.words, no_dist=ranks.size == 1)
    return tensors


def _room(policy: Policy, name: str, about: Any) -> Tensor:
    """An empty tensor for a stored one: in shards as the parameter of its name is."""
    shape, dtype = about.size, about.properties.dtype
    parameter = policy.parameters.get(name.partition(".")[2])
    if parameter is not None and parameter.shape == shape:
        return torch.empty_like(parameter.detach(), dtype=dtype)
    return torch.empty(shape, dtype=dtype)


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint; None where none was ever finished.

    ClawError: there are finished ones, and all of them are damaged.
    """
    found = _whole(folder)
    return found[0] if found else None


def num_damaged(folder: Path) -> int:
    """How many checkpoints were finished after the newest whole one, and are damaged."""
    found = _whole(folder)
    return found[1] if found else 0


def _whole(folder: Path) -> tuple[Path, int] | None:
    damaged: dict[Path, str] = {}
    for path in reversed(_all(folder)):
        if not (path / MANIFEST).exists():
            continue  # the process was killed while it wrote it
        if not (why := _damage(path)):
            return path, len(damaged)
        log.error("the checkpoint %s is damaged: %s", path, why)
        damaged[path] = why
    if damaged:
        raise ClawError(
            "every checkpoint of the run is damaged",
            found="; ".join(f"{path}: {why}" for path, why in damaged.items()),
            do=f"put them back from a copy, or move {folder} away to begin with the first weights",
        )
    return None


def load(path: Path, policy: Policy, optim: Optimiser, *, with_random: bool = True) -> Progress:
    """Put everything back into `policy` and `optim`. UsageError: a checkpoint of another model."""
    policy.ranks.tell("load", path=str(path), with_random=with_random)
    policy.settle()
    tensors = _read_tensors(path, policy)
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    try:
        optim.restore(tensors, state["num_steps"])
    except ValueError as error:
        raise UsageError(
            "the checkpoint is of another model", found=f"{path}: {error}",
            do="resume with the model and lora settings of the run, or start a new run",
        ) from error
    for name, average in policy.ema.items():
        average.copy_(tensors.get(f"ema.{name}", policy.parameters[name].detach()))
    if with_random:
        _set_random_state(state["random"], tensors)
    return _progress(state["progress"])


def read_progress(path: Path) -> Progress:
    """How far a checkpoint was, without its tensors."""
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    return _progress(state["progress"])


def _all(folder: Path) -> list[Path]:
    found = [p for p in folder.glob("*") if p.name.isdigit()] if folder.exists() else []
    return sorted(found, key=_ordinal)


def _ordinal(path: Path) -> int:
    return int(path.name)


def _damage(path: Path) -> str:
    """What is wrong with a finished checkpoint; empty for a whole one."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            return f"format {manifest['format']!r}, and this claw reads {FORMAT}"
        sums = dict(manifest.get("sha256") or {})  # not of those that earlier ones of claw wrote
        for name, size in manifest["files"].items():
            file = path / name
            if (found := file.stat().st_size) != size:
                return f"{name} has {found} bytes instead of {size}"
            if name in sums and file_sha256(file) != sums[name]:
                return f"{name} has another sha256"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


# --- plain values ----------------------------------------------------------------------------


def _plain(progress: Progress) -> dict[str, Any]:
    values = {f.name: getattr(progress, f.name) for f in dataclasses.fields(progress)}
    values["current"] = wire.pack(progress.current)[0] if progress.current else None
    values["versions"] = [wire.pack(v)[0] for v in progress.versions]
    return values


def _progress(values: dict[str, Any]) -> Progress:
    current = wire.unpack(Version, values["current"], {}) if values["current"] else None
    known = tuple(wire.unpack(Version, v, {}) for v in values["versions"])
    return Progress(**(values | {"current": current, "versions": known}))


def _random_arrays() -> dict[str, Tensor]:
    """The random state of torch (every device) and numpy's global generator."""
    keys = np.random.get_state(legacy=True)[1]
    arrays = {"random.torch": torch.get_rng_state(), "random.numpy": torch.from_numpy(
        np.asarray(keys, dtype=np.int64))}
    if torch.cuda.is_available():
        states = torch.cuda.get_rng_state_all()
        arrays |= {f"random.cuda.{i}": s for i, s in enumerate(states)}
    return arrays


def _random_numbers() -> dict[str, Any]:
    """The rest of it, and python's."""
    version, words, gauss = random.getstate()
    kind, _, pos, has_gauss, cached = np.random.get_state(legacy=True)
    return {"python": [version, list(words), gauss], "numpy": [kind, pos, has_gauss, cached]}


def _set_random_state(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    version, words, gauss = numbers["python"]
    random.setstate((version, tuple(words), gauss))
    kind, pos, has_gauss, cached = numbers["numpy"]
    keys = tensors["random.numpy"].numpy().astype(np.uint32)
    np.random.set_state((kind, keys, pos, has_gauss, cached))
    torch.set_rng_state(tensors["random.torch"])
    cuda = [tensors[n] for n in sorted(tensors) if n.startswith("random.cuda.")]
    if cuda and torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)
