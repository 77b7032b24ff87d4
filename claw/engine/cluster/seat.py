"""A seat on a node of the cluster: it holds one process of a run, as the launcher does at home.

Owns: the process, its folder, its own pair of keys, the end of both.
Does not own: which node that is (Ray), when it ends or starts again (the launcher).

The secret key is made here and never travels: the launcher gets the public one and admits it. A
process whose seat is gone gets SIGTERM, and one whose node is gone is gone too.
"""

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from claw import config as settings
from claw.engine import models, wire
from claw.engine.launch import Child, environment
from claw.engine.scratch import Scratch

PREFIX = "claw-seat-"
MAX_LOG = 256 * 1024
"""bytes of a log in one answer"""


class Seat:
    """Runs in a process of Ray's. Its methods take and return plain values only."""

    def __init__(self) -> None:
        self._scratch = Scratch(PREFIX)
        self._child: Child | None = None

    def enrol(self, server: bytes) -> dict[str, Any]:
        """Make a pair of keys for a process here; say where this is, and the public key."""
        import ray

        public = wire.make_client(self._scratch.path / "keys", server)
        return {"node": ray.get_runtime_context().get_node_id(), "public": public,
                "host": ray.util.get_node_ip_address(), "pid": os.getpid()}

    def start(self, name: str, module: str, spec: str) -> int:
        """Start the process; return its pid on this node."""
        folder = self._scratch.path
        values = json.loads(spec)
        values["launcher"] = os.getpid()
        values["run_dir"] = str(folder)
        values["config"]["wire"]["keys"] = str(folder / "keys")
        if "model_dir" in values and not Path(values["model_dir"]).is_dir():
            values["model_dir"] = str(models.resolve(values["config"]["model"]))
        if values.get("ready"):
            values["ready"] = str(self._ready)
        file = folder / "spec.json"
        file.write_text(json.dumps(values), encoding="utf-8")
        env = environment(settings.parse(values["config"]), name)
        self._child = Child(name, module, file, folder / "log", (), env)
        self._child.start()
        assert self._child.popen is not None, "it was started"
        return self._child.popen.pid

    @property
    def _ready(self) -> Path:
        return self._scratch.path / "ready"

    def look(self, offset: int, dead_after_s: float) -> dict[str, Any]:
        """Say how the process is, and its log from `offset` on; kill it if it hangs."""
        child = self._child
        assert child is not None and child.popen is not None, "start() comes first"
        child.kill_if_hung(dead_after_s)
        code = child.popen.poll()  # before the log is read: what an ended one said is in it
        with child.log.open("rb") as file:
            file.seek(offset)
            said = file.read(MAX_LOG)
        ready = self._ready.read_text() if self._ready.exists() else ""
        return {"code": code, "log": said, "ready": ready}

    def signal(self, number: int) -> None:
        child = self._child
        if child is not None and child.popen is not None and child.popen.poll() is None:
            child.popen.send_signal(number)

    def end(self) -> None:
        """Kill the process and what it started, and remove the folder."""
        child = self._child
        if child is not None and child.popen is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.popen.pid, signal.SIGKILL)
            with contextlib.suppress(Exception):
                child.popen.wait(5.0)
            child.close()
        self._scratch.close()
