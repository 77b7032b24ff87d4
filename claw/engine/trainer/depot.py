"""Versions for workers on other hosts: any piece of any file of a version, on request.

Owns: the socket, the checks of what is asked, reading the piece.
Does not own: what a version is (engine.versions), which pieces a worker still lacks (worker.pull).

A thread of its own, so that a step never holds up a transfer. No torch here.
"""

import logging
import re
import threading
from pathlib import Path
from typing import Any

import zmq

from claw.engine import tensors, versions, wire
from claw.engine.wire import Message
from claw.errors import ClawError, WireError

log = logging.getLogger(__name__)

MAX_PIECE = 8 * 1024 * 1024
"""bytes of one answer"""
POLL_MS = 200
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")


class Depot:
    """Answers `piece` questions until it is closed."""

    def __init__(self, folder: Path, address: str, keys: wire.Keys | None = None) -> None:
        """`folder` holds <owner>/<adapter>/<number>/."""
        self.folder = folder
        self._context = zmq.Context()
        self._socket = wire.open_socket(self._context, zmq.ROUTER, address, bind=True, keys=keys)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="depot", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=5.0)
        self._context.destroy(linger=0)

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._socket.poll(POLL_MS):
                continue
            peer, *frames = self._socket.recv_multipart()
            try:
                answer = self.answer(wire.decode(frames))
            except (ClawError, OSError, TypeError, ValueError) as error:
                answer = Message("error", _id(frames), {"error": str(error)[:500]})
            try:
                self._socket.send_multipart([peer, *wire.encode(answer)], zmq.DONTWAIT)
            except zmq.ZMQError as error:  # it asks again
                log.warning("a piece is not sent: %s", error)

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
        names = [str(message[n]) for n in ("owner", "adapter", "file")]
        if not all(_NAME.fullmatch(name) for name in names):
            raise WireError(f"no such version or file: {names}")
        folder = self.folder / names[0] / names[1] / str(int(message["number"]))
        if names[2] == versions.MANIFEST:
            return folder / names[2]
        if names[2] not in versions.read_manifest(folder).files:
            raise WireError(f"the version has no file {names[2]!r}")
        return folder / names[2]


def _bytes(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, np.uint8)


def _id(frames: list[bytes]) -> str:
    try:
        return wire.decode(frames).id
    except WireError:
        return ""
