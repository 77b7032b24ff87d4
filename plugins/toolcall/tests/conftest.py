"""Fixtures of the plugin's tests: settings, episodes with scripted replies, real tool servers."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from claw_env_toolcall.settings import ToolcallConfig
from played import Played, play

SERVER = Path(__file__).parent / "tool_server.py"


@pytest.fixture
def episode() -> Callable[..., Played]:
    """Play an episode: `episode(reply, ..., settings={...})`."""

    def run(*replies: Any, settings: dict[str, Any] | None = None, **rest: Any) -> Played:
        config = ToolcallConfig(**(settings or {}))
        return asyncio.run(asyncio.wait_for(play(*replies, config=config, **rest), 120))

    return run


@pytest.fixture
def stdio_server() -> dict[str, Any]:
    """Settings of a real MCP server that each episode starts."""
    return {"command": sys.executable, "args": (str(SERVER), "stdio")}


@pytest.fixture(scope="session")
def http_server() -> Iterator[str]:
    """A real MCP server over streamable HTTP on loopback; returns its url."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(SERVER), "http", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and server.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.terminate()
        server.wait(20)
