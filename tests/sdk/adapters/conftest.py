"""OpenEnv servers for tests."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

START_S = 120.0
# the peers of an actor process, for episodes that reach its journal
sys.path.insert(0, str(Path(__file__).parents[2] / "engine" / "actor"))


@pytest.fixture(scope="session")
def served(old_verifiers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of tests/sdk/adapters/packages/clawtest_openenv.py; a server at each path."""
    log = tmp_path_factory.mktemp("openenv") / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as out:
        command = [old_verifiers, "-m", "clawtest_openenv", str(port)]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        until = time.monotonic() + START_S
        while time.monotonic() < until and process.poll() is None and not _answers(port):
            time.sleep(0.1)
        assert process.poll() is None, log.read_text()
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/echo/health", timeout=2).is_success
    except httpx.HTTPError:
        return False
