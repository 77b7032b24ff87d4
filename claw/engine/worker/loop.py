"""The thread of the model: takes commands, steps the backend, hands events to the socket thread.

Owns: the order of commands and steps; what happens when a step fails.
Does not own: sockets to other processes (worker), the checks of requests (guard).

Commands come through a bounded queue; events leave as frames over an inproc pair, which is bounded
too: when the actor does not read, the model waits.
"""

import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from claw.config import RunConfig
from claw.engine import faults, pulse, wire
from claw.engine.versions import Manifest, VersionError
from claw.engine.wire import Message
from claw.engine.worker.backend import (
    Backend,
    Busy,
    Chunk,
    Code,
    Done,
    EngineLost,
    Event,
    Failed,
    Generate,
    Limits,
    Load,
    Loaded,
    Score,
    Unfinished,
    make_backend,
)
from claw.errors import ClawError
from claw.records import Version

log = logging.getLogger(__name__)

SPARE_COMMANDS = 256
"""of the queue, beside one per request that may be in flight: cancels and versions"""
IDLE_S = 0.1
MAX_FAILURES = 3
"""steps that fail one after the other end the worker; its supervisor starts a new one"""


@dataclass(frozen=True, slots=True)
class Cancel:
    id: str


@dataclass(frozen=True, slots=True)
class Swap:
    """A version whose files are checked; no manifest stands for version 0."""

    version: Version
    manifest: Manifest | None


Command = Generate | Score | Cancel | Swap


class ModelLoop:
    """Runs a backend in its own thread."""

    def __init__(
        self, config: RunConfig, model_dir: Path, context: zmq.Context, address: str,
        weights: str = "",
    ) -> None:
        self._config, self._model_dir, self._weights = config, model_dir, weights
        self._context, self._address = context, address
        self._commands: queue.Queue[Command] = queue.Queue(
            config.worker.slots + config.worker.queue + SPARE_COMMANDS
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="model", daemon=True)
        self._swaps: dict[tuple[str, str], Swap] = {}
        self._said = ""
        self._is_loading = False
        """a version comes in piece by piece: the next one needs no wait"""
        self.limits: Limits | None = None
        """set when the model is loaded"""
        self.failure: BaseException | None = None
        """why the thread ended, when it failed"""
        self.status = Load()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ask the thread to end; return whether it did."""
        self._stop.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def put(self, command: Command) -> bool:
        """Hand over a command; False when the queue is full."""
        try:
            self._commands.put_nowait(command)
        except queue.Full:
            return False
        return True

    # --- the thread --------------------------------------------------------------------------

    def _main(self) -> None:
        out = wire.open_socket(self._context, zmq.PAIR, self._address, bind=False)
        out.setsockopt(zmq.SNDTIMEO, 100)
        try:
            with closing(
                make_backend(self._config, self._model_dir, self._weights)
            ) as backend:
                self.status, self.limits = backend.status(), backend.limits
                self._run(backend, out)
        except BaseException as error:
            log.exception("the model thread ends")
            self.failure = error
        finally:
            out.close(500)

    def _run(self, backend: Backend, out: zmq.Socket) -> None:
        failures = 0
        while not self._stop.is_set():
            pulse.mark(pulse.WORK)
            for answer in self._obey(backend):
                faults.at("worker.acknowledge.before")
                self._send(out, answer)
                faults.at("worker.acknowledge.after")
            try:
                events, failures = backend.step(), 0
            except EngineLost as error:
                for event in backend.fail_all(Code.ENGINE, str(error)):
                    self._send(out, event_message(event))
                raise
            except Exception as error:
                failures += 1
                log.exception("a step of the model failed (%d in a row)", failures)
                events = backend.fail_all(Code.ENGINE, f"{type(error).__name__}: {error}")
            for event in events:
                faults.at("worker.chunk.before")
                self._send(out, event_message(event))
                faults.at("worker.chunk.after")
            self.status = backend.status()
            if failures >= MAX_FAILURES:
                raise ClawError("the model failed several times in a row; see the log")

    def _send(self, out: zmq.Socket, message: Message) -> None:
        frames = wire.encode(message)
        while not self._stop.is_set():
            pulse.mark(pulse.WORK)
            try:
                out.send_multipart(frames)
                return
            except zmq.Again:
                continue  # the actor does not read: wait, but not for ever

    def _obey(self, backend: Backend) -> Iterator[Message]:
        busy = backend.status()
        is_idle = not (busy.running or busy.waiting or self._is_loading)
        command = self._next(IDLE_S if is_idle else 0)
        while command is not None:
            if isinstance(command, Swap):
                # of two versions of one adapter only the newer announcement matters
                self._swaps[command.version.owner, command.version.adapter] = command
            elif isinstance(command, Cancel):
                backend.cancel(command.id)
            else:
                backend.submit(command)
            command = self._next(0)
        self._is_loading = False
        for key, swap in list(self._swaps.items()):
            try:
                answer = load(backend, swap)
            except Unfinished:
                self._is_loading = True
                continue
            except Busy as error:
                if self._said != (said := f"version {swap.version.number} waits: {error}"):
                    self._said = said  # it is asked again at every step
                    log.info("%s", said)
                continue
            del self._swaps[key]
            yield answer

    def _next(self, timeout_s: float) -> Command | None:
        try:
            return self._commands.get(timeout=timeout_s) if timeout_s else (
                self._commands.get_nowait()
            )
        except queue.Empty:
            return None


@faults.around("worker.load")
def load(backend: Backend, swap: Swap) -> Message:
    """Load a version; a refusal is an answer, and the previous version serves on."""
    version = swap.version
    try:
        return loaded_message(backend.load(version, swap.manifest))
    except Busy:
        raise
    except VersionError as error:
        return refused_message(version, str(error), error.mismatch)
    except Exception as error:
        log.exception("version %d could not be loaded", version.number)
        return refused_message(version, f"{type(error).__name__}: {error}")


def loaded_message(done: Loaded) -> Message:
    return Message("version.loaded", "", {
        "owner": done.owner, "adapter": done.adapter, "number": done.number,
        "mismatch_max": done.mismatch_max, "mismatch_mean": done.mismatch_mean,
        "seconds": done.seconds,
    })


def refused_message(
    version: Version, why: str, mismatch: tuple[float, float] | None = None
) -> Message:
    log.warning("version %d of %s/%s is refused: %s", version.number, version.owner,
                version.adapter, why)
    fields: dict[str, Any] = {"owner": version.owner, "adapter": version.adapter,
                              "number": version.number, "why": why}
    if mismatch is not None:
        fields |= {"mismatch_max": mismatch[0], "mismatch_mean": mismatch[1]}
    return Message("version.refused", "", fields)


def event_message(event: Event) -> Message:
    """The message of docs/wire.md that carries an event."""
    if isinstance(event, Chunk):
        return Message("generate.chunk", event.id, {"start": event.start}, event.arrays)
    if isinstance(event, Done):
        fields = {"finish_reason": str(event.finish_reason), "cached_tokens": event.cached_tokens}
        return Message("generate.done", event.id, fields)
    if isinstance(event, Failed):
        return Message("generate.error", event.id, {"code": event.code, "message": event.message})
    arrays = {"logps": event.logps, "topk_ids": event.topk_ids, "topk_logps": event.topk_logps}
    return Message("score.done", event.id, {"version": event.version}, arrays)
