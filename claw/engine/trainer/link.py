"""The trainer's end of the wire: one thread owns the sockets and keeps the heart beating.

Owns: hello, asking with deadlines, heartbeats, announcements, noticing that nobody is there.
Does not own: what a lease or a rollback means (trainer).

A step can take minutes without touching the wire, so sockets live in a thread of their own; the
trainer's thread hands it frames over an inproc socket. When the parent process is gone or SIGTERM
came, `stopping` is set: the trainer ends the step in hand, and if it does not within GRACE_S the
process ends where it stands, which loses nothing, as files are whole or absent.
"""

import logging
import os
import queue
import threading
import time

import zmq

from claw.engine import faults, parent, pulse, wire
from claw.errors import ClawError, WireError
from claw.records import Version, new_id

log = logging.getLogger(__name__)

GRACE_S = 20.0
RETRIES = 4
"""a request is sent again so many times within the silence that is allowed"""
POLL_S = 0.2


class Stopped(Exception):
    """The process was asked to end."""


class Refused(ClawError):
    """The actor answered a request with an error."""


class Link:
    """DEALER to the actor, PUB for versions."""

    def __init__(
        self, actor: str, versions: str, *, beat_s: float, dead_after_s: float,
        keys: wire.Keys | None = None,
    ) -> None:
        self.beat_s, self.dead_after_s = beat_s, dead_after_s
        self.stopping = threading.Event()
        self.requests: queue.Queue[wire.Message] = queue.Queue()
        """rollbacks and refusals that wait for the trainer"""
        self.held: dict[str, str] = {}
        """what heartbeats say of owners of whom nothing is learned, and why"""
        self._inbox: queue.Queue[wire.Message] = queue.Queue()
        self._beat = ("starting", 0, time.monotonic())
        self._parent = parent.pid()
        self._context = zmq.Context()
        self._dealer = wire.open_socket(
            self._context, zmq.DEALER, actor, bind=False, keys=keys, identity=b"trainer"
        )
        self._pub = wire.open_socket(self._context, zmq.PUB, versions, bind=True, keys=keys)
        self._inside = wire.open_socket(self._context, zmq.PULL, "inproc://out", bind=True)
        self._out = wire.open_socket(self._context, zmq.PUSH, "inproc://out", bind=False)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._thread.start()

    # --- the trainer's thread ----------------------------------------------------------------

    def state(self, name: str, step: int) -> None:
        """What heartbeats say from now on, and since when. A change is told at once."""
        is_new = name != self._beat[0]
        self._beat = (name, step, time.monotonic() if is_new else self._beat[2])
        if is_new:
            self.send(self._beat_message())

    def send(self, message: wire.Message) -> None:
        self._out.send_multipart([b"", *wire.encode(message)])

    @faults.around("trainer.announce")
    def announce(self, version: Version) -> None:
        """Tell the workers (PUB) and the actor of a version; refused ones only the actor."""
        if version.status == "published":
            frames = wire.encode(wire.record_message("version.announce", version))
            self._out.send_multipart([b"version", *frames])
        self.send(wire.record_message("version.published", version))

    def ask(
        self, message: wire.Message, wait_s: float = 0.0, *, through_stop: bool = False
    ) -> wire.Message:
        """Send a request and return the answer with its id, sending it again while none comes.

        The actor may take `wait_s` by the rules of the request; beyond that, `dead_after_s` of
        silence is a ClawError. Refused: the answer is an error. Stopped: the process is to end;
        with `through_stop` the answer is still awaited, within GRACE_S / 2.
        """
        patience_s = min(self.dead_after_s, GRACE_S / 2) if self.stopping.is_set() else (
            self.dead_after_s)
        deadline = time.monotonic() + wait_s + patience_s
        while time.monotonic() < deadline:
            self.send(message)
            again = min(deadline, time.monotonic() + wait_s + patience_s / RETRIES)
            while (left := again - time.monotonic()) > 0:
                pulse.mark(pulse.WORK)
                if self.stopping.is_set() and not through_stop:
                    raise Stopped
                reply = self._next(min(left, POLL_S))
                if reply is not None and reply.id == message.id:
                    return _unless_error(reply, message)
        raise ClawError(
            "the actor is silent", found=f"no answer to {message.type!r} for {patience_s:g} s",
            do="look at logs/actor.log in the run folder",
        )

    def _next(self, timeout_s: float) -> wire.Message | None:
        try:
            return self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Send what is queued, then close; a peer that takes nothing is not waited for."""
        self._closing.set()
        self._thread.join(timeout=5.0)
        self._out.close(linger=0)
        self._context.destroy(linger=500)

    # --- the wire's thread -------------------------------------------------------------------

    def _run(self) -> None:
        poller = zmq.Poller()
        for socket in (self._dealer, self._inside):
            poller.register(socket, zmq.POLLIN)
        next_beat, stop_at = time.monotonic() + self.beat_s, None
        while True:
            ready = dict(poller.poll(int(1000 * min(self.beat_s, POLL_S))))
            if self._inside in ready:
                self._pass_on()
            elif self._closing.is_set():
                break
            if self._dealer in ready:
                self._take()
            now = time.monotonic()
            if now >= next_beat:
                self._try(self._dealer, wire.encode(self._beat_message()))
                next_beat = now + self.beat_s
            if os.getppid() != self._parent and not self.stopping.is_set():
                log.warning("the parent process is gone; the trainer ends")
                self.stopping.set()
            if self.stopping.is_set():
                stop_at = stop_at or now + GRACE_S
                if now > stop_at:
                    log.error("the step in hand did not end within %g s; leaving it", GRACE_S)
                    os._exit(1)
        for socket in (self._dealer, self._pub, self._inside):
            socket.close(linger=500)

    def _pass_on(self) -> None:
        topic, *frames = self._inside.recv_multipart()
        socket, sent = (self._pub, [topic, *frames]) if topic else (self._dealer, frames)
        self._try(socket, sent)

    def _beat_message(self) -> wire.Message:
        name, step, since = self._beat
        fields = {"step": step, "state": name, "seconds": round(time.monotonic() - since, 3),
                  "held": self.held}
        return wire.Message("trainer.beat", new_id("beat"), fields)

    def _try(self, socket: zmq.Socket, frames: list) -> None:
        try:
            socket.send_multipart(frames, flags=zmq.NOBLOCK)
        except zmq.Again:  # the queue to a peer that is away is full: requests are sent again
            log.warning("the wire is full; a message was left out")

    def _take(self) -> None:
        try:
            message = wire.decode(wire.receive(self._dealer))
        except WireError as error:
            log.warning("the actor sent what is no message: %s", error)
            return
        if message.type == "stop":
            self.stopping.set()
        elif message.type in ("rollback", "version.refused"):
            self.requests.put(message)
        else:
            self._inbox.put(message)


def _unless_error(reply: wire.Message, asked: wire.Message) -> wire.Message:
    if reply.type == "error":
        found = str(reply.get("error", reply.fields))
        raise Refused(f"the actor refused {asked.type!r}", found=found)
    return reply
