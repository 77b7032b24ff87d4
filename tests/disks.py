"""Disks for tests: a small one that fills up, and one that may only be read."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    """Mount something there for as long as the block lasts; who may not mount skips."""
    done = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def small(folder: Path, megabytes: int) -> Iterator[Path]:
    """An empty disk of this size."""
    with mounted(folder, "-t", "tmpfs", "-o", f"size={megabytes}m", "claw-test"):
        yield folder


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing may be written to the folder."""
    if os.geteuid():
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)
        return
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        yield
