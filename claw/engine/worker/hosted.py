"""A backend whose engine lives in a process of its own, which may die without harm to this one.

Owns: the requests in flight, the talk with the engine's host, noticing that it died or is silent.
Does not own: the process (child), what happens inside it (host), sockets to the actor (worker).

The worker's process imports neither the engine nor torch, so it may run in any environment that
has claw; the engine's python is named in the settings.
"""

import json
import logging
import sys
import time
from pathlib import Path

import zmq

from claw import config as settings
from claw.config import RunConfig
from claw.engine import process, wire
from claw.engine.scratch import Scratch
from claw.engine.versions import Manifest, VersionError
from claw.engine.wire import Message
from claw.engine.worker.backend import (
    Busy,
    Chunk,
    Code,
    Done,
    EngineLost,
    Event,
    Failed,
    Generate,
    Key,
    Limits,
    Load,
    Loaded,
    Score,
    Scored,
)
from claw.engine.worker.child import Child
from claw.errors import UsageError
from claw.records import FinishReason, Version

log = logging.getLogger(__name__)

POLL_MS = 10
"""a step waits so long for the engine when requests run"""
SILENT_S = 60.0
"""its host beats every second; a silent one hangs"""
STOP_S = 5.0


def make(config: RunConfig, model_dir: Path, weights: str = "") -> "HostedBackend":
    """Start the engine of a run and wait until it can serve."""
    return HostedBackend(config, model_dir, "claw.engine.worker.sglang", weights)


