"""Scoring without gradients: what a set of weights says of given tokens and of its own favourites.

T tokens, H hidden size, V vocabulary size, C rows of a chunk, n given ids, k top ids.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from claw.kernels.check import (
    check_finite_result,
    check_ids,
    check_linear,
    check_temperature,
    check_tensor,
    refuse,
    temperature_vector,
)
from claw.kernels.chunk import Chunk, open_chunk, rows_of
from claw.kernels.shard import Shard
from claw.kernels.softmax import Softmax


@dataclass(frozen=True)
class Score:
    """All float32 but the ids; log-probs are of softmax(logits / temperature)."""

    lse: Tensor
    """[T] log-sum-exp of logits / temperature"""
    entropy: Tensor
    """[T] in nats"""
    logp: Tensor | None
    """[T, n] at the given ids, 0 where the id is -1; None if no ids were given"""
    topk_ids: Tensor
    """[T, k] int64, best first, equal logits in id order"""
    topk_logp: Tensor
    """[T, k]"""


@torch.no_grad()
def score(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor | None = None,
    topk: int = 0,
    temperature: float | Tensor = 1.0,
    chunk_tokens: int | None = None,
    process_group: dist.ProcessGroup | None = None,
) -> Score:
    """Score the tokens of one pass, a chunk of rows at a time.

    hidden [T, H], weight [V, H] of one float dtype; ids [T, n] int64 or None, -1 is padding;
    temperature a number or a float [T]. The order of the top-k is that of the logits before the
    temperature, so it does not depend on it.
    With a process_group the weight is this rank's rows of the vocabulary, in the order of the
    ranks, ids are those of the whole, and every rank gets the whole result; all else must be the
    same on every rank.
    log p_v = z_v / tau - lse,  lse = log sum_j exp(z_j / tau),  H = -sum_j p_j log p_j.
    ValueError: a shape, dtype, device, id, topk or temperature out of range, NaN in a matrix.
    """
    num_tokens = check_linear(hidden, weight, chunk_tokens)
    width = ids.shape[1] if isinstance(ids, Tensor) and ids.ndim == 2 else 1
    if isinstance(topk, bool) or not isinstance(topk, int):
        refuse("topk", repr(topk), "a whole number")
    shard = Shard.of(process_group, hidden, len(weight), topk=topk, ids=0 if ids is None else width)
    num_vocab = shard.num_vocab
    if not 0 <= topk <= num_vocab:
        refuse("topk", topk, f"0 to {num_vocab}, the vocabulary")
    if ids is not None:
        check_tensor("ids", ids, (num_tokens, width), torch.int64, hidden.device)
        check_ids("ids", ids, -1, num_vocab)
    tau_T = temperature_vector(temperature, hidden)
    check_temperature(temperature, tau_T)
    out = _empty_score(hidden, ids, topk)
    rows = rows_of(chunk_tokens, hidden, shard.largest)
    chunk = open_chunk(hidden, min(rows, num_tokens), shard.size)
    for start in range(0, num_tokens, rows):
        part = slice(start, min(start + rows, num_tokens))
        chunk.fill(hidden[part], weight)
        _score_rows(out, part, chunk, shard, ids, topk, 1.0 / tau_T[part])
    check_finite_result(out.lse, hidden, slice(None))
    return out


def _empty_score(hidden: Tensor, ids: Tensor | None, topk: int) -> Score:
    def empty(*shape: int) -> Tensor:
        return hidden.new_empty(hidden.shape[0], *shape, dtype=torch.float32)

    return Score(
        lse=empty(),
        entropy=empty(),
        logp=None if ids is None else empty(ids.shape[1]),
        topk_ids=empty(topk).long(),
        topk_logp=empty(topk),
    )


def _score_rows(
    out: Score,
    part: slice,
    chunk: Chunk,
    shard: Shard,
    ids: Tensor | None,
    topk: int,
    inv_tau_C: Tensor,
) -> None:
    """Write what the filled chunk says of its rows."""
    given = out.topk_ids.new_empty(len(inv_tau_C), 0) if ids is None else ids[part]
    mine = chunk.read(inv_tau_C, shard.local(given), min(topk, shard.size))
    reading = shard.merge(mine, inv_tau_C, topk)
    softmax = Softmax.of(reading, inv_tau_C)
    out.lse[part], out.entropy[part] = softmax.lse_C, softmax.entropy_C
    out.topk_ids[part], out.topk_logp[part] = reading.top_ids_Ck, softmax.logp(reading.top_Ck)
    if out.logp is not None:
        out.logp[part] = softmax.logp(reading.picked_CJ).masked_fill(given < 0, 0.0)
