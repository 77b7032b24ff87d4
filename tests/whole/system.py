"""A whole run for tests: launcher, actor, worker, trainer and runner as real processes.

Owns: starting `claw train`, asking it, stopping it, and that no process of it is left.
Does not own: talking to it (talk), what is checked.
"""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai

from claw.engine.actor.journal import Journal
from claw.errors import ClawError

SETTINGS = (
    "serve.port=0", "rollout.max_tokens=24", "worker.slots=8", "lora.rank=4",
    "train.batch_size=4", "train.max_wait_s=1.5", "train.lr=1e-4", "train.keep_versions=60",
    "wire.heartbeat_s=0.5", "serve.session_idle_s=8.0",
    "guard.flood=0",  # the same wish as often as a tiny model answers is a flood
)
START_S = 150.0
STOP_S = 60.0


class System:
    """One run folder and the launcher that holds it."""

    def __init__(self, runs: Path, model: Path, *settings: str, name: str = "whole") -> None:
        self.runs, self.run = runs, runs / name
        self.words = ["train", "--plugin", "personal", "--model", str(model),
                      f"runs='{runs}'", f"name='{name}'", *SETTINGS, *settings]
        self.output = runs / f"{name}.out"
        self.launcher: subprocess.Popen[bytes] | None = None
        self.base_url = ""
        self.extra: dict[str, str] = {}
        """of the environment that the launcher gets"""

    # --- life --------------------------------------------------------------------------------

    def start(self) -> "System":
        """Start the run and wait until it answers."""
        self.launch(*self.words)
        return self.wait_ready()

    def resume(self) -> "System":
        self.launch("train", "--resume", str(self.run))
        return self.wait_ready()

    def launch(self, *words: str) -> None:
        with self.output.open("wb") as out:
            self.launcher = subprocess.Popen(
                [sys.executable, "-m", "claw", *words], stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, cwd=self.runs, env=_environment() | self.extra,
                start_new_session=True,
            )

    def wait_ready(self) -> "System":
        assert self.launcher is not None, "launch() comes first"
        launcher = self.launcher
        until(lambda: "base URL" in self.said() or launcher.poll() is not None, START_S, 0.5)
        found = re.search(r"base URL\s+(\S+)", self.said())
        assert found, f"the run did not come up:\n{self.said()}"
        self.base_url = found[1]
        return self

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End the run, by force where it must be; nothing of it may be left."""
        if self.launcher is not None and self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.launcher.wait(STOP_S)
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.launcher is not None:
            self.launcher.wait(10)
        assert not left, f"processes were left: {left}"

    def kill(self, name: str) -> int:
        """SIGKILL one process of the run; return its pid."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def pids(self) -> dict[str, int]:
        return dict(json.loads((self.run / "run.json").read_text()).get("processes") or {})

    def processes(self) -> dict[int, str]:
        """Return what runs on this machine with this run folder on its command line."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            words = _command(folder)
            if str(self.run) in words or f"runs='{self.runs}'" in words:
                found[int(folder.name)] = words
        return found

    # --- asking ------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        return (self.run / "api_key").read_text().strip()

    def client(self, timeout: float = 120.0, key: str = "") -> openai.OpenAI:
        """The official client; it never tries again, so that every refusal is seen."""
        return openai.OpenAI(
            base_url=self.base_url, api_key=key or self.key, max_retries=0, timeout=timeout
        )

    def post(self, body: bytes | dict[str, Any]) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        return httpx.post(
            f"{self.base_url}/chat/completions", content=data, headers=headers, timeout=60
        )

    def status(self, key: str = "") -> dict[str, Any]:
        headers = {"authorization": f"Bearer {key or self.key}"}
        answer = httpx.get(f"{self.base_url}/status", headers=headers, timeout=30)
        answer.raise_for_status()
        return dict(answer.json())

    def claw(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as a person would, in another terminal."""
        return subprocess.run(
            [sys.executable, "-m", "claw", *words], capture_output=True, text=True, timeout=120,
            cwd=self.runs, env=_environment(), check=False,
        )

    # --- what it wrote -----------------------------------------------------------------------

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Ask the journal as another process."""
        with self.journal() as journal:
            return list(journal.read(sql, *values))

    def count(self, of: str) -> int:
        """Count rows, `table WHERE ...`; 0 while the journal, or its tables, are not there."""
        try:
            return int(self.rows(f"SELECT COUNT(*) FROM {of}")[0][0])
        except (ClawError, sqlite3.OperationalError):
            return 0

    def steps(self) -> int:
        """Optimiser steps whose leases are settled."""
        return self.count("leases WHERE state = 'acked'")

    @contextlib.contextmanager
    def journal(self) -> Any:
        journal = Journal(self.run, read_only=True)
        try:
            yield journal
        finally:
            journal.close()

    def metrics(self, name: str) -> list[dict[str, Any]]:
        lines = (self.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [record for record in map(json.loads, lines) if name in record]

    def settle(self, timeout_s: float = 60.0) -> None:
        """Wait until every turn is in a state that it keeps."""
        sql = "SELECT COUNT(*) FROM turns WHERE state IN ('open','waiting','judging','queued')"
        assert until(lambda: self.rows(sql)[0][0] == 0, timeout_s, 0.5), self.rows(
            "SELECT id, state, reason FROM turns WHERE state NOT IN ('trained', 'skipped')")


def until(holds: Callable[[], Any], timeout_s: float, every_s: float = 0.25) -> Any:
    """Return the first true value of `holds`, or the last false one after the time is over."""
    end = time.monotonic() + timeout_s
    while not (value := holds()) and time.monotonic() < end:
        time.sleep(every_s)
    return value


def _command(folder: Path) -> str:
    """The command line of a live process; empty for one that is gone or a zombie."""
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _environment() -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    return plain | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
