"""This side of the connection to the agent: requests out, answers in, never longer than allowed.

Owns: the framing of the engine's stream and of the agent's protocol, and the host's own deadline.
Does not own: containers, or what a request means inside (agent.py).
"""

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Protocol

from claw.sdk.sandbox import agent
from claw.sdk.sandbox.spec import Ran

BARE_HELLO = b"CLAW-BARE\n"
ENGINE_FRAME = struct.Struct(">BxxxI")
"""stream (1 stdout, 2 stderr), bytes: what the engine puts before each piece"""
GRACE_S = 10.0
"""past a command's own deadline, before the connection counts as lost"""
MAX_STDERR = 4096


class LineLost(Exception):
    """The other side is gone, or does not speak the protocol."""


class Channel(Protocol):
    """Bytes to and from the agent."""

    def send(self, data: bytes, end: float) -> None: ...

    def read(self, count: int, end: float) -> bytes: ...

    def close(self) -> None: ...


class EngineChannel:
    """The engine's attach stream: stdout and stderr come in frames."""

    def __init__(self, attached: Any) -> None:
        self._attached, self._sock = attached, socket_of(attached)
        self._raw = bytearray()
        self._out = bytearray()
        self.stderr = b""

    def send(self, data: bytes, end: float) -> None:
        """Send everything, until `end` on the monotonic clock."""
        view = memoryview(data)
        try:
            while view:
                self._sock.settimeout(_left(end))
                view = view[self._sock.send(view[: 1 << 20]):]
        except OSError as error:
            raise LineLost(str(error)) from error

    def read(self, count: int, end: float) -> bytes:
        """Return exactly `count` bytes of the agent's stdout."""
        while len(self._out) < count:
            self._sort(self._receive(end))
        data = bytes(self._out[:count])
        del self._out[:count]
        return data

    def _receive(self, end: float) -> bytes:
        try:
            self._sock.settimeout(_left(end))
            data = self._sock.recv(1 << 18)
        except OSError as error:
            raise LineLost(str(error)) from error
        if not data:
            raise LineLost(f"the stream ended {self.stderr.decode('utf-8', 'replace')}".strip())
        return data

    def _sort(self, data: bytes) -> None:
        self._raw += data
        for kind, piece in take_pieces(self._raw):
            if kind == 1:
                self._out += piece
            else:
                self.stderr = (self.stderr + piece)[-MAX_STDERR:]

    def close(self) -> None:
        """Close the connection; for the agent that is the end."""
        hang_up(self._attached)


def take_pieces(raw: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the whole frames out of `raw`: (1 stdout or 2 stderr, bytes)."""
    while len(raw) >= ENGINE_FRAME.size:
        kind, size = ENGINE_FRAME.unpack_from(raw)
        whole = ENGINE_FRAME.size + size
        if len(raw) < whole:
            return
        piece = bytes(raw[ENGINE_FRAME.size : whole])
        del raw[:whole]
        yield kind, piece


def socket_of(attached: Any) -> socket.socket:
    """The socket in what the SDK returns for a stream; some transports return it bare."""
    found: socket.socket = getattr(attached, "_sock", attached)
    return found


def hang_up(attached: Any) -> None:
    """Close a stream of the SDK at once: file, socket and response hold it open together."""
    with contextlib.suppress(OSError):
        socket_of(attached).shutdown(socket.SHUT_RDWR)
    response = getattr(attached, "_response", None)
    for part in (response, attached, socket_of(attached)):
        if part is not None:
            part.close()


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise LineLost("no answer in time")
    return left


class Line:
    """Asks the agent."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def hello(self, end: float) -> bool:
        """Wait for the first word; True for the agent, False for an image without Python."""
        word = self._channel.read(len(agent.HELLO), end)
        if word not in (agent.HELLO, BARE_HELLO):
            raise LineLost(f"it said {word!r}")
        return word == agent.HELLO

    def run(self, request: dict[str, Any], stdin: bytes) -> Ran:
        """Run one command."""
        end = time.monotonic() + request["timeout_s"] + agent.KILL_S + GRACE_S
        header, out, err = self._ask({"op": "run", **request}, stdin, end)
        if "no_process" in header:
            text = f"no process could be started: {header['no_process']}\n"
            return Ran(126, b"", text.encode(), 0.0)
        if "lost" in header:
            return Ran(None, b"", b"", 0.0, lost=True)
        if header["stuck"]:
            raise LineLost("a process could not be killed")
        left_out = header["left_out"]
        return Ran(
            header["exit"], with_gap(out, left_out[0]), with_gap(err, left_out[1]),
            header["seconds"], header["timed_out"], header["oom"], any(left_out),
        )

    def sweep(self) -> None:
        """Kill everything but the agent."""
        self._ask({"op": "sweep"}, b"", time.monotonic() + GRACE_S)

    def _ask(
        self, request: dict[str, Any], body: bytes, end: float,
    ) -> tuple[dict[str, Any], bytes, bytes]:
        raw = json.dumps(request).encode()
        self._channel.send(agent.REQUEST.pack(len(raw), len(body)) + raw + body, end)
        _, *sizes = agent.ANSWER.unpack(self._channel.read(agent.ANSWER.size, end))
        header, out, err = (self._channel.read(size, end) for size in sizes)
        return json.loads(header), out, err

    def close(self) -> None:
        """Let go; the agent ends."""
        self._channel.close()


def with_gap(kept: bytes, left_out: int) -> bytes:
    """Put a line about what is missing between head and tail."""
    if not left_out:
        return kept
    half = (len(kept) + 1) // 2
    return kept[:half] + f"\n[... {left_out} bytes left out ...]\n".encode() + kept[half:]
