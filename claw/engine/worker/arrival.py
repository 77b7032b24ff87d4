"""Which tensor of a version an engine does not hold, by the checksums that it gives of its own.

Owns: what those checksums should be, for engines that fuse tensors of a checkpoint into one.
Does not own: the checksums of files (tensors), asking the engine (shelf).
"""

from collections.abc import Iterable
from pathlib import Path

from claw.engine import tensors
from claw.engine import versions as disk
from claw.engine.tensors import Checksums
from claw.engine.versions import VersionError

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""engine's name -> those of the checkpoint, whose rows follow one another in it"""
WRAPPED = ".base_layer"
"""what an engine that serves adapters puts into the names of its linear layers"""


def expected(
    folder: Path, files: list[str], names: Iterable[str], known: Checksums
) -> Checksums:
    """What an engine that names its tensors so should answer; names of no file are left out.

    `known` are checksums of the files' tensors that were compared before.
    """
    place = {name: folder / file for file in files for name in disk.tensor_shapes(folder / file)}
    found = {}
    for name in names:
        parts = _parts(name.replace(WRAPPED, ""))
        if not all(part in place for part in parts):
            continue  # a buffer, or a tied head
        found[name] = known[parts[0]] if len(parts) == 1 and parts[0] in known else (
            tensors.checksum(*(tensors.read(place[part], part) for part in parts)))
    return found


def check(held: Checksums, wanted: Checksums) -> None:
    """Refuse a version that did not arrive whole; the first tensor that differs is named."""
    first = tensors.first_difference({n: c for n, c in held.items() if n in wanted}, wanted)
    if first:
        raise VersionError("the engine does not hold the version's tensors after the swap; the "
                           "first that differs is named", found=first)


def _parts(name: str) -> list[str]:
    for fused, parts in FUSED.items():
        if f".{fused}." in name:
            return [name.replace(fused, part) for part in parts]
    return [name]
