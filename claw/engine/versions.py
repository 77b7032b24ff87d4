"""Versions on disk: an immutable folder of safetensors with a manifest that is written last.

Owns: the manifest, its checks (sha256, completeness, tensor names and shapes), the canary's arrays.
Does not own: how weights are trained, loaded into a model or compared (trainer, worker).

A folder whose `manifest.json` is missing is not a version yet. No torch here.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from claw.engine import faults, tensors
from claw.engine.tensors import Checksums
from claw.errors import ClawError

FORMAT = 1
MANIFEST = "manifest.json"
CANARY = "canary.safetensors"
KINDS = ("full", "lora")
MAX_HEADER = 100_000_000
"""bytes of a safetensors header; the format's own limit"""

Shapes = dict[str, tuple[int, ...]]


class VersionError(ClawError):
    """A version cannot be used; the message names the file or tensor."""

    mismatch: tuple[float, float] | None = None
    """of a canary that disagreed: the largest and the mean difference in nats"""


class CanaryError(VersionError):
    """Trainer and worker disagree on the canary."""

    def __init__(self, mismatch: tuple[float, float], found: str, allowed: str) -> None:
        super().__init__("the identity canary disagrees: trainer and worker score the same "
                         "tokens differently", found=found, allowed=allowed)
        self.mismatch = mismatch

    def because(self, why: str) -> "CanaryError":
        """The same, with what the worker knows of the cause."""
        assert self.mismatch is not None, "set in __init__"
        return CanaryError(self.mismatch, f"{self.found}; {why}", self.allowed)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `manifest.json` says."""

    owner: str
    adapter: str
    number: int
    parent: int | None
    kind: str
    """`full` or `lora`"""
    step: int
    files: dict[str, dict[str, Any]]
    """name -> {sha256, bytes}"""
    canary: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    tensors: Checksums = field(default_factory=dict)
    """checksum of each tensor as the trainer holds it (`tensors`); empty when it did not say"""
    format: int = FORMAT

    @property
    def weight_files(self) -> list[str]:
        return sorted(n for n in self.files if n.endswith(".safetensors") and n != self.canary)


@dataclass(frozen=True, slots=True, eq=False)
class Canary:
    """Fixed sequences and the trainer's log-probs of them."""

    ids: np.ndarray
    """int32 [n, L]"""
    logps: np.ndarray
    """float32 [n, L-1] log softmax of each next id, temperature 1"""


# --- writing ---------------------------------------------------------------------------------


@faults.around("trainer.manifest")
def write_manifest(
    folder: Path, *, owner: str, adapter: str, number: int, parent: int | None, kind: str,
    step: int, config: Mapping[str, Any] | None = None, checksums: Checksums | None = None,
) -> str:
    """Make the folder a version: list its files, and write the manifest last, atomically.

    `checksums` are those of the trainer's own tensors, by the names in the files.
    Returns the sha256 of the manifest, which is the checksum of the record Version.
    """
    assert kind in KINDS, f"a version is full or lora, not {kind!r}"
    files = {}
    for path in sorted(p for p in folder.iterdir() if p.is_file() and p.name != MANIFEST):
        _sync(path)
        files[path.name] = {"sha256": file_sha256(path), "bytes": path.stat().st_size}
    canary = CANARY if CANARY in files else None
    manifest = Manifest(owner, adapter, number, parent, kind, step, files, canary,
                        dict(config or {}), dict(checksums or {}))
    raw = json.dumps(asdict(manifest), indent=1, sort_keys=True).encode()
    part = folder / (MANIFEST + ".part")
    with part.open("wb") as out:
        out.write(raw)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, folder / MANIFEST)
    _sync(folder)
    return hashlib.sha256(raw).hexdigest()


def write_canary(folder: Path, ids: np.ndarray, logps: np.ndarray) -> None:
    """Write the canary: int32 [n, L] and float32 [n, L-1]."""
    from safetensors.numpy import save_file

    assert ids.ndim == 2 and logps.shape == (ids.shape[0], ids.shape[1] - 1), "canary shapes"
    save_file(
        {"ids": np.ascontiguousarray(ids, np.int32),
         "logps": np.ascontiguousarray(logps, np.float32)},
        folder / CANARY,
    )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- reading ---------------------------------------------------------------------------------


def read_manifest(folder: Path, checksum: str = "") -> Manifest:
    """Read and check the manifest; `checksum` is the sha256 that the record Version carries."""
    try:
        raw = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise VersionError(
            "the version is incomplete: it has no manifest", found=str(folder / MANIFEST)
        ) from error
    if checksum and (found := hashlib.sha256(raw).hexdigest()) != checksum:
        raise VersionError(
            "the version's manifest is not the announced one", found=found, allowed=checksum
        )
    return parse_manifest(raw)


