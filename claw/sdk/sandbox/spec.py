"""What a sandbox is asked for, what a command in it gives back, and the error.

Owns: the checks of a Spec.
Does not own: engines, containers, sockets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from claw.errors import ClawError
from claw.sdk.sandbox.agent import CAPABILITIES

BASE_IMAGE = "claw/base:bookworm"
ROOT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""what root needs to install packages and to own files, for `Spec.capabilities`"""
NETWORKS = ("none", "fenced")
ENGINES = ("docker", "bwrap")
MAX_OUTPUT = 1 << 20


class SandboxError(ClawError):
    """A sandbox could not be had, or is lost. What a command does inside is never an error."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of this machine inside the sandbox."""

    source: str
    """an absolute path on the machine of the engine"""
    target: str
    """an absolute path inside"""
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """A sandbox: its image and its limits."""

    image: str = BASE_IMAGE
    memory_mb: int = 1024
    """of everything inside together, swap included; past it, processes are killed"""
    cpus: float = 1.0
    pids: int = 256
    """processes and threads; claw's own take about four"""
    network: str = "none"
    """none, or fenced: reaches the outside, but neither this machine nor private addresses"""
    user: str = "1000:1000"
    """who commands run as: uid, uid:gid or a name of the image's"""
    workdir: str = "/work"
    """where commands start; made, and given to `user`, if the image has none"""
    tmpfs_mb: int = 64
    """/tmp, in memory; at most half of memory_mb, because its pages count there"""
    file_mb: int = 1024
    """the largest single file"""
    env: Mapping[str, str] = field(default_factory=dict)
    """over the image's own variables"""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that commands of root keep, such as CHOWN; other users have none"""
    runtime: str = ""
    """the engine's runtime, such as runsc; empty is the engine's default"""
    engine: str = "docker"
    """docker (or podman's socket), or bwrap: weaker, and never chosen by itself"""
    lifetime_s: float = 3600.0
    """then the sandbox ends by itself"""
    mounts: tuple[Mount, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no engine can honour, before anything starts."""
        _one_of("network", self.network, NETWORKS)
        _one_of("engine", self.engine, ENGINES)
        _at_least("memory_mb", self.memory_mb, 64)
        _at_least("cpus", self.cpus, 0.01)
        _at_least("pids", self.pids, 16)
        _at_least("tmpfs_mb", self.tmpfs_mb, 1)
        _at_least("file_mb", self.file_mb, 1)
        _at_least("lifetime_s", self.lifetime_s, 1)
        for name in self.capabilities:
            _one_of("capability", name, tuple(CAPABILITIES))
        if self.tmpfs_mb * 2 > self.memory_mb:
            raise SandboxError(
                "tmpfs_mb is too large", found=f"{self.tmpfs_mb} of {self.memory_mb} MB",
                allowed="at most half of memory_mb: a full /tmp counts as used memory")
        for path in (self.workdir, *(p for m in self.mounts for p in (m.source, m.target))):
            if not path.startswith("/"):
                raise SandboxError("a path of a sandbox must be absolute", found=repr(path))


def _one_of(name: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise SandboxError(f"unknown {name}", found=repr(found), allowed=", ".join(allowed))


def _at_least(name: str, found: float, least: float) -> None:
    if not found >= least:
        raise SandboxError(f"{name} is too small", found=str(found), allowed=f"{least} or more")


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command did."""

    exit_code: int | None
    """128 + n when signal n ended it; None when the deadline did, or when it is not known"""
    stdout: bytes
    """at most `max_output` bytes, head and tail with a line about the gap between them"""
    stderr: bytes
    seconds: float
    timed_out: bool = False
    out_of_memory: bool = False
    """the memory limit killed something while this ran"""
    truncated: bool = False
    lost: bool = False
    """the command killed its own keeper: what became of it is not known; the sandbox lives"""

    @property
    def text(self) -> str:
        """Both streams as text; what is no UTF-8 is replaced."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class Sandbox(Protocol):
    """One caller at a time; different sandboxes run at once. Usable in a `with` block."""

    @property
    def id(self) -> str:
        """The engine's name of it."""

    def run(
        self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
        max_output: int = MAX_OUTPUT, cwd: str = "", env: Mapping[str, str] = {}, user: str = "",
    ) -> Ran:
        """Run a fresh process: a string in the sandbox's shell, a sequence as it stands.

        At the deadline the whole process tree is killed, daemons included. What a command leaves
        in the background when it ends in time lives on, until `sweep`, `reset` or `close`.
        """

    def read(self, path: str, *, max_bytes: int = 16 << 20, user: str = "") -> bytes:
        """Return a whole file; SandboxError when it cannot be read or is larger."""

    def write(self, path: str, data: bytes, *, mode: int = 0o644, user: str = "") -> None:
        """Write a whole file, and the folders on its way."""

    def put(self, files: Mapping[str, bytes], to: str = "", *, mode: int = 0o644,
            user: str = "") -> None:
        """Write many files at once, by paths relative to `to` (else the working directory)."""

    def put_tree(self, folder: Path, to: str, *, user: str = "") -> None:
        """Copy a folder's regular files and links, modes kept."""

    def sweep(self) -> None:
        """Kill every process that commands left behind; files stay."""

    def snapshot(self, name: str = "") -> str:
        """Keep the files (not /tmp, not processes) as an image for `Spec.image`.

        An image without a name goes when this process does; a named one stays.
        """

    def reset(self) -> None:
        """Go back to the state it was opened in."""

    def close(self) -> None:
        """End it and leave nothing. Twice is fine."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 where: TracebackType | None) -> None: ...
