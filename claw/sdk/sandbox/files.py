"""Files in and out of a sandbox, through commands in it: works on any mount, as any user.

The engine's own copying does not: into a tmpfs it reports success and the file is not there.
"""

import io
import tarfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from claw.sdk.sandbox.spec import MAX_OUTPUT, Ran, SandboxError

COPY_S = 120.0
PIECE = 8 << 20
"""bytes of one command's stdin: the agent holds them inside the sandbox's memory"""
WRITE = 'case "$1" in */*) mkdir -p -- "${1%/*}/" || exit;; esac; cat >"$1" && chmod "$2" "$1"'
APPEND = 'cat >>"$1"'


class Files:
    """`read`, `write`, `put` and `put_tree` for whatever has `run`."""

    @abstractmethod
    def run(
        self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
        max_output: int = MAX_OUTPUT, cwd: str = "", env: Mapping[str, str] = {}, user: str = "",
    ) -> Ran:
        """Run a command; see `Sandbox.run`."""

    def read(self, path: str, *, max_bytes: int = 16 << 20, user: str = "") -> bytes:
        """Return a whole file; see `Sandbox.read`."""
        ran = self.run(["head", "-c", str(max_bytes + 1), "--", path], timeout_s=COPY_S,
                       max_output=max_bytes + 1, user=user)
        _check(ran, "reading", path)
        if len(ran.stdout) > max_bytes:
            raise SandboxError("a file in the sandbox is too large", found=path,
                               allowed=f"{max_bytes} bytes")
        return ran.stdout

    def write(self, path: str, data: bytes, *, mode: int = 0o644, user: str = "") -> None:
        """Write a whole file; see `Sandbox.write`."""
        for start in range(0, len(data) or 1, PIECE):
            piece = data[start : start + PIECE]
            script = APPEND if start else WRITE
            ran = self.run(["sh", "-c", script, "sh", _plain(path), f"{mode:o}"], stdin=piece,
                           timeout_s=COPY_S, user=user)
            _check(ran, "writing", path)

    def put(self, files: Mapping[str, bytes], to: str = "", *, mode: int = 0o644,
            user: str = "") -> None:
        """Write many files; see `Sandbox.put`."""
        pack = _Pack(self, to, user)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), mode, int(time.time())
            pack.add(info, data)
        pack.send()

    def put_tree(self, folder: Path, to: str, *, user: str = "") -> None:
        """Copy a folder; see `Sandbox.put_tree`."""
        if not folder.is_dir():
            raise SandboxError("there is no such folder to copy", found=str(folder))
        pack = _Pack(self, to, user)
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            info = tarfile.TarInfo(name)
            info.mode = path.lstat().st_mode & 0o7777
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                pack.add(info, b"")
            elif path.is_dir():
                info.type = tarfile.DIRTYPE
                pack.add(info, b"")
            elif path.is_file():
                info.size = path.stat().st_size
                pack.add(info, path.read_bytes())
        pack.send()


class _Pack:
    """Tars of bounded size, sent one after another."""

    def __init__(self, box: Files, to: str, user: str) -> None:
        self._box, self._to, self._user = box, to or ".", user
        self._start()

    def _start(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115

    def add(self, info: tarfile.TarInfo, data: bytes) -> None:
        """Add one file; whatever cannot wait in a tar is written alone."""
        if len(data) > PIECE:
            self.send()
            self._box.write(f"{self._to}/{info.name}", data, mode=info.mode, user=self._user)
            return
        if self._bytes.tell() + len(data) > PIECE:
            self.send()
        self._tar.addfile(info, io.BytesIO(data))

    def send(self) -> None:
        """Unpack what was added inside the sandbox."""
        self._tar.close()
        script = 'mkdir -p -- "$1" && exec tar -xpf - -C "$1"'
        ran = self._box.run(["sh", "-c", script, "sh", _plain(self._to)], user=self._user,
                            stdin=self._bytes.getvalue(), timeout_s=COPY_S)
        _check(ran, "copying files to", self._to)
        self._start()


def _plain(path: str) -> str:
    """A path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _check(ran: Ran, doing: str, path: str) -> None:
    if ran.exit_code == 0:
        return
    why = "it took too long" if ran.timed_out else ran.stderr.decode("utf-8", "replace").strip()
    raise SandboxError(f"{doing} {path!r} in the sandbox failed",
                       found=why or f"exit code {ran.exit_code}")
