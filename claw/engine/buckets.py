"""Tensors in buckets: what goes to an engine in one message.

Owns: which tensors go together. Does not own: how they get there (trainer.sender, worker.sglang).
"""

from collections.abc import Mapping
from typing import Any

from claw.engine import tensors

BUCKET = 64 * 1024 * 1024
"""bytes of one bucket, unless one tensor is larger"""

Entry = tuple[str, str, list[int]]
"""of a tensor: name, dtype as torch calls it, shape"""


def plan(held: Mapping[str, Any]) -> list[list[Entry]]:
    """Torch's tensors in buckets of one dtype each, so that each begins where its dtype may."""
    buckets: list[list[Entry]] = []
    size, dtype = 0, None
    for name in sorted(held, key=lambda n: (str(held[n].dtype), tensors.natural(n))):
        tensor = held[name]
        if not buckets or tensor.dtype != dtype or size + tensor.nbytes > BUCKET:
            buckets.append([])
            size, dtype = 0, tensor.dtype
        buckets[-1].append((name, str(dtype).removeprefix("torch."), list(tensor.shape)))
        size += tensor.nbytes
    return buckets
