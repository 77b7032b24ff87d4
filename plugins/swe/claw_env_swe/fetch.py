"""Pinned files from pip's index: downloaded once into the cache, and not built on this machine.

Owns: asking pip for exactly these files by their hashes, and the cache.
Does not own: what is in the files (`recipe`).

pip wants a source distribution's metadata, and would run its build to have it. It is given a build
backend that builds nothing: it copies the PKG-INFO that every source distribution holds. Only a
package that carries a backend of its own (`backend-path`) is still asked, so a row that names one
is to be trusted like a requirement.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from claw.sdk import ClawError

TIMEOUT_S = 600.0
PINNED = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+")
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


Pin = tuple[str, str]
"""`name==version` and the sha256 of its file"""


def fetch(pins: Sequence[Pin]) -> list[Path]:
    """Return the files of these pins; from the cache, or all that it lacks by one call of pip."""
    with _lock:
        if missing := [pin for pin in dict.fromkeys(pins) if not _is(kept(pin), pin[1])]:
            _download(missing)
    return [kept(pin) for pin in pins]


def kept(pin: Pin) -> Path:
    """Return where the cache keeps a file."""
    return cache_dir() / pin[1]


def _is(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _download(pins: Sequence[Pin]) -> None:
    for requirement, _ in pins:
        if not PINNED.fullmatch(requirement):
            raise ClawError("a package of a recipe is not pinned", found=repr(requirement),
                            allowed="name==version")
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache_dir()) as scratch:
        folder = Path(scratch)
        wanted = [f"{name} --hash=sha256:{sha256}\n" for name, sha256 in pins]
        (folder / "wanted.txt").write_text("".join(wanted))
        _write_backends(folder / "backends")
        done = _pip(folder)
        files = list((folder / "files").glob("*"))
        for pin in pins:
            for file in files:
                if _is(file, pin[1]):
                    file.replace(kept(pin))
        if done.returncode != 0 or not all(kept(pin).is_file() for pin in pins):
            raise ClawError(
                "pip could not download the packages that an instance is made of",
                found=f"{', '.join(name for name, _ in pins)}: "
                      f"{_last_words(done.stderr or done.stdout)}",
                allowed="files of the pinned sha256",
                do=f"check the network and pip's index, then try again; what {cache_dir()} holds "
                   "is not asked for again",
            )


def _pip(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--require-hashes", "--no-build-isolation", "--dest", str(folder / "files"),
        "-r", str(folder / "wanted.txt"),
    ]
    environ = {**os.environ, "PYTHONPATH": str(folder / "backends"),
               "PYTHONDONTWRITEBYTECODE": "1", "PIP_USE_PEP517": "1"}
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
