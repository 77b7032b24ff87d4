"""A trainer process, and a small actor: it leases what it is given, and remembers all it hears."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import zmq

from claw import config as settings
from claw.engine import wire
from claw.records import Sample, Update, Version, new_id


class FakeActor:
    """Answers in the caller's thread, inside `until`: nothing runs in the background."""

    def __init__(self, folder: Path) -> None:
        self.address = f"ipc://{folder}/t"
        self.announcements = f"ipc://{folder}/v"
        self.context = zmq.Context()
        self.router = wire.open_socket(self.context, zmq.ROUTER, self.address, bind=True)
        self.sub = wire.open_socket(self.context, zmq.SUB, self.announcements, bind=False)
        self.sub.setsockopt(zmq.SUBSCRIBE, b"version")
        self.heard: list[wire.Message] = []
        self.announced: list[Version] = []
        self.waiting: list[Sample] = []
        self.leases: dict[str, list[Sample]] = {}
        self.acks: dict[str, tuple[Update, Version, str]] = {}
        self.trainer = b""
        self.acknowledges = True
        self.speaks = True

    def until(self, what: Any, timeout_s: float = 120.0) -> None:
        """Serve until `what()` is true; AssertionError when it does not become so."""
        end = time.monotonic() + timeout_s
        while not what():
            assert time.monotonic() < end, f"heard only {[m.type for m in self.heard[-9:]]}"
            self.serve(0.05)

    def serve(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.sub.poll(0):
                frames = self.sub.recv_multipart()
                message = wire.decode(frames[1:])
                self.announced.append(wire.read_record(message, Version))
            if self.router.poll(int(left * 1000) + 1):
                self.trainer, *frames = self.router.recv_multipart()
                message = wire.decode(frames)
                self.heard.append(message)
                if self.speaks:
                    self._answer(message)

    def types(self) -> list[str]:
        return [m.type for m in self.heard]

    def of(self, type: str) -> list[wire.Message]:
        return [m for m in self.heard if m.type == type]

    def send(self, message: wire.Message) -> None:
        self.router.send_multipart([self.trainer, *wire.encode(message)])

    def close(self) -> None:
        self.context.destroy(linger=0)

    def _answer(self, message: wire.Message) -> None:
        if message.type == "trainer.hello":
            self._welcome(message)
        elif message.type == "lease" and self.waiting:
            size = message["max_samples"]
            batch, self.waiting = self.waiting[:size], self.waiting[size:]
            lease_id = new_id("lease")
            self.leases[lease_id] = batch
            self.send(wire.samples_message(
                "lease.samples", batch, message.id, lease_id=lease_id, dropped={"degenerate": 1}
            ))
        elif message.type == "lease":
            time.sleep(0.02)
            self.send(wire.Message("lease.empty", message.id))
        elif message.type == "lease.ack" and self.acknowledges:
            version = wire.unpack(Version, message["version"], {})
            update = wire.read_record(message, Update)
            self.acks[message["lease_id"]] = (update, version, message["why"])
            self.leases.pop(message["lease_id"], None)
            self.send(wire.Message("lease.acked", message.id))

    def _welcome(self, message: wire.Message) -> None:
        for learner in message["learners"]:
            self.leases.pop(learner["last_lease"], None)
        released = [s for batch in self.leases.values() for s in batch]
        self.waiting, self.leases = released + self.waiting, {}
        self.send(wire.Message("trainer.welcome", message.id, {"released": len(released)}))


class Process:
    """A trainer process in a run folder; with several ranks, torchrun's agent and its ranks."""

    def __init__(self, actor: FakeActor, model_dir: Path, run_dir: Path, **changes: Any) -> None:
        values = {
            "lora": {"rank": 4}, "train": {"batch_size": 4, "threads": 1, "lr": 1e-3},
            "wire": {"heartbeat_s": 0.1, "dead_after_s": 20.0}, "gate": {"max_rise": 50.0},
        } | changes
        self.spec = {
            "config": settings.resolved(settings.parse(values)), "actor": actor.address,
            "versions": actor.announcements, "model_dir": str(model_dir),
            "run_dir": str(run_dir), "resume": False,
        }
        self.run_dir = run_dir
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self, *, resume: bool = False) -> None:
        file = self.run_dir / "spec.json"
        file.write_text(json.dumps(self.spec | {"resume": resume}))
        module = "claw.engine.trainer"
        if self.spec["config"]["train"]["ranks"] > 1:
            module += ".group"
        command = [sys.executable, "-m", module, "--spec", str(file)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.run_dir / "log").open("ab") as out:
            self.popen = subprocess.Popen(command, stdout=out, stderr=out, env=env)

    def kill(self) -> None:
        os.kill(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)

    @property
    def log(self) -> str:
        return (self.run_dir / "log").read_text()
