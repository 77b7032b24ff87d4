"""The rollout worker: a process that samples for the actor.

Owns: the sockets to the actor and the trainer, credit, request ids, heartbeats, its own end.
Does not own: the model (loop, backend), the checks of requests (guard) and versions (loader).

The sockets live in this thread and the model in another, so a heartbeat or a cancel never waits
for a forward. No torch here.
"""

import logging
import os
import signal
import threading
import time
from collections import OrderedDict
from pathlib import Path

import zmq

from claw.config import RunConfig
from claw.engine import faults, pulse, wire
from claw.engine.wire import Message
from claw.engine.worker import guard
from claw.engine.worker.backend import Code, RequestError
from claw.engine.worker.cache import Cache, default_folder
from claw.engine.worker.link import Link, heartbeats
from claw.engine.worker.loader import Loader
from claw.engine.worker.loop import Cancel, ModelLoop, refused_message
from claw.engine.worker.pull import Puller
from claw.errors import ClawError, WireError
from claw.records import Version, VersionStatus

log = logging.getLogger(__name__)

POLL_S = 0.1
STOP_S = 10.0
"""the longest wait for the model to finish its step at the end"""
REMEMBERED = 4096
"""ids of ended requests that are not run again"""
ENDS = {"generate.done", "generate.error", "score.done"}
TOPIC = b"version"
EVENTS = "inproc://events"
REFUSALS = "inproc://refusals"


def run(
    config: RunConfig, *, actor: str, versions: str, model_dir: str, name: str, weights: str = "",
) -> None:
    """Serve until the actor says stop, SIGTERM comes, or nobody is there any more.

    `versions` is where the trainer announces them, `weights` where it gives out their files to
    workers that cannot read its folders.
    Raises ClawError when the model cannot be loaded or the actor is gone.
    """
    Worker(config, actor=actor, versions=versions, model_dir=model_dir, name=name,
           weights=weights).run()


