"""The truth of the tests: the same functions in plain torch, full logits, autograd, no chunks.

T tokens, N hints, H hidden size, V vocabulary size, K ids. Computes in float64 if given float64,
else in float32, checks nothing, and ignores `chunk_tokens`.
"""

import torch
from torch import Tensor

from claw.kernels.overlap import Overlap
from claw.kernels.score import Score


def _logp(hidden: Tensor, weight: Tensor, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """-> (logits before the temperature, log softmax(logits / temperature)), both [T, V]."""
    logits = hidden @ weight.t()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    tau = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    return logits, (logits / tau).log_softmax(dim=1)


def _entropy(logp_TV: Tensor) -> Tensor:
    return -(logp_TV.exp() * logp_TV).sum(dim=1)


@torch.no_grad()
def score(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor | None = None,
    topk: int = 0,
    temperature: float | Tensor = 1.0,
    chunk_tokens: int | None = None,
) -> Score:
    """See `claw.kernels.score.score`."""
    logits, logp = _logp(hidden, weight, temperature)
    tau = temperature[:, None] if isinstance(temperature, Tensor) else temperature
    topk_ids = logits.sort(dim=1, descending=True, stable=True).indices[:, :topk]
    given = None if ids is None else torch.where(ids >= 0, logp.gather(1, ids.clamp(min=0)), 0.0)
    return Score(
        (logits / tau).logsumexp(dim=1), _entropy(logp), given, topk_ids, logp.gather(1, topk_ids)
    )


@torch.no_grad()
def overlap(student_ids: Tensor, teacher_ids: Tensor, mask: Tensor) -> Overlap:
    """See `claw.kernels.overlap.overlap`."""
    same_NTKK = student_ids[None, :, :, None] == teacher_ids[:, :, None, :]
    counted_NTK = same_NTKK.any(dim=3) & (student_ids >= 0) & mask[:, None]
    per_token = counted_NTK.sum(dim=2)
    per_hint = per_token.sum(dim=1)
    best_per_token = [column.index(max(column)) for column in per_token.t().tolist()]
    best = per_hint.tolist().index(int(per_hint.max()))
    return Overlap(per_token, per_hint, best, torch.tensor(best_per_token, dtype=torch.int64))


def hybrid_loss(
    hidden: Tensor,
    weight: Tensor,
    *,
    ids: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    rl_weight: Tensor,
    topk_ids: Tensor | None = None,
    topk_old_logp: Tensor | None = None,
    topk_advantage: Tensor | None = None,
    opd_weight: Tensor | None = None,
    ref_logp: Tensor | None = None,
    kl_weight: Tensor | None = None,
    entropy_weight: Tensor | None = None,
    is_weight: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """See `claw.kernels.hybrid.hybrid_loss`; here hidden is finite also where no term is."""
    logp_TV = _logp(hidden, weight, temperature)[1]
    entropy_T = _entropy(logp_TV)
    zeros = torch.zeros_like(old_logp)
    if is_weight is not None:
        rl_weight = torch.where(rl_weight != 0, rl_weight * is_weight, 0.0)
    if topk_ids is None:
        topk_ids, opd_weight = torch.full_like(ids[:, None], -1), zeros
        topk_old_logp = topk_advantage = zeros[:, None]
    if ref_logp is None:
        ref_logp = kl_weight = zeros
    entropy_weight = zeros if entropy_weight is None else entropy_weight
    clip = (1 - clip_low, 1 + clip_high)
    rl = _surrogate(logp_TV, ids[:, None], old_logp[:, None], advantage[:, None], rl_weight, clip)
    opd = _surrogate(logp_TV, topk_ids, topk_old_logp, topk_advantage, opd_weight, clip)
    kl_on = (kl_weight != 0) & (ref_logp != -torch.inf)
    d = (ref_logp[kl_on] - logp_TV[kl_on, ids[kl_on]]).clamp(-10, 10)
    parts = {
        "rl_loss": rl["loss"],
        "opd_loss": opd["loss"],
        "kl_loss": (kl_weight[kl_on] * (d.exp() - d - 1)).sum(),
        "entropy_loss": -(entropy_weight * entropy_T).sum(),
    }
    row_on = rl["on"].any(dim=1) | opd["on"].any(dim=1) | kl_on | (entropy_weight != 0)
    kl_missing = ((kl_weight != 0) & ~kl_on).sum()
    metrics = parts | {
        "entropy": entropy_T[row_on].sum(),
        "tokens": row_on.sum(),
        "missing_logp": rl["missing"] + opd["missing"] + kl_missing,
    }
    metrics |= _counts(rl, opd)
    return sum(parts.values()), {name: value.detach().float() for name, value in metrics.items()}


def _surrogate(
    logp_TV: Tensor,
    ids_TJ: Tensor,
    old_TJ: Tensor,
    advantage_TJ: Tensor,
    weight_T: Tensor,
    clip: tuple[float, float],
) -> dict[str, Tensor]:
    """Sum of weight * max(-A rho, -A clip(rho)) over the entries that count, and what was seen."""
    wanted = (weight_T != 0)[:, None] & (ids_TJ != -1)
    on = wanted & (old_TJ != -torch.inf)
    row = on.nonzero()[:, 0]
    log_ratio = logp_TV[row, ids_TJ[on]] - old_TJ[on]
    rho, advantage = log_ratio.clamp(-20, 20).exp(), advantage_TJ[on]
    free, held = -advantage * rho, -advantage * rho.clamp(*clip)
    return {
        "loss": (weight_T[row] * torch.maximum(free, held)).sum(),
        "on": on,
        "missing": (wanted & ~on).sum(),
        "clipped": held > free,
        "advantage": advantage,
        "log_ratio": log_ratio.detach(),
    }


def _counts(rl: dict[str, Tensor], opd: dict[str, Tensor]) -> dict[str, Tensor]:
    log_ratio = rl["log_ratio"]
    clamped = log_ratio.clamp(-20, 20)
    return {
        "clip_low_count": (rl["clipped"] & (rl["advantage"] < 0)).sum(),
        "clip_high_count": (rl["clipped"] & (rl["advantage"] > 0)).sum(),
        "opd_clip_count": opd["clipped"].sum(),
        "rl_tokens": rl["on"].sum(),
        "opd_tokens": opd["on"].any(dim=1).sum(),
        "abs_log_ratio_sum": log_ratio.abs().sum(),
        "abs_log_ratio_max": torch.cat([log_ratio.abs(), log_ratio.new_zeros(1)]).max(),
        "approx_kl": (clamped.exp() - clamped - 1).sum(),
    }
