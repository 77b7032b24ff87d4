"""A sandbox in a container of Docker or podman.

Owns: the container's flags, its start, its end, its snapshots.
Does not own: the agent's protocol (line.py), images without Python (bare.py).
"""

import json
import time
from typing import Any

from claw.sdk.sandbox import agent, engine, fence, owner, reaper
from claw.sdk.sandbox.bare import LEASH, Bare
from claw.sdk.sandbox.line import EngineChannel, Line, LineLost
from claw.sdk.sandbox.program import LOAD, program
from claw.sdk.sandbox.session import Session
from claw.sdk.sandbox.spec import SandboxError, Spec

OPEN_S = 60.0
REMOVE_S = 20.0
START = 'command -v python3 >/dev/null 2>&1 && exec python3 -X utf8 -I -S -c "$1"; exec sh -c "$2"'

_without_python: set[str] = set()
"""images of this process whose sandboxes are opened without trying"""


class Container(Session):
    """The `Sandbox` of Docker and podman."""

    _id = ""
    _is_fenced = False

    @property
    def id(self) -> str:
        """The engine's id of the container."""
        return self._id

    def _open(self) -> None:
        reaper.reap_once()
        with engine.starting:
            if self.spec.image in _without_python or not self._start(warm=True):
                _without_python.add(self.spec.image)
                self._start(warm=False)

    def _start(self, *, warm: bool) -> bool:
        """Start a container; False, and nothing is left, when `warm` needs Python and has none."""
        api, spec = engine.api(), self.spec
        text = program(spec)
        is_up = False
        try:
            network = "none"
            if spec.network == "fenced":
                network, self._is_fenced = fence.join(), True
            with engine.speaking("opening a sandbox", spec.image):
                self._id = api.create_container(
                    **_flags(spec, warm, len(text)),
                    host_config=api.create_host_config(**_limits(spec, warm), network_mode=network),
                )["Id"]
                if not warm:
                    _make_workdir(api, self._id, spec)
                attached = api.attach_socket(
                    self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
                channel = EngineChannel(attached)
                api.start(self._id)
            end = time.monotonic() + OPEN_S
            line = Line(channel)
            if warm:
                channel.send(text, end)
            is_up = line.hello(end) is warm
            self._line = line if warm else Bare(self._id, spec.user, channel)
        except LineLost as error:
            raise SandboxError("the sandbox did not start", found=str(error),
                               do="an image needs at least /bin/sh") from error
        finally:
            if not is_up:
                self.close()
        return is_up

    def snapshot(self, name: str = "") -> str:
        """Keep the files as an image; see `Sandbox.snapshot`."""
        repository, _, tag = name.partition(":")
        kept = "" if name else owner.me()
        with self._asking(), engine.speaking("a snapshot"):
            made: str = engine.api().commit(
                self._id, repository or None, tag or None,
                changes=[f'LABEL {owner.OWNER}=""',  # one each: podman reads no further
                         f"LABEL {owner.SNAPSHOT}={json.dumps(kept)}"])["Id"]
        if not name:
            reaper.remove_at_exit()
        return name or made

    def _end(self) -> None:
        if self._id:
            remove(self._id)
        if self._is_fenced:
            self._is_fenced = False
            fence.leave()


def remove(container_id: str) -> None:
    """Remove a container, which may be going by itself at this moment."""
    import docker

    end, said = time.monotonic() + REMOVE_S, ""
    with engine.speaking("removing a sandbox"):
        while time.monotonic() < end:
            try:
                engine.api().remove_container(container_id, force=True, v=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                # 409: its removal is under way; podman's 500: it stopped at this moment
                if error.status_code not in (409, 500):
                    raise
                said = str(error.explanation)
            time.sleep(0.02)
    raise SandboxError("a sandbox was not removed", found=f"{container_id}: {said}",
                       do=f"docker rm -f {container_id[:12]}")


def _flags(spec: Spec, warm: bool, num_bytes: int) -> dict[str, Any]:
    env = {"CLAW_BYTES": str(num_bytes), "CLAW_LIFETIME": str(int(spec.lifetime_s))}
    if not warm:
        env |= spec.env  # the agent sets them itself
    return {
        "image": spec.image, "entrypoint": ["/bin/sh", "-c", START if warm else LEASH, "claw"],
        "command": [LOAD, LEASH], "environment": env, "user": "0:0", "stdin_open": True,
        "labels": owner.labels(spec.lifetime_s), "stop_signal": "SIGKILL", "hostname": "sandbox",
        "healthcheck": {"test": ["NONE"]},
    }


def _limits(spec: Spec, warm: bool) -> dict[str, Any]:
    from docker.types import Ulimit

    def limit(name: str, value: int) -> Any:
        return Ulimit(name=name, soft=value, hard=value)

    own = [*agent.OWN, "CHOWN"] if warm else []
    return {
        "runtime": spec.runtime or None,
        "mem_limit": f"{spec.memory_mb}m", "memswap_limit": f"{spec.memory_mb}m",
        "nano_cpus": int(spec.cpus * 1e9), "pids_limit": spec.pids,
        "cap_drop": ["ALL"], "cap_add": sorted({*own, *spec.capabilities}),
        "security_opt": ["no-new-privileges"], "init": False, "auto_remove": True,
        "tmpfs": {"/tmp": f"size={spec.tmpfs_mb}m,mode=1777,exec"}, "shm_size": "64m",
        "ulimits": [limit("core", 0), limit("nofile", 4096), limit("fsize", spec.file_mb << 20)],
        "log_config": {"type": "none", "config": {}},
        "binds": [f"{m.source}:{m.target}:{'rw' if m.writable else 'ro'}" for m in spec.mounts],
    }


def _make_workdir(api: Any, container_id: str, spec: Spec) -> None:
    """What the agent does itself, for an image that cannot run it."""
    import io
    import tarfile

    import docker

    try:
        api.get_archive(container_id, spec.workdir)
    except docker.errors.NotFound:
        uid = spec.user.partition(":")[0]
        info = tarfile.TarInfo(spec.workdir.strip("/"))
        info.type, info.mode = tarfile.DIRTYPE, 0o755 if uid.isdigit() else 0o777
        info.uid = info.gid = int(uid) if uid.isdigit() else 0
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.addfile(info)
        api.put_archive(container_id, "/", data.getvalue())
