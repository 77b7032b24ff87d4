"""Versions for workers: any piece of any file of one, or a broadcast of its tensors, on request.

Owns: the socket, the checks of what is asked, reading the piece.
Does not own: what a version is (engine.versions), which pieces a worker still lacks (worker.pull),
a broadcast (broadcasts).

A thread of its own, so that a step never holds up a transfer. No torch here.
"""

import logging
import re
import threading
from pathlib import Path
from typing import Any

import zmq

from claw.engine import tensors, versions, wire
from claw.engine.trainer.broadcasts import Broadcasts
from claw.engine.wire import Message
from claw.errors import ClawError, WireError

log = logging.getLogger(__name__)

MAX_PIECE = 8 * 1024 * 1024
"""bytes of one answer"""
POLL_MS = 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


class Depot:
    """Answers questions for pieces and broadcasts until it is closed."""

    def __init__(
        self, folder: Path, address: str, keys: wire.Keys | None = None, device: str = "auto"
    ) -> None:
        """`folder` holds <owner>/<adapter>/<number>/; NCCL sends from `device`."""
        self.folder = folder
        self._context = zmq.Context()
        self._socket = wire.open_socket(self._context, zmq.ROUTER, address, bind=True, keys=keys)
        self.broadcasts = Broadcasts(self._context, _host(address), device)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="depot", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5.0)
        self.broadcasts.close()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._socket, self.broadcasts.socket):
            poller.register(socket, zmq.POLLIN)
        while not self._closing.is_set():
            poller.poll(POLL_MS)
            if self._socket.poll(0):
                self._take(*self._socket.recv_multipart())
            for peer, frames in self.broadcasts.answers():
                self._send(peer, frames)

    def _take(self, peer: bytes, *frames: bytes) -> None:
        try:
            message = wire.decode(list(frames))
            if message.type == "broadcast":
                self.broadcasts.begin(peer, message, self._version(message))
            elif message.type in ("broadcast.bucket", "broadcast.end"):
                self.broadcasts.forward(message)
            else:
                self._send(peer, wire.encode(self.answer(message)))
        except (ClawError, OSError, TypeError, ValueError) as error:
            answer = Message("error", _id(list(frames)), {"error": str(error)[:500]})
            self._send(peer, wire.encode(answer))

    def _send(self, peer: bytes, frames: list[Any]) -> None:
        try:
            self._socket.send_multipart([peer, *frames], zmq.DONTWAIT)
        except zmq.ZMQError as error:  # it asks again
            log.warning("an answer is not sent: %s", error)

    def answer(self, message: Message) -> Message:
        """The piece that is asked for; ClawError or OSError when there is none."""
        if message.type != "piece":
            raise WireError(f"the depot knows no message of type {message.type!r}")
        path = self._path(message)
        offset, size = int(message["offset"]), int(message["size"])
        if offset < 0 or not 0 < size <= MAX_PIECE:
            raise WireError(f"a piece has 1 to {MAX_PIECE} bytes; {size} at {offset} were asked")
        with path.open("rb") as file:
            total = file.seek(0, 2)
            file.seek(offset)
            raw = file.read(size)
        return Message("piece", message.id, {
            "file": path.name, "offset": offset, "total": total, "checksum": tensors.checksum(raw),
        }, {"raw": _bytes(raw)})

    def _path(self, message: Message) -> Path:
        folder, file = self._version(message), str(message["file"])
        if file != versions.MANIFEST and file not in versions.read_manifest(folder).files:
            raise WireError(f"the version has no file {file!r}")
        return folder / file

    def _version(self, message: Message) -> Path:
        names = [str(message[n]) for n in ("owner", "adapter")]
        if not all(_NAME.fullmatch(name) for name in names):
            raise WireError(f"no such version: {names}")
        return self.folder / names[0] / names[1] / str(int(message["number"]))


def _host(address: str) -> str:
    """Where senders listen: beside the depot's own socket; an empty host stands for everywhere."""
    if not address.startswith("tcp://"):
        return "127.0.0.1"
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return "" if host in ("*", "0.0.0.0") else host


def _bytes(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, np.uint8)


def _id(frames: list[bytes]) -> str:
    try:
        return wire.decode(frames).id
    except WireError:
        return ""
