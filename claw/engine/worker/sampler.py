"""Draw one token for every row of a batch, with the log-probs that training needs.

Owns: logits -> ids, log-probs, top-k, and what truncation kept.
Does not own: requests and their generators (slots), stop rules (the backend).

B rows, V vocabulary, K top-k entries, C candidates of truncation. Everything is done for the whole
batch at once; each row brings one uniform number of its own generator, so its tokens do not depend
on who else is in the batch, nor on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from claw.kernels.topk import stable_topk
from claw.records import Sampling

CANDIDATES = 512
"""best ids looked at first under top-p/top-k; a row that needs more is sorted whole"""


@dataclass(frozen=True, slots=True)
class Draw:
    """One sampled token per row, on the CPU."""

    ids: np.ndarray
    """int32 [B]"""
    logps: np.ndarray
    """float32 [B] log softmax(logits / temperature), before truncation"""
    topk_ids: np.ndarray
    """int32 [B, K], K the largest that a row asked for; ties to the lowest id"""
    topk_logps: np.ndarray
    sampling_logps: np.ndarray
    """float32 [B] after truncation; equal to logps where there was none"""
    kept_ids: list[np.ndarray | None]
    """int32 per truncated row, most likely first; None for the others"""


def draw(logits_BV: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]) -> Draw:
    """Sample one id per row; `uniforms` are in [0, 1), one per row."""
    logits_BV = logits_BV.float()
    logps_BV = log_probs(logits_BV, [s.temperature for s in samplings])
    u_B = torch.tensor(uniforms, dtype=torch.float64, device=logits_BV.device)
    ids_B = _choose(logits_BV, logps_BV, samplings, u_B)
    kept: list[np.ndarray | None] = [None] * len(samplings)
    cut = [i for i, s in enumerate(samplings) if s.is_truncated]
    sampling_logps_B = logps_BV.gather(1, ids_B[:, None])[:, 0].clone()
    if cut:
        rows = torch.tensor(cut, device=logits_BV.device)
        chosen, logps, ids_by_row = _draw_truncated(
            logits_BV[rows], logps_BV[rows], [samplings[i] for i in cut], u_B[rows]
        )
        ids_B[rows], sampling_logps_B[rows] = chosen, logps
        for i, ids in zip(cut, ids_by_row, strict=True):
            kept[i] = ids
    topk_ids, topk_logps = _topk(logits_BV, logps_BV, max(s.logprobs_k for s in samplings))
    return Draw(
        _int32(ids_B), _float32(logps_BV.gather(1, ids_B[:, None])[:, 0]),
        topk_ids, topk_logps, _float32(sampling_logps_B), kept,
    )


def log_probs(logits_BV: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Log softmax(logits / temperature); greedy rows (temperature 0) at temperature 1."""
    if all(t in (0.0, 1.0) for t in temperatures):
        return torch.log_softmax(logits_BV.float(), dim=-1)
    scale = torch.tensor([t or 1.0 for t in temperatures], device=logits_BV.device)
    return torch.log_softmax(logits_BV.float() / scale[:, None], dim=-1)