def parse_manifest(raw: bytes) -> Manifest:
    """Read what `manifest.json` holds."""
    try:
        values = json.loads(raw)
        manifest = Manifest(**values)
    except (ValueError, TypeError) as error:
        raise VersionError("the version's manifest is not readable", found=str(error)) from error
    if manifest.format != FORMAT or manifest.kind not in KINDS:
        raise VersionError(
            "the version is of another kind",
            found=f"format {manifest.format!r}, kind {manifest.kind!r}",
            allowed=f"format {FORMAT}, kind {' or '.join(KINDS)}",
        )
    return manifest


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file with the manifest; the first wrong one is named."""
    if not manifest.weight_files:
        raise VersionError("the version holds no weights", found=", ".join(manifest.files))
    for name, wanted in manifest.files.items():
        path = folder / name
        if Path(name).name != name:
            raise VersionError("a version's file must lie in its folder", found=name)
        if not path.is_file():
            raise VersionError("the version is incomplete: a file is missing", found=name)
        if (size := path.stat().st_size) != wanted.get("bytes"):
            raise VersionError(
                f"the version's file {name} has another size", found=f"{size} bytes",
                allowed=f"{wanted.get('bytes')} bytes",
            )
        if (found := file_sha256(path)) != wanted.get("sha256"):
            raise VersionError(
                f"the version's file {name} is corrupt", found=f"sha256 {found}",
                allowed=f"sha256 {wanted.get('sha256')}",
            )


def check_tensors(folder: Path, manifest: Manifest) -> None:
    """Compare the tensors in the files with those that the trainer held when it wrote them."""
    if not manifest.tensors:
        return
    for name in manifest.weight_files:
        tensor_shapes(folder / name)  # a file that is none is refused here
    found = tensors.of_files(folder, manifest.weight_files)
    if first := tensors.first_difference(found, manifest.tensors):
        raise VersionError("the version's files do not hold the trainer's tensors; the first that "
                           "differs is named", found=first)


def check_version(folder: Path, checksum: str = "") -> Manifest:
    """Read the manifest and check every file: what a worker does before it loads."""
    manifest = read_manifest(folder, checksum)
    check_files(folder, manifest)
    check_tensors(folder, manifest)
    return manifest


def read_canary(folder: Path, manifest: Manifest) -> Canary | None:
    """Return the canary's arrays, or None when the version has none."""
    if manifest.canary is None:
        return None
    from safetensors.numpy import load_file

    try:
        arrays = load_file(folder / manifest.canary)
        ids, logps = arrays["ids"], arrays["logps"]
    except Exception as error:  # safetensors raises its own kinds; all mean: not a canary
        raise VersionError("the version's canary is not readable", found=str(error)) from error
    if ids.ndim != 2 or logps.shape != (ids.shape[0], ids.shape[1] - 1):
        raise VersionError(
            "the version's canary has wrong shapes", found=f"ids {ids.shape}, logps {logps.shape}",
            allowed="ids [n, L], logps [n, L-1]",
        )
    return Canary(ids.astype(np.int32), logps.astype(np.float32))


def check_canary_ids(canary: Canary, vocab_size: int) -> None:
    """Refuse a canary that this model cannot read."""
    if canary.ids.min() < 0 or canary.ids.max() >= vocab_size:
        raise VersionError("the canary's ids are not ids of this model",
                           found=f"{canary.ids.min()} to {canary.ids.max()}",
                           allowed=f"0 to {vocab_size - 1}")


def canary_verdict(
    gaps: Sequence[np.ndarray], tolerance: float, starts: Sequence[int] = ()
) -> tuple[float, float]:
    """Return the largest and mean gap in nats over all sequences; CanaryError beyond tolerance.

    gaps: of each sequence, |trainer - worker| [up to L-1]; `starts`: how many tokens of it came
    before its first gap.
    """
    filled = [np.nan_to_num(g, nan=np.inf) for g in gaps]
    i = int(np.argmax([g.max(initial=0.0) for g in filled]))
    worst, mean = float(filled[i].max(initial=0.0)), float(np.mean(np.concatenate(gaps)))
    if not worst <= tolerance:
        at = int(filled[i].argmax())
        token = at + 1 + (starts[i] if starts else 0)
        raise CanaryError((worst, mean), allowed=f"{tolerance:g} (gate.canary_tolerance)",
                          found=f"sequence {i}, token {token}: {gaps[i][at]:.4g} nats apart")
    return worst, mean


def tensor_shapes(path: Path) -> Shapes:
    """Return name -> shape of a safetensors file from its header, without reading tensors."""
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > MAX_HEADER:
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        return {name: tuple(spec["shape"]) for name, spec in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise VersionError(
            "not a safetensors file", found=f"{path.name}: {type(error).__name__}: {error}"
        ) from error


def check_shapes(found: Shapes, wanted: Shapes, optional: Iterable[str] = ()) -> None:
    """Refuse weights of another architecture: the first wrong tensor is named.

    `optional` may be absent (a tied lm_head).
    """
    may_lack = set(optional)
    for name in sorted(set(found) - set(wanted)):
        raise VersionError(
            "the version is of another architecture: the model has no such tensor", found=name
        )
    for name in sorted(set(wanted) - set(found) - may_lack):
        raise VersionError(
            "the version is of another architecture: a tensor is missing", found=name
        )
    for name in sorted(found):
        if found[name] != wanted[name]:
            raise VersionError(
                f"the version is of another architecture: {name} has another shape",
                found=str(list(found[name])), allowed=str(list(wanted[name])),
            )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
