"""One generation in flight: the tokens that came, and whether they are fit to be trained on.

Owns: putting chunks together in order, checking them. Does not own: sockets, workers.
"""

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from claw.engine.wire import Message
from claw.errors import WireError
from claw.records import Completion, FinishReason, Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some sampled tokens, as a worker sent them."""

    ids: np.ndarray
    logps: np.ndarray
    topk_ids: np.ndarray
    topk_logps: np.ndarray
    versions: np.ndarray
    sampling_logps: np.ndarray | None = None
    kept_ids: np.ndarray | None = None
    kept_counts: np.ndarray | None = None


class GenerationError(Exception):
    """A generation that gives no answer; `code` as in docs/wire.md, plus `unavailable`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(eq=False)
class Call:
    """One request to a worker, over all its attempts."""

    id: str
    prompt_ids: np.ndarray
    sampling: Sampling
    session: str
    owner: str
    adapter: str
    deadline: float
    """on the loop's clock"""
    attempt: int = 0
    worker: bytes | None = None
    chunks: list[Chunk] = field(default_factory=list)
    num_tokens: int = 0
    base: int = 0
    """tokens that earlier attempts gave; this attempt's `start` counts from here"""
    finish: FinishReason | None = None
    error: GenerationError | None = None
    problem: str = ""
    """why the log-probs are unfit; the text is served all the same"""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    pictures: tuple[np.ndarray, ...] = ()
    """of the prompt, uint8 [H, W, 3] each"""

    @property
    def wire_id(self) -> str:
        """The id of this attempt; chunks of earlier attempts are late."""
        return f"{self.id}.{self.attempt}"

    @property
    def is_over(self) -> bool:
        return self.finish is not None or self.error is not None

    def message(self, stop_ids: tuple[int, ...], seconds: float) -> Message:
        """The `generate` message of this attempt: it continues what was given out already."""
        from claw.engine.wire import pack

        left = replace(self.sampling, max_tokens=self.sampling.max_tokens - self.num_tokens)
        fields: dict[str, Any] = {
            "sampling": pack(left)[0], "stop_ids": list(stop_ids), "session": self.session,
            "owner": self.owner, "adapter": self.adapter, "deadline_s": max(seconds, 0.0),
        }
        sofar = [self.prompt_ids, *(c.ids for c in self.chunks)]
        arrays = {"prompt_ids": np.concatenate(sofar)}
        if self.pictures:
            fields["pictures"] = len(self.pictures)
            arrays |= {f"pictures.{i}": picture for i, picture in enumerate(self.pictures)}
        return Message("generate", self.wire_id, fields, arrays)

    def again(self) -> None:
        """Make ready for another attempt elsewhere."""
        self.attempt += 1
        self.base, self.worker = self.num_tokens, None

    def take(self, message: Message) -> bool:
        """Take a `generate.chunk`; return False for one that repeats what is known.

        Raises WireError for a chunk without usable ids: the attempt cannot go on from there.
        """
        ids = message.arrays.get("ids")
        if ids is None or ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise WireError("a chunk has one flat array of ids")
        start = int(message.get("start", -1)) + self.base
        if start < self.num_tokens:
            return False
        if start > self.num_tokens:
            raise WireError(f"a chunk starts at {start}; {self.num_tokens} tokens are known")
        chunk, problem = _checked(message.arrays, len(ids), self.sampling)
        self.problem = self.problem or problem
        self.chunks.append(chunk)
        self.num_tokens += len(ids)
        self.changed.set()
        return True

    def end(self, finish: FinishReason | None, error: GenerationError | None = None) -> None:
        if not self.is_over:
            self.finish, self.error = finish, error
            self.changed.set()

    def completion(self, finish: FinishReason, k: int) -> Completion:
        """Return all tokens as one record; chunks with other widths than [R, k] are a problem."""
        def join(name: str, dtype: Any) -> np.ndarray:
            parts = [getattr(c, name) for c in self.chunks]
            empty = np.zeros((0, k) if name.startswith("topk") else 0, dtype)
            return np.concatenate([empty, *parts]).astype(dtype, copy=False)

        rest: dict[str, Any] = {}
        if self.chunks and all(c.sampling_logps is not None for c in self.chunks):
            rest = {"sampling_logps": join("sampling_logps", np.float32)}
            if all(c.kept_counts is not None and c.kept_ids is not None for c in self.chunks):
                rest["kept_ids"] = join("kept_ids", np.int32)
                rest["kept_counts"] = join("kept_counts", np.int32)
        return Completion(
            join("ids", np.int32), join("logps", np.float32), join("topk_ids", np.int32),
            join("topk_logps", np.float32), join("versions", np.int32), finish, **rest,
        )


def _checked(
    arrays: dict[str, np.ndarray], n: int, sampling: Sampling
) -> tuple[Chunk, str]:
    """Return the chunk and what is wrong with it; wrong arrays are replaced by NaN, never used."""
    k = sampling.logprobs_k
    problems: list[str] = []

    def fit(name: str, shape: tuple[int, ...], dtype: Any, fill: Any) -> np.ndarray:
        a = arrays.get(name)
        if a is not None and a.shape == shape and a.dtype.kind in "iuf":
            return a.astype(dtype, copy=False)
        if 0 not in shape:
            problems.append(f"{name} is {'missing' if a is None else f'of shape {a.shape}'}")
        return np.full(shape, fill, dtype)

    ids = arrays["ids"].astype(np.int32, copy=False)
    logps = fit("logps", (n,), np.float32, np.nan)
    topk_ids = fit("topk_ids", (n, k), np.int32, -1)
    topk_logps = fit("topk_logps", (n, k), np.float32, np.nan)
    versions = fit("versions", (n,), np.int32, -1)
    # a chunk is a token or a few: lists are looked through sooner than numpy is called
    if not problems and not all(-math.inf < p <= 1e-3 for p in logps.tolist()):
        problems.append("a log-prob is not finite or above 0")
    if not problems and (any(p != p for p in topk_logps.ravel().tolist())
                         or min(versions.tolist(), default=0) < 0):
        problems.append("a top-k log-prob is not a number, or a token has no version")
    if min(ids.tolist(), default=0) < 0:
        problems.append("a token id is below 0")
    extra = {name: arrays[name] for name in ("sampling_logps", "kept_ids", "kept_counts")
             if name in arrays}
    return Chunk(ids, logps, topk_ids, topk_logps, versions, **extra), "; ".join(problems)
