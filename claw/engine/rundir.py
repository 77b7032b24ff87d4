"""The run folder: what lies where, who holds it, and the key to the endpoint.

    runs/<name>/{config.json, run.json, api_key, journal.sqlite, metrics.jsonl,
                 logs/<process>.log, specs/<process>.json, versions/, checkpoints/}
"""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from claw import config as settings
from claw.config import RunConfig
from claw.engine import cipher, faults
from claw.errors import UsageError

FORMAT = 2
SOCKETS = "claw-"
"""how the names of socket folders begin, in the folder for temporary files"""
LEFT_S = 30.0
"""how long the processes of a launcher that was killed may take to end"""


def private(path: str, flags: int) -> int:
    """Opener of a file that is its owner's alone from its first byte on."""
    return os.open(path, flags, 0o600)


class RunDir:
    """One run folder, held by one launcher at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: IO[str] | None = None
        self.sockets = Path()

    @classmethod
    def create(cls, config: RunConfig) -> "RunDir":
        """Make a new folder named after the plugin and the time."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = config.name or f"{config.plugin_name or 'run'}-{stamp}"
        path = Path(config.runs) / name
        if (path / "config.json").exists():
            raise UsageError(
                "the run folder exists already", found=str(path),
                do=f"continue it with --resume {path}, or choose another name",
            )
        cipher.check(config.journal.key_file)
        run = cls(path)
        with _writing(path):
            run.path.mkdir(parents=True, exist_ok=True)
            run.path.chmod(0o700)
            for folder in ("logs", "specs", "versions", "checkpoints"):
                (run.path / folder).mkdir(mode=0o700, exist_ok=True)
            run.write_json("config.json", {"format": FORMAT, **settings.resolved(config)})
        return run

    @classmethod
    def open(cls, path: Path) -> tuple["RunDir", RunConfig]:
        """Open an existing folder; return it with the run's settings."""
        file = path / "config.json"
        if not file.exists():
            raise UsageError("not a run folder", found=str(path), allowed="a folder under runs/")
        values = json.loads(file.read_text(encoding="utf-8"))
        found = values.pop("format", None)
        if found != FORMAT:
            raise UsageError(
                "the run folder has another format", found=f"{path}: format {found}",
                allowed=f"format {FORMAT}", do="open it with the version of claw that made it",
            )
        return cls(path), settings.parse(values)

    @faults.around("launcher.lock")
    def hold(self) -> None:
        """Take the folder for this process; a second launcher is refused.

        The processes of a launcher hold it too (`lock`), until the last has ended: those of one
        that was killed need a moment, and none may write beside those of the next.
        """
        until = time.monotonic() + LEFT_S
        while (lock := self._try_lock()) is None:
            self._refuse_beside(until)
            time.sleep(0.2)
        self._lock = lock
        self._sweep()
        # socket paths are limited to about 100 characters: they live in a short private folder,
        # which is named before it is made, so that it is swept wherever this process is killed
        self.sockets = Path(tempfile.gettempdir()) / f"{SOCKETS}{secrets.token_hex(6)}"
        self.write_json("run.json", {"pid": os.getpid(), "sockets": str(self.sockets)})
        self.sockets.mkdir(mode=0o700)

    def _refuse_beside(self, until: float) -> None:
        """UsageError: the launcher that holds the folder lives, or its processes do not end."""
        run = self.read_json("run.json")
        if _is_alive(int(run.get("pid") or os.getpid())):
            raise UsageError(
                "another claw process runs in this folder", found=str(self.path),
                do="stop it first, or start a new run",
            )
        if time.monotonic() > until:
            left = " ".join(map(str, _children(self.path)))
            raise UsageError(
                "processes of a launcher that is gone still run in this folder",
                found=f"{self.path}: {left}", do=f"end them: kill -9 {left}",
            )

    @property
    def lock(self) -> tuple[int, ...]:
        """The file descriptor by which a process holds the folder; empty while it is not held."""
        return (self._lock.fileno(),) if self._lock else ()

    def is_held(self) -> bool:
        """Whether a launcher runs in this folder now."""
        lock = self._try_lock()
        if lock is not None:
            lock.close()
        return lock is None

    def _try_lock(self) -> IO[str] | None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with _writing(self.path):
            lock = os.fdopen(private(str(self.path / "lock"), flags), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return None
        return lock

    def _sweep(self) -> None:
        """Remove what a killed launcher left: its sockets, and the file that names them."""
        old = Path(self.read_json("run.json").get("sockets") or "")
        if old.name.startswith(SOCKETS) and old.parent == Path(tempfile.gettempdir()):
            shutil.rmtree(old, ignore_errors=True)
        (self.path / "run.json").unlink(missing_ok=True)

    @faults.around("launcher.release")
    def release(self) -> None:
        """Give the folder back and remove the sockets."""
        if self._lock is None:
            return
        shutil.rmtree(self.sockets, ignore_errors=True)
        (self.path / "run.json").unlink(missing_ok=True)
        self._lock.close()
        self._lock = None

    def api_key(self, given: str = "") -> str:
        """Return the endpoint's key: the given one, or the run's own, made once (mode 600)."""
        file = self.path / "api_key"
        if given or not file.exists():
            key = given or f"sk-claw-{secrets.token_urlsafe(24)}"
            with open(file, "w", opener=private) as out:
                out.write(key)
        return file.read_text().strip()

    def write_json(self, name: str, value: dict[str, Any]) -> Path:
        """Write a JSON file whole: a reader sees the old one or the new one."""
        file = self.path / name
        part = file.with_suffix(".part")
        with open(part, "w", encoding="utf-8", opener=private) as out:
            json.dump(value, out, indent=2)
        part.replace(file)
        return file

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the folder; a missing one is an empty dict."""
        try:
            return dict(json.loads((self.path / name).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            "the run folder cannot be written", found=f"{path}: {error}",
            do="make it writable, free space on its disk, or choose another place (runs=DIR)",
        ) from error


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _children(path: Path) -> list[int]:
    """The processes whose spec lies in a run folder, where the system tells."""
    specs, found = f"{path / 'specs'}/".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if specs in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


def find(run: str, runs: str = "runs") -> Path:
    """Return a run folder: by path, by name under `runs`, or the newest one when empty."""
    if run and (Path(run) / "config.json").exists():
        return Path(run)
    if run and (Path(runs) / run / "config.json").exists():
        return Path(runs) / run
    known = sorted(Path(runs).glob("*/config.json"), key=lambda p: p.stat().st_mtime)
    if not run and known:
        return known[-1].parent
    raise UsageError(
        "no such run", found=run or f"nothing under {runs}/",
        allowed=", ".join(p.parent.name for p in known[-5:]) or "a folder that claw train made",
    )
