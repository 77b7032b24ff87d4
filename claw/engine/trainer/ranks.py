"""The processes that train together: what the first of them tells, and what all agree on.

Owns: words between ranks, agreement, the group of torch.distributed.
Does not own: what is told (the functions that do it, follow), the weights' shards (sharded).

Rank 0 alone speaks to the actor and decides. Before it does what needs all ranks it tells the
others, who do the same (follow). Within a step nothing is told: every rank runs the same code over
its own share. Words are messages of the wire as bytes in tensors; nothing is pickled.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from claw.engine import wire
from claw.errors import UsageError, WireError

MAX_BYTES = 1 << 32
"""of one word: a batch with all its pictures"""
PIECE = 1 << 26
"""bytes of one transfer"""
PATIENCE_S = 1800.0
"""how long a rank waits for the others: while the first writes a version to a slow disk"""


class Ranks:
    """This process among those that train together; alone by default."""

    def __init__(self, rank: int = 0, size: int = 1, group: dist.ProcessGroup | None = None):
        """`group` carries words: tensors on the CPU."""
        self.rank, self.size, self._group = rank, size, group
        self.together = False
        """every rank runs the same code now: nothing is told, and agreement is asked of all"""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    @property
    def words(self) -> dist.ProcessGroup | None:
        return self._group

    # --- rank 0 tells ------------------------------------------------------------------------

    def tell(self, type: str, **fields: Any) -> None:
        """Have the others do what this process does next (`follow`)."""
        self.tell_all_of(wire.Message(type, "", fields))

    def tell_all_of(self, message: wire.Message) -> None:
        if self.size > 1 and self.is_first and not self.together:
            _broadcast(_join(wire.encode(message)), self._group)

    def hear(self) -> wire.Message:
        """What rank 0 tells next. RuntimeError of torch: it is gone."""
        return wire.decode(_cut(_broadcast(None, self._group)))

    # --- all agree ---------------------------------------------------------------------------

    @contextmanager
    def in_step(self) -> Iterator[None]:
        """Every rank is in here, or none."""
        self.together = True
        try:
            yield
        finally:
            self.together = False

    def any(self, said: bool) -> bool:
        """Whether one of the ranks says so; the process alone where each is on its own."""
        if self.size == 1 or not self.together:
            return said
        votes = torch.tensor([int(said)])
        dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self._group)
        return bool(votes)

    def gather(self, message: wire.Message) -> list[wire.Message]:
        """Bring a message of each rank to the first, in the order of the ranks; [] elsewhere."""
        if self.size == 1:
            return [message]
        if not self.is_first:
            _send(_join(wire.encode(message)), self._group)
            return []
        others = (wire.decode(_cut(_receive(i, self._group))) for i in range(1, self.size))
        return [message, *others]


def open_ranks(meeting: str, device: str) -> Ranks:
    """Join the group that torchrun's environment describes. UsageError: not a group's process.

    meeting: a file in a folder of one's own, through which the ranks of one machine find each
    other; empty takes the address in the environment.
    """
    try:
        rank, size, local = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    except (KeyError, ValueError) as error:
        raise UsageError("this process is not one of several ranks", found=f"no {error}",
                         do="start it with torchrun, or through claw train") from error
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    times = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        backend, rank=rank, world_size=size, timeout=timedelta(seconds=PATIENCE_S),
        # a group that is started again meets in a file of its own
        init_method=f"file://{Path(meeting).resolve()}.{times}" if meeting else "env://",
    )
    return Ranks(rank, size, dist.new_group(backend="gloo"))


# --- bytes in tensors --------------------------------------------------------------------------


def _join(frames: list[Any]) -> tuple[int, bytearray]:
    """-> (number of frames, their sizes as int64 and then their bytes)."""
    sizes = [len(memoryview(f).cast("B")) for f in frames]
    if sum(sizes) > MAX_BYTES:
        raise WireError(f"{sum(sizes)} bytes are too many for one step; allowed: {MAX_BYTES}")
    raw = bytearray(torch.tensor(sizes).numpy().tobytes())
    for frame in frames:
        raw += frame
    return len(frames), raw


def _cut(joined: tuple[int, bytearray]) -> list[memoryview]:
    count, raw = joined
    view, at, frames = memoryview(raw), 8 * count, []
    for size in torch.frombuffer(raw, dtype=torch.int64, count=count).tolist():
        frames.append(view[at : at + size])
        at += size
    return frames


def _pieces(raw: bytearray) -> tuple[Tensor, ...]:
    return torch.frombuffer(raw, dtype=torch.uint8).split(PIECE)


def _room(head: Tensor) -> tuple[int, bytearray]:
    count, size = head.tolist()
    if not (0 < count <= wire.MAX_FRAMES and 8 * count <= size <= MAX_BYTES + 8 * count):
        raise WireError(f"no such words: {count} frames of {size} bytes")
    return count, bytearray(size)


def _broadcast(
    said: tuple[int, bytearray] | None, group: dist.ProcessGroup | None
) -> tuple[int, bytearray]:
    head = torch.tensor([said[0], len(said[1])] if said else [0, 0])
    dist.broadcast(head, src=0, group=group)
    said = said or _room(head)
    for piece in _pieces(said[1]):
        dist.broadcast(piece, src=0, group=group)
    return said


def _send(said: tuple[int, bytearray], group: dist.ProcessGroup | None) -> None:
    dist.send(torch.tensor([said[0], len(said[1])]), dst=0, group=group)
    for piece in _pieces(said[1]):
        dist.send(piece, dst=0, group=group)


def _receive(rank: int, group: dist.ProcessGroup | None) -> tuple[int, bytearray]:
    head = torch.zeros(2, dtype=torch.int64)
    dist.recv(head, src=rank, group=group)
    said = _room(head)
    for piece in _pieces(said[1]):
        dist.recv(piece, src=rank, group=group)
    return said
