"""What an environment leaves behind: files, sandboxes and processes of its own, also detached ones.

Owns: telling this process's leavings from everybody else's.
Does not own: labels of sandboxes (`claw.sdk.sandbox`).

While `Watch` is open, temporary files go to a private folder, and processes inherit a mark in their
environment, which a daemon keeps when it leaves its process group.
"""

import asyncio
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

MARK = "CLAW_CHECK"
GRACE_S = 2.0
"""processes that were told to end may take so long"""


class Watch:
    """`with Watch() as watch: ...; await watch.leavings()`."""

    def __enter__(self) -> "Watch":
        self._folder = Path(tempfile.mkdtemp(prefix="claw-check-"))
        self._mark = secrets.token_hex(8)
        self._before = {name: os.environ.get(name) for name in (MARK, "TMPDIR")}
        self._tempdir = tempfile.tempdir
        os.environ |= {MARK: self._mark, "TMPDIR": str(self._folder)}
        tempfile.tempdir = str(self._folder)
        self._threads = set(threading.enumerate())
        self._children = _children()
        self._num_containers = _num_containers()
        return self

    def __exit__(self, *_: object) -> None:
        tempfile.tempdir = self._tempdir
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self._folder, ignore_errors=True)

    async def leavings(self) -> list[str]:
        """Name what is still there: files, processes, threads that keep a process from ending."""
        until = time.monotonic() + GRACE_S
        while (processes := self._processes()) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        files = [f"file {path.name}" for path in sorted(self._folder.iterdir())]
        threads = [
            f"thread {t.name}" for t in threading.enumerate()
            if t not in self._threads and not t.daemon and t.is_alive()
        ]
        return files + processes + threads + self._containers()

    def _containers(self) -> list[str]:
        # by number: a pool that was warm before may have filled up again
        more = _num_containers() - self._num_containers
        return [f"{more} container(s)"] if more > 0 else []

    def _processes(self) -> list[str]:
        mark = f"{MARK}={self._mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):  # no /proc, as on macOS: nothing is found
            try:
                is_own = folder.name == str(os.getpid())
                if not is_own and (_is_new_child(folder, self._children)
                                   or mark in (folder / "environ").read_bytes()):
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"process {folder.name}: {words.decode(errors='replace')[:80]}")
            except OSError:
                continue  # it ended, or belongs to somebody else
        return found


def _num_containers() -> int:
    """How many this process owns; none where nothing has opened a sandbox so far."""
    if "docker" not in sys.modules:
        return 0
    from claw.sdk.sandbox import engine, owner

    with engine.speaking("counting containers"):
        mine = {"label": f"{owner.OWNER}={owner.me()}"}
        return len(engine.api().containers(all=True, filters=mine))


def _is_new_child(folder: Path, before: set[str]) -> bool:
    """A forked child keeps the environment that this process was started with, and has no mark."""
    return folder.name not in before and _is_child(folder)


def _is_child(folder: Path) -> bool:
    state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
    return parent == str(os.getpid()) and state != "Z"


def _children() -> set[str]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if _is_child(folder):
                found.add(folder.name)
        except OSError:
            continue
    return found
