"""Scoring without gradients: what a set of weights says of given tokens and of its own favourites.

T tokens, H hidden size, V vocabulary size, C rows of a chunk, n given ids, k top ids.
"""

from dataclasses import dataclass

import torch
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
from claw.kernels.chunk import entropy, logits_into, softmax_into
from claw.kernels.topk import stable_topk


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
    chunk_tokens: int = 256,
) -> Score:
    """Score the tokens of one pass, a chunk of rows at a time.

    hidden [T, H], weight [V, H] of one float dtype; ids [T, n] int64 or None, -1 is padding;
    temperature a number or a float [T]. The order of the top-k is that of the logits before the
    temperature, so it does not depend on it.
    log p_v = z_v / tau - lse,  lse = log sum_j exp(z_j / tau),  H = -sum_j p_j log p_j.
    ValueError: a shape, dtype, device, id, topk or temperature out of range, NaN in a matrix.
    """
    num_tokens, num_vocab = check_linear(hidden, weight, chunk_tokens)
    if isinstance(topk, bool) or not isinstance(topk, int) or not 0 <= topk <= num_vocab:
        refuse("topk", topk, f"0 to {num_vocab}, the vocabulary")
    if ids is not None:
        width = ids.shape[1] if isinstance(ids, Tensor) and ids.ndim == 2 else 1
        check_tensor("ids", ids, (num_tokens, width), torch.int64, hidden.device)
        check_ids("ids", ids, -1, num_vocab)
    tau_T = temperature_vector(temperature, hidden)
    check_temperature(temperature, tau_T)
    out = _empty_score(hidden, ids, topk)
    rows = min(chunk_tokens, num_tokens)
    logits, exps = hidden.new_empty(2, rows, num_vocab, dtype=torch.float32)
    for start in range(0, num_tokens, chunk_tokens):
        part = slice(start, min(start + chunk_tokens, num_tokens))
        size = part.stop - start
        logits_into(logits[:size], hidden[part], weight)
        _score_chunk(out, part, ids, topk, 1.0 / tau_T[part], logits[:size], exps[:size])
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


def _score_chunk(
    out: Score,
    part: slice,
    ids: Tensor | None,
    topk: int,
    inv_tau_C: Tensor,
    logits_CV: Tensor,
    exp_CV: Tensor,
) -> None:
    """Fill the rows of one chunk; logits are overwritten, so the top-k comes first."""
    out.topk_ids[part] = stable_topk(logits_CV, topk)[1]
    peak_C, sum_C = softmax_into(exp_CV, logits_CV, inv_tau_C)
    log_sum_C = sum_C.log()
    out.lse[part] = peak_C + log_sum_C
    out.entropy[part] = entropy(exp_CV, logits_CV, sum_C)
    out.topk_logp[part] = logits_CV.gather(1, out.topk_ids[part]) - log_sum_C[:, None]
    if ids is not None and out.logp is not None:
        given = ids[part]
        logp = logits_CV.gather(1, given.clamp(min=0)) - log_sum_C[:, None]
        out.logp[part] = logp.masked_fill(given < 0, 0.0)
