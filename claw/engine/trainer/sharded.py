"""Weights in shards: each rank keeps its rows of every parameter (FSDP2).

Owns: what is sharded with what, whole tensors out of shards, shards out of whole tensors.
Does not own: which ranks there are (ranks), the model (model).

A layer's whole weights exist while it is computed. What is outside the layers, the head among it,
is one group that stays whole from a forward pass to the end of its backward pass, as the loss uses
the head beside the model. Gradients are summed over the ranks, not averaged: the loss's weights
hold the normaliser of the whole batch.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


class Whole(nn.Module):
    """The model as one module, so that the head is in a group too; its call is the decoder's."""

    def __init__(
        self, lm: nn.Module, forward: Callable[..., Tensor], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.lm, self._forward, self.dtype = lm, forward, dtype

    def forward(self, *args: Any) -> Tensor:
        return self._forward(*args)

    def gather(self) -> None:
        """Have the group of the head whole; every rank must."""
        self.unshard()

    def settle(self) -> None:
        """Give up what is whole: the next pass gathers the weights as they are by then."""
        self.reshard()


def shard(
    lm: Any, forward: Callable[..., Tensor], device: torch.device, dtype: torch.dtype
) -> Whole:
    """Split the model over all ranks. `dtype` is what it computes in.

    Trained weights are kept in float32: they are the optimiser's truth, and each pass gathers them
    rounded to `dtype`. Frozen ones are kept as they are. Gradients are summed in float32.
    """
    mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
    trained = {p.dtype for p in lm.parameters() if p.requires_grad}
    frozen = any(not p.requires_grad for p in lm.parameters())
    rounds = None if frozen or trained == {dtype} else dtype
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(
        param_dtype=rounds, reduce_dtype=torch.float32)}
    layers = set(getattr(lm, "_no_split_modules", None) or ())
    for module in list(lm.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, **options)
    whole = fully_shard(Whole(lm, forward, dtype), reshard_after_forward=False, **options)
    for module in whole.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other
    return whole


def full(tensor: Tensor) -> Tensor:
    """The whole of a tensor that may be in shards; every rank must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fulls(named: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """The whole tensors on the CPU, one after the other; every rank must ask, `keep` says who wants
    them. One that has two names comes as one.
    """
    found: dict[str, Tensor] = {}
    seen: dict[int, Tensor] = {}
    for name, tensor in named.items():
        if id(tensor) not in seen:
            whole = full(tensor.detach()).cpu()
            seen[id(tensor)] = whole if keep else whole.new_empty(0)
        found[name] = seen[id(tensor)]
    return found if keep else {}


@torch.no_grad()
def fill(named: Mapping[str, Tensor], stored: Mapping[str, Tensor] | None) -> None:
    """Put rank 0's whole tensors into the shards of all; the other ranks have None.

    KeyError: a name is missing, before anything is sent.
    """
    values = iter([stored[name] for name, _ in _once(named)]) if stored is not None else None
    for _, tensor in _once(named):
        value = next(values) if values else torch.empty(tensor.shape)
        value = value.to(tensor.device, tensor.dtype)
        if isinstance(tensor, DTensor):
            tensor.copy_(distribute_tensor(value, tensor.device_mesh, tensor.placements,
                                           src_data_rank=0))
        else:
            dist.broadcast(value, src=0)
            tensor.copy_(value)


def _once(named: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    seen: set[int] = set()
    for name, tensor in named.items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor
