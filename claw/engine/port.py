"""A ZeroMQ socket on an asyncio loop: all that came is read at a wake-up, sending is a plain call.

Owns: when there is something to read, and that sending does not hide it.
Does not own: what messages mean, opening the socket (`wire`).

`zmq.asyncio` makes futures for each message, which cost the actor more than most messages do.
"""

import asyncio
from collections.abc import Sequence

import zmq

MAX_AT_ONCE = 64
"""messages that are read before others have their turn"""

Frames = Sequence[bytes | memoryview]


class Port:
    """Make it inside the loop that reads it; `close()` before the socket's context ends."""

    def __init__(self, socket: zmq.Socket) -> None:
        self.socket = socket
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._look)

    async def following(self) -> list[list[bytes]]:
        """Return the frames of the messages that are there; wait until there is one."""
        while not (found := self._read()):
            self._news.clear()
            await self._news.wait()
        return found

    def send(self, frames: Frames) -> None:
        """Send at once. Raises zmq.Again where the peer does not read."""
        self.socket.send_multipart(frames, zmq.DONTWAIT)
        self._look()  # the socket's sign of what has come goes with whatever is done to it

    def close(self, linger_ms: int = 0) -> None:
        self._loop.remove_reader(self._fd)
        self.socket.close(linger_ms)

    def _read(self) -> list[list[bytes]]:
        found: list[list[bytes]] = []
        try:
            while len(found) < MAX_AT_ONCE:
                found.append(self.socket.recv_multipart(zmq.DONTWAIT))
        except zmq.Again:
            pass  # it has looked into all its post: what comes from here on gives a sign
        return found

    def _look(self) -> None:
        """The descriptor says that something changed; what, only the socket knows."""
        if int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._news.set()
