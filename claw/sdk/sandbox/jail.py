"""A sandbox without an engine: bubblewrap, and only by explicit choice (`engine="bwrap"`).

Owns: the jail's namespaces and the pipe to the agent in it.
Does not own: hard limits. There are none of the whole jail: `memory_mb` and `pids` are rlimits
(memory of each process; processes of the user), `cpus` is not limited, no system call is filtered,
and the files are this machine's /usr. What it cannot honour at all is refused.
"""

import os
import resource
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claw.sdk.sandbox.line import MAX_STDERR, Line, LineLost
from claw.sdk.sandbox.program import LOAD, program
from claw.sdk.sandbox.session import Session
from claw.sdk.sandbox.spec import SandboxError, Spec

OPEN_S = 30.0
NOBODY = 65534


class Jail(Session):
    """The `Sandbox` of bubblewrap."""

    def _open(self) -> None:
        _refuse(self.spec)
        text = program(self.spec, can_switch=False)
        self._process = subprocess.Popen(
            _command(self.spec, len(text)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=_limits(self.spec), **_other_user())
        channel = PipeChannel(self._process)
        self._line = Line(channel)
        end = time.monotonic() + OPEN_S
        try:
            channel.send(text, end)
            self._line.hello(end)
        except LineLost as error:
            self.close()
            raise SandboxError("bubblewrap did not start", found=str(error),
                               do="it needs user namespaces, which containers often forbid"
                               ) from error

    @property
    def id(self) -> str:
        """The process id of bubblewrap."""
        return str(self._process.pid)

    def _check_user(self, user: str) -> None:
        if user != self.spec.user:
            raise SandboxError("bubblewrap has one user", found=user, allowed=self.spec.user)

    def snapshot(self, name: str = "") -> str:
        """Refuse: there is no image."""
        raise SandboxError("bubblewrap cannot make snapshots", do="use engine='docker'")

    def _end(self) -> None:
        process = getattr(self, "_process", None)
        if process is None:
            return
        process.kill()  # --die-with-parent takes the namespace along
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


class PipeChannel:
    """Bytes over the pipes of a child process."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin and process.stdout and process.stderr
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._in, False)
        self.stderr = b""
        self._listener = threading.Thread(target=self._listen, args=(process.stderr.fileno(),),
                                          daemon=True)
        self._listener.start()

    def _listen(self, fd: int) -> None:
        try:
            while data := os.read(fd, MAX_STDERR):
                self.stderr = (self.stderr + data)[-MAX_STDERR:]
        except OSError:  # closed
            pass

    def send(self, data: bytes, end: float) -> None:
        """Send everything, until `end` on the monotonic clock."""
        view = memoryview(data)
        while view:
            self._wait([], [self._in], end)
            try:
                view = view[os.write(self._in, view[: 1 << 16]):]
            except OSError as error:
                raise LineLost(self._said() or str(error)) from error

    def read(self, count: int, end: float) -> bytes:
        """Return exactly `count` bytes."""
        data = bytearray()
        while len(data) < count:
            self._wait([self._out], [], end)
            more = os.read(self._out, min(count - len(data), 1 << 18))
            if not more:
                raise LineLost(self._said() or "the jail ended")
            data += more
        return bytes(data)

    def _wait(self, readable: list[int], writable: list[int], end: float) -> None:
        if not any(select.select(readable, writable, [], max(0.0, end - time.monotonic()))):
            raise LineLost("no answer in time")

    def _said(self) -> str:
        self._listener.join(1.0)
        return self.stderr.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """The process owns the pipes."""


def _refuse(spec: Spec) -> None:
    default = Spec()
    for name in ("image", "network", "capabilities", "runtime", "cpus"):
        if getattr(spec, name) != getattr(default, name):
            raise SandboxError(f"bubblewrap cannot honour {name}", found=str(getattr(spec, name)),
                               do="leave it out, or use engine='docker'")
    if not all(part.isdigit() for part in spec.user.split(":")):
        raise SandboxError("bubblewrap needs a user in numbers", found=spec.user)
    if shutil.which("bwrap") is None:
        raise SandboxError("bubblewrap is not installed", do="apt-get install bubblewrap")


def _command(spec: Spec, num_bytes: int) -> list[str]:
    uid, _, gid = spec.user.partition(":")
    words = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
             "--new-session", "--as-pid-1", "--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "bin", "sbin"):
        if Path("/", name).is_symlink():
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        elif Path("/", name).exists():
            words += ["--ro-bind", f"/{name}", f"/{name}"]
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder, size_mb in (("/tmp", spec.tmpfs_mb), (spec.workdir, spec.file_mb)):
        words += ["--size", str(size_mb << 20), "--tmpfs", folder]
    for mount in spec.mounts:
        words += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
    words += ["--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin",
              "--setenv", "LANG", "C.UTF-8", "--setenv", "CLAW_BYTES", str(num_bytes)]
    return [*words, "--uid", uid, "--gid", gid or uid, "--chdir", spec.workdir,
            "--cap-drop", "ALL", "/usr/bin/python3", "-X", "utf8", "-I", "-S", "-c", LOAD]


def _limits(spec: Spec) -> Callable[[], None]:
    def apply() -> None:
        for what, value in ((resource.RLIMIT_AS, spec.memory_mb << 20),
                            (resource.RLIMIT_FSIZE, spec.file_mb << 20),
                            (resource.RLIMIT_NPROC, spec.pids), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(what, (value, value))
    return apply


def _other_user() -> dict[str, Any]:
    """The limit of processes does not bind root, so root's jails belong to nobody."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