class Worker:
    """One worker process."""

    def __init__(
        self, config: RunConfig, *, actor: str, versions: str, model_dir: str, name: str,
        weights: str = "",
    ) -> None:
        self.config, self.name = config, name
        keys = wire.keys_of(config.wire.keys)
        self.context = zmq.Context()
        self.events = wire.open_socket(self.context, zmq.PAIR, EVENTS, bind=True)
        self.refusals = wire.open_socket(self.context, zmq.PAIR, REFUSALS, bind=True)
        heartbeats(self.context, config.wire.heartbeat_s, config.wire.dead_after_s)
        self.actor = wire.open_socket(
            self.context, zmq.DEALER, actor, bind=False, keys=keys, identity=name.encode()
        )
        self.link = Link(self.actor, config.wire.dead_after_s)
        self.announcements = self._subscribe(versions, keys) if versions else None
        self.loop = ModelLoop(config, Path(model_dir), self.context, EVENTS, weights)
        self.loader = Loader(self._version_is_ready, self._version_is_refused,
                             self._puller(weights, keys) if weights else None)
        self._refusals_out = wire.open_socket(self.context, zmq.PAIR, REFUSALS, bind=False)
        self.live: set[str] = set()
        self.ended: OrderedDict[str, None] = OrderedDict()
        self.early: dict[tuple[str, str], Version] = {}
        """the newest of each adapter that was announced while the model was loading"""
        self.num_garbage = 0
        self._stop = threading.Event()
        self._is_up = False
        self._beat_at = 0.0
        self._tokens = (time.monotonic(), 0)

    def _subscribe(self, address: str, keys: wire.Keys | None) -> zmq.Socket:
        socket = wire.open_socket(self.context, zmq.SUB, address, bind=False, keys=keys)
        socket.setsockopt(zmq.SUBSCRIBE, TOPIC)
        return socket

    def _puller(self, address: str, keys: wire.Keys | None) -> Puller:
        w = self.config.worker
        folder = Path(w.cache) if w.cache else default_folder()
        cache = Cache(folder, int(w.cache_gb * 1e9))
        return Puller(address, keys, cache, self.config.wire.dead_after_s)

    # --- life --------------------------------------------------------------------------------

    def run(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._stop.set())
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides, by SIGTERM
        self.loop.start()
        self.loader.start()
        why = ""
        try:
            while not self._stop.is_set() and not why:
                self._turn()
                why = self.link.gone()
            if not why:
                self._end_live("the worker stops")
        finally:
            self._close()
        if why:
            raise ClawError(f"worker {self.name} ends: {why}")

    def _turn(self) -> None:
        """Move what is there to move, once."""
        pulse.mark(pulse.LOOP)
        poller = zmq.Poller()
        poller.register(self.actor, zmq.POLLIN)
        poller.register(self.link.monitor, zmq.POLLIN)
        poller.register(self.refusals, zmq.POLLIN)
        if self.announcements is not None:
            poller.register(self.announcements, zmq.POLLIN)
        if self.actor.getsockopt(zmq.EVENTS) & zmq.POLLOUT:
            poller.register(self.events, zmq.POLLIN)  # else the model waits for the actor
        poller.poll(int(POLL_S * 1000))
        came_back = self.link.watch()
        self._check_model(came_back)
        self._read_actor()
        self._read_announcements()
        self._forward(self.events)
        self._forward(self.refusals)
        if time.monotonic() - self._beat_at >= self.config.wire.heartbeat_s:
            self._beat()

    def _check_model(self, came_back: bool) -> None:
        if self.loop.failure is not None:
            self._end_live(f"the model failed: {self.loop.failure}")
            raise ClawError("the worker's model failed", found=str(self.loop.failure)) from (
                self.loop.failure
            )
        if self.loop.limits is not None and (came_back or not self._is_up):
            self._is_up = True
            self._hello()
            for version in self.early.values():
                self._load(version)
            self.early = {}

    def _close(self) -> None:
        pulse.rest(pulse.LOOP, pulse.WORK)
        self._send(Message("worker.bye"))
        self.loader.stop()
        ended = self.loop.stop(STOP_S)
        self.link.close()
        self.actor.close(1000)
        for socket in (self.announcements, self.events, self.refusals, self._refusals_out):
            if socket is not None:
                socket.close(0)
        if ended:
            self.context.term()
        else:
            log.warning("the model did not finish its step within %.0f s", STOP_S)

    # --- to the actor ------------------------------------------------------------------------

    def _send(self, message: Message) -> None:
        try:
            self.actor.send_multipart(wire.encode(message), zmq.DONTWAIT)
        except zmq.Again:
            log.warning("the actor does not read: %s %s is dropped", message.type, message.id)

    @faults.around("worker.hello")
    def _hello(self) -> None:
        limits = self.loop.limits
        assert limits is not None, "a worker says hello when its model is loaded"
        self._send(Message("worker.hello", "", {
            "kind": limits.kind, "model": limits.model, "vocab_size": limits.vocab_size,
            "context": limits.context, "slots": limits.slots, "queue": limits.queue,
            "device": limits.device,
            "pid": os.getpid(), "versions": [list(key) for key in self.loop.status.versions],
        }))

    def _beat(self) -> None:
        self._beat_at = now = time.monotonic()
        if not self._is_up:
            return
        status, (then, tokens) = self.loop.status, self._tokens
        self._tokens = (now, status.tokens)
        self._send(Message("worker.beat", "", {
            "running": status.running, "waiting": status.waiting,
            "versions": [list(key) for key in status.versions],
            "tokens_per_s": (status.tokens - tokens) / max(now - then, 1e-6),
        }))

    def _forward(self, source: zmq.Socket) -> None:
        """Pass on what other threads said, while the actor takes it."""
        while source.poll(0) and self.actor.getsockopt(zmq.EVENTS) & zmq.POLLOUT:
            frames = source.recv_multipart()
            type, id = wire.name_of(frames)
            if type in ENDS:
                self._remember(id)
            self.actor.send_multipart(frames)

    def _fail(self, id: str, code: str, text: str) -> None:
        self._send(Message("generate.error", id, {"code": code, "message": text}))

    def _end_live(self, text: str) -> None:
        for id in sorted(self.live):
            self._fail(id, Code.ENGINE, text)

    def _remember(self, id: str) -> None:
        self.live.discard(id)
        self.ended[id] = None
        while len(self.ended) > REMEMBERED:
            self.ended.popitem(last=False)

    # --- from the actor ----------------------------------------------------------------------

    def _read_actor(self) -> None:
        while self.actor.poll(0):
            frames = self.actor.recv_multipart()
            self.link.hear()
            try:
                self._handle(wire.decode(frames))
            except Exception as error:  # whatever a peer sends, this process goes on
                self._garbage(error)
                self._send(Message("error", "", {"text": str(error)}))

    def _handle(self, message: Message) -> None:
        if message.type in ("generate", "score"):
            self._start(message)
        elif message.type == "cancel":
            if message.id in self.live:
                self.loop.put(Cancel(message.id))
        elif message.type == "version.load":
            self._load(wire.read_record(message, Version))
        elif message.type == "worker.who":
            self._hello()
        elif message.type == "stop":
            self._stop.set()
        elif message.type == "error":
            log.warning("the actor says: %s", message.get("message", message.get("text", "")))
        else:
            raise WireError(f"a worker knows no message of type {message.type!r}")

    def _start(self, message: Message) -> None:
        if not message.id:
            raise WireError(f"a {message.type} without an id")
        if message.id in self.live or message.id in self.ended:
            return  # sent again: it runs, or has run
        try:
            self._submit(message)
        except RequestError as error:
            self._fail(message.id, error.code, str(error))

    def _submit(self, message: Message) -> None:
        limits, worker = self.loop.limits, self.config.worker
        if limits is None:
            raise RequestError(Code.OVERLOADED, "the model is still loading")
        read = guard.read_generate if message.type == "generate" else guard.read_score
        request = read(message, limits, worker.deadline_s)
        if len(self.live) >= limits.slots + limits.queue or not self.loop.put(request):
            raise RequestError(
                Code.OVERLOADED, f"{len(self.live)} requests are running or waiting here"
            )
        self.live.add(message.id)

    def _garbage(self, error: Exception) -> None:
        self.num_garbage += 1
        log.warning("garbage on a socket (%d so far): %s", self.num_garbage, error,
                    exc_info=None if isinstance(error, WireError) else error)

    # --- versions ----------------------------------------------------------------------------

    def _read_announcements(self) -> None:
        while self.announcements is not None and self.announcements.poll(0):
            _, *frames = self.announcements.recv_multipart()
            try:
                message = wire.decode(frames)
                if message.type != "version.announce":
                    raise WireError(f"an announcement of type {message.type!r}")
                self._load(wire.read_record(message, Version))
            except Exception as error:
                self._garbage(error)

    def _load(self, version: Version) -> None:
        if version.status != VersionStatus.PUBLISHED:
            log.info("version %d is %s: not loaded", version.number, version.status)
        elif not self._is_up:
            self.early[version.owner, version.adapter] = version
        elif not self.loader.put(version):
            self._send(refused_message(version, "too many versions wait to be checked"))

    def _version_is_ready(self, swap: object) -> None:
        """In the loader's thread."""
        while not self.loop.put(swap):  # type: ignore[arg-type]
            if self._stop.wait(POLL_S):
                return

    def _version_is_refused(self, version: Version, why: str) -> None:
        """In the loader's thread; its own end of the pair is used by this thread only."""
        self._refusals_out.send_multipart(wire.encode(refused_message(version, why)))
