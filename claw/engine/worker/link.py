"""Whether the actor and the parent process are still there.

Owns: the verdict "gone". Does not own: what then happens (the worker ends).

The actor has nothing to say to an idle worker, so silence alone proves nothing: ZeroMQ's own
heartbeats keep the connection honest, and its monitor says when it is lost.
"""

import os
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from claw.engine import parent

LOST = {zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECT_RETRIED, zmq.EVENT_CLOSED}
FOUND = {zmq.EVENT_HANDSHAKE_SUCCEEDED}
HANDSHAKE_S = 0.5


def heartbeats(context: zmq.Context, heartbeat_s: float, dead_after_s: float) -> None:
    """Give every socket that this context opens later ZeroMQ's heartbeats."""
    context.setsockopt(zmq.HEARTBEAT_IVL, max(1, int(heartbeat_s * 1000)))
    context.setsockopt(zmq.HEARTBEAT_TIMEOUT, max(1, int(dead_after_s * 1000)))
    context.setsockopt(zmq.RECONNECT_IVL, 100)
    context.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)


class Link:
    """Watches one socket and the parent process."""

    def __init__(self, socket: zmq.Socket, dead_after_s: float) -> None:
        self.monitor = socket.get_monitor_socket(sum(LOST | FOUND))
        self._socket = socket
        self._dead_after_s = dead_after_s
        self._parent = parent.pid()
        self._is_connected = True  # until the monitor says otherwise, again and again
        self._heard = time.monotonic()

    def hear(self) -> None:
        """A message came."""
        self._is_connected, self._heard = True, time.monotonic()

    def watch(self) -> bool:
        """Read the monitor; return whether the actor came back after it was lost."""
        came_back = False
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            if event in FOUND:
                came_back = came_back or not self._is_connected
                self.hear()
            elif event in LOST and self._is_connected:
                self._is_connected, self._heard = False, time.monotonic()
        return came_back

    def gone(self) -> str:
        """Why this process should end, or an empty string."""
        if os.getppid() != self._parent:
            return "the parent process ended"
        silence_s = time.monotonic() - self._heard
        if not self._is_connected and silence_s > self._dead_after_s:
            return f"the actor has been gone for {silence_s:.0f} s"
        return ""

    def close(self) -> None:
        self._socket.disable_monitor()
        self.monitor.close(0)
