"""What a worker asks of the thing that samples tokens.

Owns: the requests, the events and the protocol `Backend`.
Does not own: sockets (worker), the checks of requests (guard), sampling (each backend).

A backend is driven by one thread: `submit`, `cancel`, `load` between calls of `step`. `step` does a
bounded piece of work (at most one token for each running request) and returns what happened.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from claw.config import RunConfig
from claw.engine.pictures import Lens
from claw.engine.versions import Manifest
from claw.errors import ClawError
from claw.records import FinishReason, Sampling, Version

Key = tuple[str, str, int]
"""(owner, adapter, number) of a set of weights"""


class Code:
    """Codes of `generate.error`."""

    BAD_REQUEST = "bad_request"
    OVERLOADED = "overloaded"
    DEADLINE = "deadline"
    ENGINE = "engine"


class RequestError(ClawError):
    """A request that this worker cannot take; `code` travels to the actor."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Busy(ClawError):
    """A version cannot be held yet: running requests still use the older ones. Ask again."""


class Unfinished(Busy):
    """A piece of the loading is done. Ask again after the next step, for the next piece."""


class EngineLost(ClawError):
    """The engine can serve no more: the worker ends, and its launcher starts another one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backend can do; the `worker.hello` of its worker."""

    kind: str
    model: str
    vocab_size: int
    context: int
    """tokens of prompt + reply"""
    slots: int
    queue: int
    lens: Lens | None = None
    """how its model reads pictures; None for text only"""
    device: str = ""
    """torch's word for what it computes on: cpu, cuda, mps; empty where it computes nothing"""


@dataclass(frozen=True, slots=True, eq=False)
class Generate:
    """One reply to sample."""

    id: str
    prompt_ids: np.ndarray
    """int32 [P]"""
    sampling: Sampling
    stop_ids: tuple[int, ...]
    session: str
    owner: str
    adapter: str
    deadline: float
    """time.monotonic() seconds"""
    pictures: tuple[np.ndarray, ...] = ()
    """uint8 [H, W, 3] each, in the model's size and the prompt's order"""


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """One sequence whose next-token log-probs are wanted."""

    id: str
    ids: np.ndarray
    """int32 [L]"""
    owner: str
    adapter: str
    temperature: float
    """0 means 1, as for greedy replies"""
    topk: int
    deadline: float


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some tokens of a reply, in order; arrays are named as in `generate.chunk`."""

    id: str
    start: int
    """index of the first token in the reply"""
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Done:
    id: str
    finish_reason: FinishReason
    cached_tokens: int
    """prompt tokens whose key-value entries were reused"""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    id: str
    version: int
    logps: np.ndarray
    """float32 [L-1]"""
    topk_ids: np.ndarray
    """int32 [L-1, K]"""
    topk_logps: np.ndarray


@dataclass(frozen=True, slots=True)
class Failed:
    """A request ended without a whole answer; the tokens of its chunks stay valid."""

    id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version serves now; how far its canary was from the trainer's log-probs."""

    owner: str
    adapter: str
    number: int
    mismatch_max: float
    mismatch_mean: float
    seconds: float


Event = Chunk | Done | Scored | Failed


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a backend is."""

    running: int = 0
    waiting: int = 0
    tokens: int = 0
    """sampled since the start"""
    versions: tuple[Key, ...] = field(default=())


class Backend(Protocol):
    """The thing that samples. Not thread-safe: one thread drives it."""

    limits: Limits

    def submit(self, request: Generate | Score) -> None:
        """Take a checked request; it waits until a slot is free."""

    def cancel(self, id: str) -> None:
        """End a request; its tokens so far and `Done(cancelled)` come from the next step."""

    def step(self) -> list[Event]:
        """Do a bounded piece of work. Returns at once when there is nothing to do."""

    def load(self, version: Version, manifest: Manifest | None) -> Loaded:
        """Serve this version from now on; VersionError leaves the previous one, Busy: ask again.

        A bounded piece of work, as a step is: `Unfinished` until the last. `manifest` is checked
        already; None stands for version 0, the weights of the start.
        """

    def status(self) -> Load:
        """Counters and versions held."""

    def fail_all(self, code: str, message: str) -> list[Event]:
        """End every request, running or waiting, with an error."""

    def close(self) -> None: ...


def make_backend(config: RunConfig, model_dir: Path, weights: str = "") -> Backend:
    """Load the backend named in `worker.kind`.

    `weights`: where the trainer gives out versions, for an engine that asks it itself.
    """
    if config.worker.kind == "sglang":
        from claw.engine.worker import hosted

        return hosted.make(config, model_dir, weights)
    module: Any = importlib.import_module(f"claw.engine.worker.{config.worker.kind}")
    return cast(Backend, module.make(config, model_dir))


def load_at_once(backend: Backend, version: Version, manifest: Manifest | None) -> Loaded:
    """Load a version piece after piece, with no step between: for one who asks nothing else."""
    while True:
        try:
            return backend.load(version, manifest)
        except Unfinished:
            continue
