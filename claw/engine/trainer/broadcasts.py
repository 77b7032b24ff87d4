"""Broadcasts of versions to engines, each by a process of its own.

Owns: starting a sender for a worker that asks, passing words between the two, the sender's end.
Does not own: the group and what is sent (sender), which folders there are (depot).

A process each, for a collective that waits for its peer cannot be taken back, only killed. So no
worker ever waits for another one, and the trainer's thread for none. No torch here.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from claw.engine import process, versions, wire
from claw.engine.scratch import Scratch
from claw.engine.wire import Message
from claw.errors import WireError

MAX_AT_ONCE = 64
MAX_PATIENCE_S = 600.0
MAX_WORLD = 1024
BACKENDS = ("gloo", "nccl")
SILENT = 6
"""a broadcast of which nothing is heard for so many times its patience is ended"""
END_S = 5.0
"""for a sender to end once it was told to, or said that it does; then it is killed"""
START_S = 60.0
"""more, for a sender to start"""
_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")


@dataclass
class Running:
    """One broadcast."""

    peer: bytes
    """the worker, as the depot's socket knows it"""
    popen: subprocess.Popen[bytes]
    patience_s: float
    heard: float = field(default_factory=time.monotonic)
    has_ended: bool = False
    """it said why it ends, or was told to"""


class Broadcasts:
    """The senders of one depot; used by its thread."""

    module = "claw.engine.trainer.sender"

    def __init__(self, context: zmq.Context, host: str, device: str) -> None:
        self.host, self.device = host, device
        self.scratch = Scratch("claw-send-")
        self.address = f"ipc://{self.scratch.path}/senders"
        self.socket = wire.open_socket(context, zmq.ROUTER, self.address, bind=True)
        self.running: dict[str, Running] = {}

    def begin(self, peer: bytes, message: Message, folder: Path) -> None:
        """Start a sender of the version in `folder`; its answer comes by itself."""
        world, patience_s = int(message["world"]), float(message["patience_s"])
        backend, id = str(message["backend"]), message.id
        if not _ID.fullmatch(id) or id in self.running:
            raise WireError(f"not the id of a new broadcast: {id[:80]!r}")
        if backend not in BACKENDS or not 2 <= world <= MAX_WORLD or not (
                0 < patience_s <= MAX_PATIENCE_S):
            raise WireError(f"no such broadcast: backend {backend[:20]!r}, world {world}, "
                            f"patience_s {patience_s}")
        versions.read_manifest(folder, str(message["checksum"]))
        if len(self.running) >= MAX_AT_ONCE:
            raise WireError(f"{MAX_AT_ONCE} broadcasts run already")
        spec = self.scratch.path / f"{id}.json"
        spec.write_text(json.dumps({
            "id": id, "link": self.address, "folder": str(folder), "parent": os.getpid(),
            "checksum": str(message["checksum"]), "host": self.host, "backend": backend,
            "device": self.device, "world": world, "patience_s": patience_s,
        }), encoding="utf-8")
        popen = subprocess.Popen(
            [sys.executable, "-m", self.module, "--spec", str(spec)], stdin=subprocess.DEVNULL,
            env=os.environ | process.ENVIRONMENT | {"OMP_NUM_THREADS": "1"})
        self.running[id] = Running(peer, popen, patience_s)

    def forward(self, message: Message) -> None:
        """Pass on what a worker says to its sender."""
        if message.id not in self.running:
            raise WireError("this broadcast has ended, or never began")
        broadcast = self.running[message.id]
        broadcast.heard = time.monotonic()
        broadcast.has_ended = broadcast.has_ended or message.type == "broadcast.end"
        self.socket.send_multipart([message.id.encode(), *wire.encode(message)], zmq.DONTWAIT)

    def answers(self) -> Iterator[tuple[bytes, list[Any]]]:
        """(worker, frames) of what senders said, and of those that ended without a word."""
        while self.socket.poll(0):
            sender, *frames = self.socket.recv_multipart()
            if (broadcast := self.running.get(sender.decode("utf-8", "replace"))) is not None:
                broadcast.heard = time.monotonic()
                broadcast.has_ended = broadcast.has_ended or wire.decode(frames).type == "error"
                yield broadcast.peer, frames
        for id, broadcast in list(self.running.items()):
            if why := self._end_of(broadcast):
                self._remove(id)
                if not broadcast.has_ended:
                    yield broadcast.peer, wire.encode(Message("error", id, {"error": why}))

    def _end_of(self, broadcast: Running) -> str:
        """Why it is over; empty while it goes on."""
        if broadcast.popen.poll() is not None and not self.socket.poll(0):
            return f"the sender died with exit code {broadcast.popen.returncode}"
        silence_s = time.monotonic() - broadcast.heard
        if broadcast.has_ended and silence_s > END_S:
            return "it has ended"
        if silence_s > START_S + SILENT * broadcast.patience_s:
            return f"nothing was heard of the broadcast for {silence_s:.0f} s"
        return ""

    def _remove(self, id: str) -> None:
        popen = self.running.pop(id).popen
        popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            popen.wait(5.0)
        (self.scratch.path / f"{id}.json").unlink(missing_ok=True)

    def close(self) -> None:
        for id in list(self.running):
            self._remove(id)
        self.scratch.close()
