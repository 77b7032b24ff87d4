"""Versions that were pulled from another host: one folder each, bounded together.

Owns: the folders by checksum, one puller at a time, which goes when there is no room.
Does not own: what is in a folder (pull), versions on the trainer's own host.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from claw.engine.versions import VersionError

KEPT = 3
"""newest folders that stay whatever their size: what comes in, what serves, and one refused"""


USED = "used"
"""file with the time of the last use"""


def default_folder() -> Path:
    """In the user's cache, by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "claw" / "versions"


class Cache:
    """Folders named by the sha256 of the manifest, so several runs and workers may share them."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes

    @contextmanager
    def hold(self, checksum: str) -> Iterator[Path]:
        """The folder of one version; another worker that wants the same one waits."""
        if len(checksum) != 64 or not set(checksum) <= set("0123456789abcdef"):
            raise VersionError("a version without a checksum cannot be pulled", found=checksum)
        folder = self.folder / checksum
        folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{checksum}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(exist_ok=True)  # it may have made room for another meanwhile
            with suppress(OSError):
                (folder / USED).write_text(f"{time.time():.3f}")
            yield folder

    def make_room(self, wanted: int, keep: Path) -> None:
        """Remove the folders that were used longest ago until `wanted` bytes fit."""
        if wanted > self.max_bytes:
            raise VersionError("the version is larger than the room for pulled versions",
                               found=f"{wanted / 1e9:.2f} GB",
                               allowed=f"{self.max_bytes / 1e9:g} GB (worker.cache_gb)")
        others = sorted((f for f in self.folder.iterdir() if f.is_dir() and f != keep), key=_used,
                        reverse=True)
        left = self.max_bytes - wanted
        for i, folder in enumerate(others):
            left -= sum(f.stat().st_size for f in folder.iterdir())
            if left < 0 and i >= KEPT - 1 and not _is_held(self.folder / f"{folder.name}.lock"):
                shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    try:
        return float((folder / USED).read_text())
    except (OSError, ValueError):
        return 0.0


def _is_held(lock: Path) -> bool:
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
