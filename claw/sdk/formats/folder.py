"""A task folder as claw sees it, whichever format it was written in.

Owns: the record that the readers fill, finding task folders, and refusing what cannot be run.
Does not own: what a format's files mean (`harbor`, `terminal_bench`), running any of it.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw.errors import UsageError

MAX_TEXT = 1 << 20
"""bytes of an instruction or a settings file"""
MAX_TREE = 64 << 20
"""bytes of a tests, solution or build folder"""
MAX_FILES = 10_000


class FormatError(UsageError):
    """A task folder that cannot be read, or that asks for what claw does not do."""


@dataclass(frozen=True, slots=True)
class Healthcheck:
    """A command that must succeed before the agent starts."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    start_interval_s: float = 5.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class Collect:
    """A command that runs after the agent and before the tests."""

    command: str
    timeout_s: float = 60.0
    user: str = ""


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """One task: what the agent is told, where it acts, and how its work is graded."""

    format: str
    """`harbor` or `terminal-bench`"""
    path: Path
    name: str
    instruction: str
    tests: Mapping[str, bytes] = field(repr=False)
    """relative path -> content; copied to /tests after the agent has ended"""
    test_command: tuple[str, ...] = ("bash", "/tests/test.sh")
    grading: str = "reward"
    """`reward`: the reward files decide; `pytest`: the test summary on the command's output"""
    solution: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """relative path -> content; copied to /solution for the oracle only"""
    solution_command: tuple[str, ...] = ()
    """empty: the folder brings no solution"""
    solution_env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    """a ready image; empty: build `build_folder`"""
    build_folder: Path | None = None
    build_timeout_s: float = 600.0
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """absolute path -> content, put there before the agent starts"""
    workdir: str = ""
    """empty: the image's own"""
    env: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    network: str = "public"
    """public | none"""
    agent_user: str = ""
    """empty: the image's own"""
    agent_timeout_s: float | None = None
    verifier_user: str = ""
    verifier_timeout_s: float = 600.0
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    healthcheck: Healthcheck | None = None
    collect: tuple[Collect, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    """parts that claw does not run, each by its name in the format"""
    notes: tuple[str, ...] = ()
    """what a person should know: unknown keys, old spellings, settings without effect"""

    def refuse_unsupported(self) -> None:
        """Raise FormatError that names every part which cannot be run."""
        if self.unsupported:
            raise FormatError(
                f"task {self.name!r} asks for what claw does not run",
                found="; ".join(self.unsupported),
                do="leave the task out, or run it with its own tools",
            )


def read(path: Path | str) -> TaskFolder:
    """Read one task folder in whichever format it is."""
    from claw.sdk.formats import harbor, terminal_bench

    path = Path(path)
    if harbor.fits(path):
        return harbor.read(path)
    if terminal_bench.fits(path):
        return terminal_bench.read(path)
    raise FormatError(
        "this is no task folder", found=str(path),
        allowed="a folder with task.toml (Harbor) or task.yaml (terminal-bench)",
    )


def find(path: Path | str) -> list[Path]:
    """Return the task folders at `path`: itself, or the folders right below it, by name."""
    from claw.sdk.formats import harbor, terminal_bench

    path = Path(path)
    if not path.is_dir():
        raise FormatError("no such folder of tasks", found=str(path))
    if harbor.fits(path) or terminal_bench.fits(path):
        return [path]
    found = [p for p in sorted(path.iterdir()) if harbor.fits(p) or terminal_bench.fits(p)]
    if not found:
        raise FormatError(
            "no task folder in it", found=str(path),
            allowed="folders with task.toml (Harbor) or task.yaml (terminal-bench)",
        )
    return found


def read_text(path: Path) -> str:
    """Return a file's text; FormatError for one that is missing, too long or no UTF-8."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_TEXT else None
    except OSError as error:
        raise FormatError(f"cannot read {path.name}", found=str(error)) from error
    if data is None:
        raise FormatError(f"{path.name} is too long", found=str(path),
                          allowed=f"at most {MAX_TEXT} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path.name} is no UTF-8 text", found=f"{path}: {error}") from error


def tree(folder: Path, is_ignored: Callable[[str], bool] | None = None) -> dict[str, bytes]:
    """Return relative path -> content of all files below; links that leave it are an error."""
    found: dict[str, bytes] = {}
    total = 0
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if is_ignored is not None and is_ignored(name):
            continue
        if not path.resolve().is_relative_to(folder.resolve()):
            raise FormatError("a link leaves the task folder", found=f"{path} -> {path.resolve()}")
        total += path.stat().st_size
        if total > MAX_TREE or len(found) >= MAX_FILES:
            raise FormatError(f"{folder.name}/ is too large", found=str(folder),
                              allowed=f"{MAX_TREE} bytes in {MAX_FILES} files")
        found[name] = path.read_bytes()
    return found


def digest(folder: Path) -> str:
    """Return a hex digest of the names, modes and contents of all files below."""
    made = hashlib.sha256()
    for path in _files(folder):
        mode = path.stat().st_mode & 0o777
        made.update(f"{path.relative_to(folder).as_posix()}\0{mode:o}\0".encode())
        made.update(hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):  # follows no link to a folder
        folders.sort()
        for name in sorted(files):
            path = Path(base) / name
            if path.is_file():
                yield path
