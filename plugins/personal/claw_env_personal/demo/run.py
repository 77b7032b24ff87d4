"""Start `claw train --plugin personal` as a person would, and stop it.

Owns: the process and where it listens. Talks to it only over HTTP.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 120.0
SIDE = {"x-turn-type": "side"}
"""header of requests that measure: answered, never trained"""


class DemoError(RuntimeError):
    """The demo cannot go on; the message says where to look."""


@dataclass
class Run:
    """A running claw."""

    folder: Path
    process: subprocess.Popen[bytes]
    client: OpenAI
    model: str

    def status(self) -> dict[str, Any]:
        """What `/v1/status` says: version, turns by state, trainer."""
        return self.client.get("/status", cast_to=dict[str, Any])

    def wait_idle(self, timeout_s: float = 300.0) -> None:
        """Wait until every judged turn is learned and the newest version serves."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and not self._is_idle():
            self.check()
            time.sleep(1.0)

    def _is_idle(self) -> bool:
        status = self.status()
        turns, trainer = status.get("turns", {}), status.get("trainer", {})
        is_learning = trainer.get("state") == "training" or any(
            turns.get(state) for state in ("open", "judging", "queued")
        )
        return not is_learning and status.get("served_version") == status.get("version")

    def check(self) -> None:
        """Raise when the run has ended."""
        if self.process.poll() is not None:
            raise DemoError(f"the run ended early; see {self.folder}/logs and {self.folder}.log")

    def stop(self) -> None:
        """End the run; like Ctrl-C, but also heard where a shell has SIGINT ignored."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


def start(folder: Path, settings: Path, overrides: list[str], model: str) -> Run:
    """Start a run in `folder` and wait until it answers."""
    command = [
        sys.executable, "-m", "claw", "train", str(settings), *overrides, "--plugin", "personal",
        "--model", model, f"runs='{folder.parent}'", f"name='{folder.name}'", "serve.port=0",
    ]
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True,
                                   env={**os.environ, "PYTHONUNBUFFERED": "1"})
    address = _wait_for_address(folder, process, log)
    key = (folder / "api_key").read_text().strip()
    client = OpenAI(base_url=f"{address}/v1", api_key=key, timeout=600, max_retries=2)
    return Run(folder, process, client, client.models.list().data[0].id)


def _wait_for_address(folder: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    ready, until = folder / "specs" / "runner.ready", time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise DemoError(f"claw train ended with code {process.returncode}:\n"
                            + log.read_text(errors="replace")[-2000:])
        if ready.exists() and "base URL" in log.read_text(errors="replace"):
            return str(json.loads(ready.read_text())["address"])
        time.sleep(0.3)
    process.kill()
    raise DemoError(f"claw train did not come up within {START_TIMEOUT_S:g} s; see {log}")
