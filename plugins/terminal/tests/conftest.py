"""Fixtures of the plugin's tests: task folders, and episodes on the real engine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from claw_env_terminal.env import TerminalEnv
from claw_env_terminal.settings import TerminalConfig
from claw_env_terminal.tasks import of_path

TOML = """
[agent]
user = "{agent}"
[verifier]
user = "{verifier}"
timeout_sec = 30
{more}
[environment]
docker_image = "claw/base:bookworm"
network_mode = "no-network"
workdir = "{workdir}"
"""
SOLVED = 'if [ "$(cat answer.txt 2>/dev/null)" = 42 ]; then r=1; else r=0; fi\n' \
    "echo $r > /logs/verifier/reward.txt\n"
"""tests that want 42 in answer.txt"""


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a Harbor task folder on the base image."""
    def make(
        test: str = SOLVED, *, agent: str = "1000:1000", verifier: str = "root", more: str = "",
        workdir: str = "/work", **files: str,
    ) -> Path:
        made = tmp_path / f"task{len(list(tmp_path.iterdir()))}"
        toml = TOML.format(agent=agent, verifier=verifier, more=more, workdir=workdir)
        for name, text in {"task.toml": toml, "instruction.md": "Write 42 into answer.txt.\n",
                           "tests/test.sh": test, "tests/secret.txt": "42\n", **files}.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return made

    return make


@pytest.fixture
def episode(needs_docker: None) -> Iterator[Callable[..., TerminalEnv]]:
    """Start an episode of a task folder; it is closed after the test."""
    with ExitStack() as stack:
        def start(path: Path, **settings: Any) -> TerminalEnv:
            config = TerminalConfig(**settings)
            [task] = of_path(path, config) or []
            env = TerminalEnv(task, config)
            stack.callback(env.close)
            env.start()
            return env

        yield start


@pytest.fixture
def run() -> Callable[..., str]:
    """Run a command as the agent does; return what it printed."""
    def act(env: TerminalEnv, command: str, **options: Any) -> str:
        return env._tools.command(command, **options).text

    return act
