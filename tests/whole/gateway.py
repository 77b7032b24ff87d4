"""The real OpenClaw for tests: its gateway as a process, asked over its own HTTP endpoint.

Owns: its configuration (the block that claw prints, and what makes it quiet), start, stop.
Does not own: what is said and checked.
"""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
from system import until

START_S = 400.0
TURN_S = 240.0
TOKEN = "token-of-the-tests"


class Gateway:
    """`start()` before use, `stop()` at the end."""

    def __init__(self, program: Path, folder: Path, block: dict[str, Any]) -> None:
        self.program, self.folder = program, folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self.port = _free_port()
        self.config = folder / "openclaw.json"
        self.block = folder / "block.json"
        self.block.write_text(json.dumps(block))
        self.config.write_text(json.dumps(block | {
            "gateway": {
                "mode": "local", "port": self.port, "bind": "loopback",
                "auth": {"mode": "token", "token": TOKEN},
                "http": {"endpoints": {"chatCompletions": {"enabled": True}}},
            },
            "agents": {"defaults": block["agents"]["defaults"] | {
                "workspace": str(self.workspace), "skipBootstrap": True,
                "heartbeat": {"every": "30s", "target": "none"}, "sandbox": {"mode": "off"},
            }},
        }))
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run one of its commands to the end."""
        return subprocess.run(
            self._command(*words), env=self._environment(config or self.config), text=True,
            capture_output=True, timeout=120, cwd=self.folder, check=False,
        )

    def start(self) -> "Gateway":
        with (self.folder / "gateway.log").open("wb") as out:
            self.process = subprocess.Popen(
                self._command("gateway", "run"), env=self._environment(self.config), stdout=out,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder,
                start_new_session=True,
            )
        assert until(self._is_ready, START_S, 0.5), self.log()[-3000:]
        return self

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        if self.process is None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def say(self, words: str, session: str = "agent:main:test") -> str:
        """Say something to the agent; return what it answered in the end."""
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/v1/chat/completions", timeout=TURN_S,
            headers={"authorization": f"Bearer {TOKEN}", "x-openclaw-session-key": session},
            json={"model": "openclaw:main", "messages": [{"role": "user", "content": words}]},
        )
        assert answer.is_success, f"{answer.text}\n{self.log()[-3000:]}"
        return str(answer.json()["choices"][0]["message"]["content"])

    def log(self) -> str:
        return (self.folder / "gateway.log").read_text(encoding="utf-8", errors="replace")

    def _command(self, *words: str) -> list[str]:
        program = self.program / "node_modules" / "openclaw" / "openclaw.mjs"
        return [str(self.program / "bin" / "node"), str(program), *words]

    def _environment(self, config: Path) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{self.program / 'bin'}:{os.environ['PATH']}", "HOME": str(home),
            "OPENCLAW_CONFIG_PATH": str(config), "OPENCLAW_STATE_DIR": str(self.folder / "state"),
            "NO_COLOR": "1", "OPENCLAW_NO_RESPAWN": "1",
        }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
