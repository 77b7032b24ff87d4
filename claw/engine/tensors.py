"""Which tensor of two sets differs first: checksums by name, as an engine's own check makes them.

Owns: the checksum of one tensor, those of a safetensors file, the first difference.
Does not own: where tensors come from (trainer, worker), what follows from a difference.

A checksum is the first 16 hex digits of the sha256 of a tensor's bytes: SGLang answers with the
same on a CPU. No torch here.
"""

import hashlib
import json
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Checksums = dict[str, str]


def checksum(*pieces: Any) -> str:
    """Of the bytes of one tensor, given in one or more pieces."""
    made = hashlib.sha256()
    for piece in pieces:
        made.update(piece)
    return made.hexdigest()[:16]


def pieces(path: Path) -> Iterator[tuple[str, memoryview]]:
    """The tensors of a safetensors file in natural order of their names, as raw bytes.

    The file's header was checked before (`versions.tensor_shapes`). A view is good until the next.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        header, data = _header(raw)
        for name in sorted(header, key=natural):
            start, stop = header[name]["data_offsets"]
            with memoryview(raw)[data + start : data + stop] as view:
                yield name, view


def read(path: Path, name: str) -> bytes:
    """The raw bytes of one tensor."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        header, data = _header(raw)
        start, stop = header[name]["data_offsets"]
        return raw[data + start : data + stop]


def dtypes(path: Path) -> set[str]:
    """The dtypes in a file, as safetensors names them: F32, BF16."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        return {spec["dtype"] for spec in _header(raw)[0].values()}


def _header(raw: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header, and where the data begins."""
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    return header, 8 + size


def of_files(folder: Path, names: list[str]) -> Checksums:
    """Checksums of all tensors of these safetensors files."""
    return {name: checksum(view) for file in names for name, view in pieces(folder / file)}


def first_difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Say which tensor differs first, in natural order of names; empty when none does."""
    for name in sorted({*found, *wanted}, key=natural):
        if name not in found:
            return f"{name} is missing"
        if name not in wanted:
            return f"{name} is one too many"
        if found[name] != wanted[name]:
            return f"{name}: checksum {found[name]} instead of {wanted[name]}"
    return ""


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key under which layers.2 comes before layers.10."""
    return [(int(part), "") if part.isdigit() else (-1, part)
            for part in re.split(r"(\d+)", name)]