class HostedBackend:
    """See `backend.Backend`."""

    def __init__(
        self, config: RunConfig, model_dir: Path, module: str, weights: str = ""
    ) -> None:
        if config.sglang.weights == "group" and not weights:
            raise UsageError("sglang.weights = group has versions sent by the trainer, and this "
                             "worker does not know its address", do="name it with --weights")
        self.scratch = Scratch("claw-engine-")
        self.context = zmq.Context()
        address = f"ipc://{self.scratch.path}/host"
        self.socket = wire.open_socket(self.context, zmq.PAIR, address, bind=True)
        self.waiting: dict[str, Generate | Score] = {}
        """in flight: running or waiting, the engine decides"""
        self.num_sampled = 0
        self._refused: list[Event] = []
        self._answers: dict[Key, Loaded | VersionError] = {}
        """of versions: loaded, or why not"""
        self._loading: set[Key] = set()
        self._heard = time.monotonic()
        self._is_up = self._has_told = False
        self._seeded = bool(config.sglang.arguments.get("enable_deterministic_inference"))
        spec = self.scratch.path / "spec.json"
        spec.write_text(json.dumps({
            "config": settings.resolved(config), "model_dir": str(model_dir),
            "address": address, "claw": process.version(), "weights": weights,
        }), encoding="utf-8")
        try:
            env = process.ENVIRONMENT | {"OMP_NUM_THREADS": str(config.worker.threads or 1)}
            self.child = Child(config.sglang.python or sys.executable, module, spec, env)
            ready = self._await_ready(config.sglang.start_s)
        except BaseException:
            self.close()
            raise
        self.versions = _keys(ready["versions"])
        self.limits = Limits(config.worker.kind, config.model, ready["vocab_size"],
                             ready["context"], config.worker.slots, config.worker.queue,
                             device=ready["device"])

    def _await_ready(self, patience_s: float) -> Message:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if self.socket.poll(200):
                message = wire.decode(self.socket.recv_multipart())
                if message.type == "ready":
                    self._is_up, self._heard = True, time.monotonic()
                    return message
                self._check_lost(message)
            elif self.child.has_died():
                raise EngineLost("the engine died at its start", found=self.child.last_words(),
                                 do="the log above says what it was doing; `claw doctor` checks "
                                 "its environment")
        self.child.kill()
        raise EngineLost("the engine did not come up", found=f"after {patience_s:g} s; "
                         f"{self.child.last_words()}", allowed="sglang.start_s seconds")

    # --- requests ----------------------------------------------------------------------------

    def submit(self, request: Generate | Score) -> None:
        self.waiting[request.id] = request
        if isinstance(request, Score) and request.temperature not in (0.0, 1.0):
            # the engine's log-probs of given tokens are those of temperature 1, whatever is asked
            self._refused.append(Failed(
                request.id, Code.BAD_REQUEST, f"temperature is {request.temperature:g}; "
                "this engine scores given tokens at temperature 1 only"))
            return
        if isinstance(request, Generate) and request.sampling.seed is not None and not self._seeded:
            self._tell_of_seeds()
        self._send(_message(request))

    def _tell_of_seeds(self) -> None:
        if not self._has_told:
            log.warning("a request has a seed: this engine draws without (said once); on a GPU set "
                        "sglang.arguments.enable_deterministic_inference=true")
        self._has_told = True

    def cancel(self, id: str) -> None:
        self._send(Message("cancel", id))

    def step(self) -> list[Event]:
        """Take what the engine said; EngineLost when it will say no more."""
        events, self._refused = self._refused, []
        while self.socket.poll(0 if events or not self.waiting else POLL_MS):
            message = wire.decode(self.socket.recv_multipart())
            self._heard = time.monotonic()
            if (event := self._read(message)) is not None and event.id in self.waiting:
                events.append(event)  # others were failed before, all at once
        for event in events:
            if not isinstance(event, Chunk):
                self.waiting.pop(event.id, None)
        if not events:
            self._check_alive()
        return events

    def _read(self, message: Message) -> Event | None:
        self._check_lost(message)
        if message.type == "generate.chunk":
            self.num_sampled += len(message.arrays["ids"])
            return Chunk(message.id, message["start"], message.arrays)
        if message.type == "generate.done":
            finish = FinishReason(message["finish_reason"])
            return Done(message.id, finish, message["cached_tokens"])
        if message.type == "generate.error":
            return Failed(message.id, message["code"], message["message"])
        if message.type == "score.done":
            return Scored(message.id, message["version"], **message.arrays)
        if message.type in ("version.loaded", "version.refused"):
            self._read_version(message)
        return None

    def _check_lost(self, message: Message) -> None:
        if message.type == "lost":
            raise EngineLost(message["why"])

    def _check_alive(self) -> None:
        if self.child.has_died():
            raise EngineLost("the engine died", found=self.child.last_words())
        if (silence_s := time.monotonic() - self._heard) > SILENT_S:
            raise EngineLost("the engine's process stopped answering",
                             found=f"silent for {silence_s:.0f} s", allowed=f"{SILENT_S:g} s")

    def _send(self, message: Message) -> None:
        try:
            self.socket.send_multipart(wire.encode(message), zmq.DONTWAIT)
        except zmq.Again:
            raise EngineLost("the engine's process does not read what it is sent") from None

    def status(self) -> Load:
        running = min(len(self.waiting), self.limits.slots)
        return Load(running, len(self.waiting) - running, self.num_sampled, self.versions)

    def fail_all(self, code: str, message: str) -> list[Event]:
        for id in self.waiting:
            if not self.child.has_died():
                self._send(Message("cancel", id))
        ids, self.waiting = list(self.waiting), {}
        return [Failed(id, code, message) for id in ids]

    def close(self) -> None:
        """End the engine and all that it started."""
        if (child := getattr(self, "child", None)) is not None:
            is_told = self._is_up and not child.has_died() and self.socket.poll(0, zmq.POLLOUT)
            if is_told:
                self._send(Message("stop"))
            child.kill(STOP_S if is_told else 0.0)
        self.socket.close(0)
        self.context.term()
        self.scratch.close()

    # --- versions ----------------------------------------------------------------------------

    def load(self, version: Version, manifest: Manifest | None) -> Loaded:
        """Have the engine load it meanwhile: Busy until it has, so that tokens go on."""
        key = (version.owner, version.adapter, version.number)
        answer = self._answers.pop(key, None)
        if isinstance(answer, VersionError):
            raise answer
        if answer is not None:
            return answer
        if key not in self._loading:
            # answers to versions that nobody asks for any more are forgotten
            self._answers = {k: a for k, a in self._answers.items() if k[:2] != key[:2]}
            self._loading.add(key)
            self._send(wire.record_message("load", version))
        raise Busy("the engine loads it")

    def _read_version(self, message: Message) -> None:
        key = (message["owner"], message["adapter"], message["number"])
        self._loading.discard(key)
        if message.type == "version.refused":
            error = self._answers[key] = VersionError(message["why"])
            error.mismatch = message["mismatch"] and tuple(message["mismatch"])
            return
        self.versions = _keys(message["versions"])
        self._answers[key] = Loaded(*key, message["mismatch_max"], message["mismatch_mean"],
                                    message["seconds"])


def _keys(rows: list[list[object]]) -> tuple[Key, ...]:
    return tuple((str(owner), str(adapter), int(str(n))) for owner, adapter, n in rows)


def _message(request: Generate | Score) -> Message:
    fields = {"owner": request.owner, "adapter": request.adapter,
              "deadline_s": max(0.0, request.deadline - time.monotonic())}
    if isinstance(request, Score):
        return Message("score", request.id, fields | {"topk": request.topk},
                       {"ids": request.ids})
    sampling, _ = wire.pack(request.sampling)
    return Message("generate", request.id, fields | {
        "sampling": sampling, "stop_ids": list(request.stop_ids),
    }, {"prompt_ids": request.prompt_ids})