def score_rows(
    logits_TV: Tensor, next_ids: np.ndarray, temperature: float, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (log-probs of the next ids float32 [T], top-k ids int32 [T, K], top-k log-probs)."""
    logits_TV = logits_TV.float()
    logps_TV = log_probs(logits_TV, [temperature] * len(logits_TV))
    ids_T = torch.as_tensor(next_ids, dtype=torch.int64, device=logits_TV.device)
    topk_ids, topk_logps = _topk(logits_TV, logps_TV, k)
    return _float32(logps_TV.gather(1, ids_T[:, None])[:, 0]), topk_ids, topk_logps


def _topk(logits_BV: Tensor, logps_BV: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    # ids from the logits: rounding in the softmax makes ties that the logits do not have
    ids = stable_topk(logits_BV, k)[1]
    return _int32(ids), _float32(logps_BV.gather(1, ids))


def _choose(
    logits_BV: Tensor, logps_BV: Tensor, samplings: Sequence[Sampling], u_B: Tensor
) -> Tensor:
    """Greedy and untruncated rows; truncated ones are overwritten later."""
    greedy = [s.temperature == 0 for s in samplings]
    if all(greedy):
        return logits_BV.argmax(dim=1)
    if any(s.temperature > 0 and not s.is_truncated for s in samplings):
        ids_B = _invert(logps_BV.exp(), u_B)
    else:
        ids_B = torch.zeros_like(u_B, dtype=torch.int64)
    if any(greedy):
        is_greedy = torch.tensor(greedy, device=ids_B.device)
        ids_B = torch.where(is_greedy, logits_BV.argmax(dim=1), ids_B)
    return ids_B


def _invert(probs_BV: Tensor, u_B: Tensor) -> Tensor:
    """Index at which the cumulative sum passes u * total; never one of probability 0."""
    cdf_BV = _cumsum(probs_BV)
    total_B = cdf_BV[:, -1].clone()
    below = torch.nextafter(total_B, torch.zeros_like(total_B))
    target_B = torch.minimum(u_B.to(cdf_BV) * total_B, below)
    ids = torch.searchsorted(cdf_BV, target_B[:, None], right=True)[:, 0]
    return ids.clamp(max=probs_BV.shape[1] - 1)


def _cumsum(probs: Tensor) -> Tensor:
    # float64: over a large vocabulary float32 would move probability between ids; MPS has none
    dtype = torch.float32 if probs.device.type == "mps" else torch.float64
    return probs.to(dtype).cumsum(dim=1)


def _draw_truncated(
    logits_BV: Tensor, logps_BV: Tensor, samplings: Sequence[Sampling], u_B: Tensor
) -> tuple[Tensor, Tensor, list[np.ndarray]]:
    """Sample after top-k and then top-p of what top-k left, each renormalised.

    Returns (ids [B], log-probs after truncation [B], kept ids of each row, most likely first).
    """
    num_vocab = logits_BV.shape[1]
    order_BC, counts_B, is_sure = _rank(logits_BV, logps_BV, samplings, min(CANDIDATES, num_vocab))
    if not bool(is_sure.all()):
        order_BC, counts_B, _ = _rank(logits_BV, logps_BV, samplings, num_vocab)
    kept_BC = logps_BV.gather(1, order_BC)
    outside = torch.arange(order_BC.shape[1], device=order_BC.device) >= counts_B[:, None]
    kept_BC = kept_BC.masked_fill(outside, -torch.inf)
    ranks = _invert(kept_BC.exp(), u_B)[:, None]
    logps = kept_BC.gather(1, ranks)[:, 0] - kept_BC.logsumexp(dim=1)
    order, counts = _int32(order_BC), counts_B.tolist()
    kept_ids = [row[:n].copy() for row, n in zip(order, counts, strict=True)]
    return order_BC.gather(1, ranks)[:, 0], logps, kept_ids


def _rank(
    logits_BV: Tensor, logps_BV: Tensor, samplings: Sequence[Sampling], num_candidates: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Order ids by (logit, lowest id) and count how many truncation keeps.

    Returns (ids [B, C], counts [B], whether C candidates were enough to be exact [B]).
    """
    num_vocab = logits_BV.shape[1]
    order = torch.topk(logits_BV, num_candidates, dim=1).indices.sort(dim=1).values
    by_value = logits_BV.gather(1, order).sort(dim=1, descending=True, stable=True)
    order, values = order.gather(1, by_value.indices), by_value.values
    probs = logps_BV.gather(1, order).exp()
    ranks = torch.arange(num_candidates, device=order.device)
    top_k = torch.tensor([s.top_k or num_vocab for s in samplings], device=order.device)
    top_p = torch.tensor([s.top_p for s in samplings], device=order.device)
    in_topk = ranks < top_k[:, None]
    whole = top_k >= num_vocab
    mass = torch.where(whole, 1.0, (probs * in_topk).sum(dim=1))
    before = (probs.cumsum(dim=1) - probs) / mass[:, None]
    counts = (in_topk & ((before < top_p[:, None]) | (top_p[:, None] >= 1))).sum(dim=1)
    if num_candidates == num_vocab:
        return order, counts, torch.ones_like(whole)
    # a kept id that ties with the last candidate could have equals that were not looked at
    last = values.gather(1, (counts - 1).clamp(min=0)[:, None])[:, 0]
    is_exact = whole | (top_k <= num_candidates)
    return order, counts, is_exact & (counts < num_candidates) & (last > values[:, -1])


def _int32(t: Tensor) -> np.ndarray:
    return t.to("cpu", torch.int32).numpy()


def _float32(t: Tensor) -> np.ndarray:
    return t.to("cpu", torch.float32).numpy()
