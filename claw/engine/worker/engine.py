"""What the host of an engine asks of it: token ids in; tokens, scores and other weights out.

Owns: the protocol `Engine` and its records. Does not own: requests of the actor (host), versions
(shelf). An engine knows no versions: its adapters have names, its base weights are a folder.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from claw.engine.tensors import Checksums
from claw.errors import ClawError
from claw.records import Sampling

Bucket = list[tuple[str, str, list[int]]]
"""what one broadcast holds: name, dtype as torch calls it, and shape of each tensor"""


class EngineError(ClawError):
    """One answer of the engine cannot be used; others go on."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One stretch of a reply: from a prompt on, with one set of weights."""

    rid: str
    """names it in the engine; never used twice"""
    ids: Sequence[int]
    """the prompt, and what was said before"""
    sampling: Sampling
    max_tokens: int
    stop_ids: tuple[int, ...]
    adapter: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The tokens that came since the last part; arrays as in `generate.chunk`, no versions."""

    arrays: dict[str, np.ndarray]
    finish: str
    """empty while it goes on; stop, length, or abort"""
    cached: int
    note: str = ""
    """the engine's words for an abort"""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Log-probs of each next id at temperature 1, from some position on; L - start = n + 1."""

    logps: np.ndarray
    """float32 [n]"""
    topk_ids: np.ndarray
    """int32 [n, K]"""
    topk_logps: np.ndarray


@dataclass(frozen=True, slots=True)
class Offer:
    """A version that waits for this engine in a group of torch.distributed, at rank 0."""

    name: str
    host: str
    port: int
    world: int
    buckets: tuple[Bucket, ...]


class Engine(Protocol):
    """An engine that runs in this process or below it. One event loop drives it."""

    vocab_size: int
    context: int
    """tokens of prompt + reply"""
    has_adapters: bool
    dtype: str
    """of its weights: float32, bfloat16 or float16"""
    device: str
    """cuda or cpu"""
    backend: str
    """of its groups: nccl or gloo"""
    num_ranks: int
    """that it has in a group"""

    def generate(self, ask: Ask) -> AsyncIterator[Part]:
        """Yield parts; the last one has a finish. EngineError: this answer is not usable."""

    async def score(
        self, rid: str, ids: Sequence[int], topk: int, adapter: str | None, start: int = 0
    ) -> Scores:
        """Score the ids after position `start`; those before may come from the prefix cache."""

    def abort(self, rid: str) -> None:
        """End a `generate` or `score` soon; it ends with finish abort, or raises EngineError."""

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Hold one adapter more; VersionError when the engine does not take it."""

    async def unload_adapter(self, name: str) -> None: ...

    async def load_weights(self, folder: Path) -> None:
        """Replace the base weights; nothing runs meanwhile. VersionError: the old ones serve."""

    async def read(self, files: Sequence[Path]) -> Any:
        """Have full weights at hand for `place` while requests run.

        None: this engine reads them in `load_weights`. VersionError: it cannot.
        """

    async def place(self, read: Any) -> None:
        """Replace the base weights by what was read; nothing runs meanwhile.

        VersionError: the weights may be mixed now.
        """

    async def join(self, offer: Offer) -> None:
        """Come into the group; VersionError: it is not in it, the old weights serve."""

    async def receive(self, offer: Offer, send: Callable[[int], Awaitable[None]]) -> None:
        """Replace the base weights by what `send(i)` has broadcast, and leave the group.

        Nothing runs meanwhile. VersionError: the weights may be mixed now.
        """

    async def checksums(self) -> Checksums:
        """Checksums of the base weights that it holds (`tensors`); empty when it has none."""

    def close(self) -> None: ...
