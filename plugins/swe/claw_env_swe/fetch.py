"""Pinned files from pip's index: downloaded once into the cache, never run on this machine.

Owns: asking pip for exactly one file by its hash, and the cache.
Does not own: what is in the files (`recipe`).

pip wants a source distribution's metadata, and would run its build to have it. It is given a build
backend that builds nothing: it copies the PKG-INFO that every source distribution holds.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from claw.sdk import ClawError

TIMEOUT_S = 600.0
BACKENDS = ("setuptools/build_meta", "flit_core/buildapi", "hatchling/build",
            "poetry/core/masonry/api", "pdm/backend")
"""of all but a few source distributions"""
NOTHING = '''
import email, pathlib, shutil
def get_requires_for_build_wheel(settings=None): return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    said = email.message_from_string(pathlib.Path("PKG-INFO").read_text(encoding="utf-8"))
    name = said["Name"].replace("-", "_")
    made = pathlib.Path(folder) / f"{name}-{said['Version']}.dist-info"
    made.mkdir()
    shutil.copyfile("PKG-INFO", made / "METADATA")
    return made.name
class __legacy__:  # what builds a project without pyproject.toml
    get_requires_for_build_wheel = staticmethod(get_requires_for_build_wheel)
    prepare_metadata_for_build_wheel = staticmethod(prepare_metadata_for_build_wheel)
'''
_lock = threading.Lock()


def cache_dir() -> Path:
    """The user's cache, by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "claw" / "swe"


def fetch(requirement: str, sha256: str) -> Path:
    """Return the file of `name==version` with this hash; from the cache where it is there."""
    kept = cache_dir() / sha256
    with _lock:
        if not _is(kept, sha256):
            _download(requirement, sha256, kept)
    return kept


def _is(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _download(requirement: str, sha256: str, kept: Path) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", requirement):
        raise ClawError("a package of a recipe is not pinned", found=repr(requirement),
                        allowed="name==version")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=kept.parent) as scratch:
        folder = Path(scratch)
        (folder / "wanted.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
        _write_backends(folder / "backends")
        done = _pip(folder)
        files = [f for f in (folder / "files").glob("*") if _is(f, sha256)]
        if done.returncode != 0 or len(files) != 1:
            raise ClawError(
                f"pip could not download {requirement}",
                found=_last_words(done.stderr or done.stdout),
                allowed=f"the file with sha256 {sha256}",
                do="check the network and pip's index, then try again; what is in "
                   f"{kept.parent} is not asked for again",
            )
        files[0].replace(kept)


def _pip(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--require-hashes", "--no-build-isolation", "--use-pep517",
        "--dest", str(folder / "files"), "-r", str(folder / "wanted.txt"),
    ]
    environ = {**os.environ, "PYTHONPATH": str(folder / "backends"),
               "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                          env=environ)


def _write_backends(folder: Path) -> None:
    """Modules under the names that source distributions ask for."""
    for name in BACKENDS:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(NOTHING)
        for parent in path.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()


def _last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip() and "WARNING" not in line]
    return " ".join(" ".join(lines[-3:]).split())[-500:]
