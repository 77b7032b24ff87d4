"""Exact top-k whose ties go to the lowest id, on any device.

C rows, V vocabulary, B blocks of a row, k kept. torch.topk promises no order among equal values.
"""

import torch
from torch import Tensor

BLOCK = 128


def stable_topk(values_CV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The first k of a stable descending sort: (values_Ck, ids_Ck int64). 0 <= k <= V.

    Every kept element lies in one of the k blocks that come first by (maximum, lowest block):
    k blocks ahead of an element's own hold k elements ahead of it. So one pass finds the block
    maxima and only k blocks of candidates are sorted.
    """
    num_vocab = values_CV.shape[1]
    if k == 0:
        empty_C0 = values_CV[:, :0]
        return empty_C0, empty_C0.long()
    maxima_CB = _block_maxima(values_CV)
    blocks = maxima_CB.sort(dim=1, descending=True, stable=True).indices[:, :k]
    blocks = blocks.sort(dim=1).values  # candidates in id order make the last sort stable by id
    ids = blocks[:, :, None] * BLOCK + torch.arange(BLOCK, device=values_CV.device)
    ids = ids.flatten(1)
    inside = ids < num_vocab
    candidates = values_CV.gather(1, ids.clamp(max=num_vocab - 1))
    candidates = candidates.masked_fill(~inside, -torch.inf)
    top = candidates.sort(dim=1, descending=True, stable=True)
    return top.values[:, :k], ids.gather(1, top.indices[:, :k])


def _block_maxima(values_CV: Tensor) -> Tensor:
    full = values_CV.shape[1] // BLOCK * BLOCK
    maxima = [values_CV[:, :full].unflatten(1, (-1, BLOCK)).amax(dim=2)] if full else []
    if full < values_CV.shape[1]:
        maxima.append(values_CV[:, full:].amax(dim=1, keepdim=True))
    return torch.cat(maxima, dim=1)
