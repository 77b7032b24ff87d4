"""A worker process and the actor it talks to: real sockets, real messages."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import zmq

from claw.engine import wire
from claw.engine.wire import Message
from claw.records import Sampling, Version


class FakeActor:
    """Binds the actor's and the trainer's sockets in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = zmq.Context()
        self.addresses = {n: f"ipc://{folder}/{n}" for n in ("actor", "versions")}
        self.router = wire.open_socket(
            self.context, zmq.ROUTER, self.addresses["actor"], bind=True)
        self.pub = wire.open_socket(self.context, zmq.PUB, self.addresses["versions"], bind=True)
        self.worker = b""
        self.inbox: list[Message] = []
        self.process: subprocess.Popen | None = None

    def start(
        self, model_dir: Path, config: dict, name: str = "worker-0", timeout_s: float = 90.0
    ) -> Message:
        """Start a worker process and wait for its hello."""
        spec = self.folder / "spec.json"
        spec.write_text(json.dumps({"config": config, "model_dir": str(model_dir), "name": name,
                                    **self.addresses}))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "claw.engine.worker", "--spec", str(spec)],
            stderr=(self.folder / "log").open("ab"))
        return self.wait("worker.hello", timeout_s=timeout_s)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def send(self, message: Message) -> None:
        self.router.send_multipart([self.worker, *wire.encode(message)])

    def send_raw(self, *frames: bytes) -> None:
        self.router.send_multipart([self.worker, *frames])

    def announce(self, version: Version) -> None:
        message = wire.record_message("version.announce", version)
        self.pub.send_multipart([b"version", *wire.encode(message)])

    def receive(self, timeout_s: float) -> None:
        if self.router.poll(timeout_s * 1000):
            self.worker, *frames = self.router.recv_multipart()
            self.inbox.append(wire.decode(frames))

    def wait(self, type: str, id: str = "", timeout_s: float = 30.0, **fields) -> Message:
        """Return (and remove) the first message of this type, id and these fields."""
        until = time.monotonic() + timeout_s
        while True:
            for message in self.inbox:
                if message.type == type and message.id == id and (
                    fields.items() <= message.fields.items()
                ):
                    self.inbox.remove(message)
                    return message
            assert time.monotonic() < until, (
                f"no {type} {id}; came {[(m.type, m.id) for m in self.inbox[-5:]]}; {self.log}")
            assert self.process is None or self.process.poll() is None, self.log
            self.receive(0.2)

    def generate(
        self, id: str, prompt, deadline_s: float = 60.0, stop_ids=(), session: str = "", **sampling
    ) -> None:
        sampling, _ = wire.pack(Sampling(**{"max_tokens": 12, "ignore_eos": True} | sampling))
        self.send(Message("generate", id, {
            "sampling": sampling, "stop_ids": list(stop_ids), "session": session,
            "owner": "default", "adapter": "default", "deadline_s": deadline_s,
        }, {"prompt_ids": np.array(list(prompt), np.int32)}))

    def reply(self, id: str, end: str = "generate.done", timeout_s: float = 60.0):
        """Wait for the end of a request; return (its chunks, its end)."""
        last = self.wait(end, id, timeout_s)
        chunks = [m for m in self.inbox if m.type == "generate.chunk" and m.id == id]
        self.inbox = [m for m in self.inbox if m not in chunks]
        return chunks, last

    def arrays(self, id: str, end: str = "generate.done", timeout_s: float = 60.0):
        """Wait for the end of a request; return (its arrays, its end)."""
        chunks, last = self.reply(id, end, timeout_s)
        at = 0
        for chunk in chunks:
            assert chunk["start"] == at, "chunks come in order, none twice"
            at += len(chunk.arrays["ids"])
        names = chunks[0].arrays if chunks else ()
        return {n: np.concatenate([c.arrays[n] for c in chunks]) for n in names}, last

    def ids(self, id: str) -> list[int]:
        return [int(i) for c in self.reply(id)[0] for i in c.arrays["ids"]]

    def stop_listening(self) -> None:
        self.router.close(0)
        self.pub.close(0)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.stop_listening()
        self.context.destroy(linger=0)
