"""A sandbox in a container: made, asked, thrown away.

Owns: the container's flags, its start, its end.
Does not own: the agent's protocol (line.py), images without Python (bare.py), files (files.py).
"""

import contextlib
import inspect
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Self

from claw.sdk.sandbox import agent, engine, owner, reaper
from claw.sdk.sandbox.files import Files
from claw.sdk.sandbox.line import EngineChannel, Line, LineLost
from claw.sdk.sandbox.spec import MAX_OUTPUT, Ran, SandboxError, Spec

OPEN_S = 60.0
MAX_STDIN = 64 << 20
LOAD = """\
import os
left, text = int(os.environ.pop("CLAW_BYTES")), b""
while left > len(text):
    text += os.read(0, left - len(text)) or os._exit(1)
exec(compile(text, "agent", "exec"))
"""
START = 'command -v python3 >/dev/null 2>&1 && exec python3 -I -S -c "$1"; exec sh -c "$2"'


class Container(Files):
    """The `Sandbox` of Docker and podman."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._lock = threading.Lock()
        self._id = ""
        self._line: Line | None = None
        with engine.starting:
            self._open()

    @property
    def id(self) -> str:
        """The engine's id of the container."""
        return self._id

    def _open(self) -> None:
        reaper.reap_once()
        api, spec = engine.api(), self.spec
        with engine.speaking("opening a sandbox", spec.image):
            self._id = api.create_container(**_flags(api, spec))["Id"]
        try:
            with engine.speaking("opening a sandbox", spec.image):
                sock = api.attach_socket(
                    self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
                channel = EngineChannel(_socket(sock), sock)
                self._line = Line(channel)
                api.start(self._id)
            channel.send(_program(spec), time.monotonic() + OPEN_S)
            self._line.hello(time.monotonic() + OPEN_S)
        except LineLost as error:
            self.close()
            raise SandboxError("the sandbox did not start", found=str(error)) from error
        except BaseException:
            self.close()
            raise

    def run(
        self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
        max_output: int = MAX_OUTPUT, cwd: str = "", env: Mapping[str, str] = {}, user: str = "",
    ) -> Ran:
        """Run a fresh process; see `Sandbox.run`."""
        if len(stdin) > MAX_STDIN:
            raise SandboxError("stdin is too long", found=f"{len(stdin)} bytes",
                               allowed=f"{MAX_STDIN}", do="write a file and read that")
        request: dict[str, Any] = {
            "argv": [] if isinstance(command, str) else list(command),
            "shell": command if isinstance(command, str) else "",
            "timeout_s": timeout_s, "max_output": max_output, "cwd": cwd or self.spec.workdir,
            "env": dict(env), "user": user or self.spec.user,
        }
        with self._lock, self._losing():
            return self._open_line().run(request, stdin)

    def sweep(self) -> None:
        """Kill what commands left behind; see `Sandbox.sweep`."""
        with self._lock, self._losing():
            self._open_line().sweep()

    def _open_line(self) -> Line:
        if self._line is None:
            raise SandboxError("the sandbox is closed", do="open another one")
        return self._line

    @contextlib.contextmanager
    def _losing(self) -> Any:
        try:
            yield
        except LineLost as error:
            self.close()
            raise SandboxError(
                "the sandbox is lost", found=str(error), do="open another one; it may have used "
                "up its memory or its lifetime, or the engine was restarted",
            ) from error

    def snapshot(self, name: str = "") -> str:
        """Keep the files as an image; see `Sandbox.snapshot`."""
        repository, _, tag = name.partition(":")
        kept = "" if name else owner.me()
        with self._lock, engine.speaking("a snapshot"):
            made: str = engine.api().commit(
                self._id, repository or None, tag or None,
                changes=[f'LABEL {owner.OWNER}="" {owner.SNAPSHOT}={json.dumps(kept)}'],
            )["Id"]
        if not name:
            reaper.remove_at_exit()
        return name or made

    def reset(self) -> None:
        """Go back to the state it was opened in: a fresh container takes this one's place."""
        self.close()
        with engine.starting:
            self._open()

    def close(self) -> None:
        """End it; twice is fine."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        if self._id:
            remove(self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 where: TracebackType | None) -> None:
        self.close()


def remove(container_id: str) -> None:
    """Remove a container that may be going by itself at this moment."""
    import docker

    with engine.speaking("removing a sandbox"):
        for _ in range(50):
            try:
                engine.api().remove_container(container_id, force=True, v=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if error.status_code != 409:  # its removal is under way
                    raise
            time.sleep(0.05)


def _flags(api: Any, spec: Spec) -> dict[str, Any]:
    return {
        "image": spec.image, "entrypoint": ["/bin/sh", "-c", START, "claw"],
        "command": [LOAD, ""], "environment": {"CLAW_BYTES": str(len(_program(spec)))},
        "user": "0:0", "stdin_open": True, "labels": owner.labels(spec.lifetime_s),
        "stop_signal": "SIGKILL", "hostname": "sandbox", "healthcheck": {"test": ["NONE"]},
        "host_config": api.create_host_config(**_limits(spec)),
    }


def _limits(spec: Spec) -> dict[str, Any]:
    from docker.types import Ulimit

    def limit(name: str, value: int) -> Any:
        return Ulimit(name=name, soft=value, hard=value)

    return {
        "network_mode": "none", "runtime": spec.runtime or None,
        "mem_limit": f"{spec.memory_mb}m", "memswap_limit": f"{spec.memory_mb}m",
        "nano_cpus": int(spec.cpus * 1e9), "pids_limit": spec.pids,
        "cap_drop": ["ALL"], "cap_add": [*agent.OWN, "CHOWN", *spec.capabilities],
        "security_opt": ["no-new-privileges"], "init": False, "auto_remove": True,
        "tmpfs": {"/tmp": f"size={spec.tmpfs_mb}m,mode=1777,exec"}, "shm_size": "64m",
        "ulimits": [limit("core", 0), limit("nofile", 4096), limit("fsize", spec.file_mb << 20)],
        "log_config": {"type": "none", "config": {}},
        "binds": [f"{m.source}:{m.target}:{'rw' if m.writable else 'ro'}" for m in spec.mounts],
    }


def _program(spec: Spec) -> bytes:
    """The agent's text with its settings, as it is sent."""
    settings = {
        "user": spec.user, "workdir": spec.workdir, "lifetime_s": spec.lifetime_s,
        "capabilities": list(spec.capabilities), "can_switch": True, "env": dict(spec.env),
    }
    return f"{_agent()}\nmain({settings!r})\n".encode()


@cache
def _agent() -> str:
    return inspect.getsource(agent)


def _socket(attached: Any) -> socket.socket:
    found: socket.socket = getattr(attached, "_sock", attached)
    return found
