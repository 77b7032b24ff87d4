"""Files that survive a crash: whole or absent, never half.

Owns: write under a temporary name, flush to the disk, rename, flush the folder.
Does not own: what is in the files.
"""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

from torch import Tensor


def save_tensors(file: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file. Tensors are made contiguous and moved to the CPU."""
    from safetensors.torch import save_file

    part = file.with_name(file.name + ".part")
    # clone: safetensors refuses tensors that share memory
    save_file({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()}, part)
    sync(part)
    os.replace(part, file)
    sync(file.parent)


def save_json(file: Path, value: Any) -> None:
    part = file.with_name(file.name + ".part")
    with part.open("w", encoding="utf-8") as out:
        json.dump(value, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(part, file)
    sync(file.parent)


def is_no_room(error: BaseException) -> bool:
    """Whether a write failed for the disk's sake: full, over a quota, or read-only."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := re.search(r"os error (\d+)", str(error))):
        number = int(found[1])  # safetensors has an error of its own
    return number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
