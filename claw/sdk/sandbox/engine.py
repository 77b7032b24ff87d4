"""The container engine: found, asked, and told who owns what.

Owns: where the engine's socket is, one client per process, and the errors when there is none.
Does not own: containers (container.py) or what others left behind (reaper.py).
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw.sdk.sandbox.spec import BASE_IMAGE, SandboxError

if TYPE_CHECKING:
    import docker

CALL_S = 60.0
"""what the engine may take for one call; the streams of commands have their own deadlines"""
MAX_CONNECTIONS = 64
STARTS_AT_ONCE = 4
"""more only make each other slower: starting is work of the processor"""

starting = threading.BoundedSemaphore(STARTS_AT_ONCE)


def addresses() -> Iterator[str]:
    """Where an engine may answer, in the order of asking."""
    if said := os.environ.get("DOCKER_HOST"):
        yield said
        return
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    home = Path.home()
    for path in (
        "/var/run/docker.sock", f"{runtime}/docker.sock", f"{home}/.docker/run/docker.sock",
        f"{home}/.colima/default/docker.sock", f"{runtime}/podman/podman.sock",
        "/run/podman/podman.sock",
    ):
        if Path(path).exists():
            yield f"unix://{path}"


@cache
def _client(pid: int) -> "docker.DockerClient":
    """The client of this process; a fork gets its own."""
    try:
        import docker
    except ImportError:
        raise SandboxError(
            "the Docker SDK for Python is not installed", do="pip install 'claw-rl[sandbox]'",
        ) from None
    tried = []
    for address in addresses():
        try:
            return docker.DockerClient(base_url=address, timeout=int(CALL_S),
                                       max_pool_size=MAX_CONNECTIONS, version="auto")
        except docker.errors.DockerException as error:
            tried.append(f"{address}: {_short(error)}")
    raise SandboxError(
        "no container engine answers", found="; ".join(tried) or "no socket of Docker or podman",
        allowed="Docker, or podman's socket; DOCKER_HOST names another one",
        do="install and start Docker (https://docs.docker.com/engine/install), or from a checkout "
           "of claw: tools/docker.sh",
    )


def client() -> "docker.DockerClient":
    """Return the engine's client; SandboxError when there is no engine."""
    return _client(os.getpid())


def api() -> Any:
    """Return the client's one-call-each interface."""
    return client().api


def version() -> str:
    """Return the engine's name and version."""
    said = client().version()
    parts = said.get("Components") or [{}]
    return f"{parts[0].get('Name', 'Engine')} {said.get('Version', '')}"


@contextmanager
def speaking(what: str, image: str = "") -> Iterator[None]:
    """Turn the SDK's errors into one that says what failed."""
    import docker
    import requests

    try:
        yield
    except docker.errors.ImageNotFound:
        do = "tools/docker.sh" if image == BASE_IMAGE else f"docker pull {image}"
        raise SandboxError(
            "the engine has no such image", found=image, do=f"{do}; claw itself never pulls",
        ) from None
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise SandboxError(f"{what} failed", found=_short(error)) from error


def _short(error: Exception) -> str:
    text = str(getattr(error, "explanation", None) or error)
    return text if len(text) < 500 else text[:500] + "..."
