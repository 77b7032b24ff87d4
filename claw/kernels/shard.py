"""A vocabulary split over ranks: each holds some rows of the weight, all see the same tokens.

Owns: which ids are here, and what the ranks tell each other, in float32.
Does not own: the passes over the logits, which see one shard and do not know of others.

C rows of a chunk, H hidden size, J ids of a row, k top ids. Every rank calls with the same
arguments but its own rows of the weight; the ranks must go through the same collectives.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from claw.kernels.check import refuse
from claw.kernels.chunk import Reading


@dataclass(frozen=True)
class Shard:
    """Rows [first, first + size) of a vocabulary of num_vocab; without a group all of it."""

    group: dist.ProcessGroup | None
    first: int
    size: int
    num_vocab: int
    largest: int
    """rows of the largest shard, from which every rank derives the same chunks"""

    @classmethod
    def of(
        cls, group: dist.ProcessGroup | None, hidden_TH: Tensor, size: int, **same: int
    ) -> "Shard":
        """Ask the other ranks; `same` are numbers that must be equal on all of them.

        ValueError, on every rank: they differ, or the tokens or the hidden size do.
        """
        if group is None:
            return cls(None, 0, size, size, size)
        facts = {"size": size, "tokens": hidden_TH.shape[0], "H": hidden_TH.shape[1]} | same
        mine = torch.tensor(list(facts.values()), dtype=torch.int64, device=hidden_TH.device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(everyone, mine, group=group)
        columns = dict(zip(facts, torch.stack(everyone).t().tolist(), strict=True))
        sizes, rank = columns.pop("size"), dist.get_rank(group)
        for name, values in columns.items():
            if len(set(values)) > 1:
                refuse("process_group", f"{name} {values} by rank", "the same on every rank")
        return cls(group, sum(sizes[:rank]), size, sum(sizes), max(sizes))

    def local(self, ids: Tensor) -> Tensor:
        """The rows of the weight here that these ids have, -1 for all others."""
        if self.group is None:
            return ids
        here = ids - self.first
        return here.masked_fill((here < 0) | (here >= self.size), -1)

    def merge(self, reading: Reading, inv_tau_C: Tensor, topk: int) -> Reading:
        """The reading of the whole vocabulary, equal on all ranks; its top ids are global."""
        if self.group is None:
            return reading
        peak_C = reading.peak_C.clone()
        dist.all_reduce(peak_C, dist.ReduceOp.MAX, group=self.group)
        shift_C = (reading.peak_C - peak_C) * inv_tau_C
        carry_C = shift_C.exp()
        shift_C = shift_C.masked_fill(reading.sum_C == 0, 0.0)  # 0 * -inf is NaN
        sum_C, dot_C = carry_C * reading.sum_C, reading.dot_C + reading.sum_C * shift_C
        # one collective for all sums; an id's logit comes from its one shard, zeros from the rest
        sums = torch.cat([sum_C[:, None], (carry_C * dot_C)[:, None], reading.picked_CJ], dim=1)
        self.add_up(sums)
        top_Ck, top_ids_Ck = self._merge_top(reading.top_Ck, reading.top_ids_Ck + self.first, topk)
        return Reading(peak_C, sums[:, 0], sums[:, 1], sums[:, 2:], top_Ck, top_ids_Ck)

    def add_up(self, values: Tensor) -> Tensor:
        """Sum over ranks, in place."""
        if self.group is not None:
            dist.all_reduce(values, group=self.group)
        return values

    def _merge_top(self, top_Ck: Tensor, ids_Ck: Tensor, topk: int) -> tuple[Tensor, Tensor]:
        """The first topk of all ranks' candidates; equal logits by global id."""
        if topk == 0:
            return top_Ck, ids_Ck
        missing = (0, topk - top_Ck.shape[1])  # of a shard smaller than topk
        values = self._gather(nn.functional.pad(top_Ck, missing, value=-torch.inf))
        ids = self._gather(nn.functional.pad(ids_Ck, missing, value=self.num_vocab))
        # Ranks come in id order, so two stable sorts rank equal logits by id, and what is missing
        # behind a logit of -inf.
        order = (ids == self.num_vocab).sort(dim=1, stable=True).indices
        top = values.gather(1, order).sort(dim=1, descending=True, stable=True)
        ids = ids.gather(1, order).gather(1, top.indices[:, :topk])
        return top.values[:, :topk].contiguous(), ids

    def _gather(self, values_Ck: Tensor) -> Tensor:
        parts = [torch.empty_like(values_Ck) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, values_Ck, group=self.group)
        return torch.cat(parts, dim=1)
