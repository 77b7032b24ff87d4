"""What the losses are made of, a token at a time: numbers [R, J], never anything [R, V].

T tokens, R rows with at least one term, V vocabulary size, K top-k ids of a token, J = 1 + K ids
of a row: column 0 the sampled id, then the top-k. GRPO and top-k OPD are one clipped surrogate
over the J columns with different coefficients.
"""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from claw.kernels.check import check_ids, check_temperature, refuse

LOG_RATIO_LIMIT = 20.0
"""log rho is clamped to +-20, without gradient beyond; e^20 says enough and float32 holds it"""
KL_LIMIT = 10.0
"""the same for log(p_ref / p_current) in the k3 estimate"""


@dataclass(frozen=True)
class Inputs:
    """The per-token arguments of `hybrid_loss` [T] or [T, K]: shapes checked, absent ones zeros."""

    ids: Tensor
    old_logp: Tensor
    advantage: Tensor
    rl_weight: Tensor
    is_weight: Tensor
    topk_ids: Tensor
    topk_old_logp: Tensor
    topk_advantage: Tensor
    opd_weight: Tensor
    ref_logp: Tensor
    kl_weight: Tensor
    entropy_weight: Tensor


@dataclass(frozen=True)
class Terms:
    """The rows that have a term; what is switched off is 0, so every number is safe to use."""

    rows_R: Tensor
    inv_tau_R: Tensor
    ids_RJ: Tensor
    old_RJ: Tensor
    advantage_RJ: Tensor
    coef_RJ: Tensor
    on_RJ: Tensor
    ref_R: Tensor
    kl_coef_R: Tensor
    entropy_coef_R: Tensor

    def part(self, start: int, stop: int) -> "Terms":
        return Terms(*(getattr(self, field.name)[start:stop] for field in fields(self)))

    def scaled(self, factor_R: Tensor) -> "Terms":
        """The terms whose loss is this one's times a factor for each row."""
        return replace(
            self,
            coef_RJ=self.coef_RJ * factor_R[:, None],
            kl_coef_R=self.kl_coef_R * factor_R,
            entropy_coef_R=self.entropy_coef_R * factor_R,
        )


def select_terms(
    inputs: Inputs, temperature: float | Tensor, tau_T: Tensor, num_vocab: int
) -> tuple[Terms, Tensor]:
    """Keep the rows that have a term. -> (terms, number of missing log-probs).

    An old or reference log-prob of -inf means "not known": that entry has no term and is counted
    as missing. NaN, +inf or a bad id in an entry that counts is a ValueError, as is a temperature.
    """
    wanted_TJ = torch.cat(
        [
            ((inputs.rl_weight != 0) & (inputs.is_weight != 0))[:, None],
            (inputs.opd_weight != 0)[:, None] & (inputs.topk_ids != -1),
        ],
        dim=1,
    )
    old_TJ = _join(inputs.old_logp, inputs.topk_old_logp)
    on_TJ = wanted_TJ & (old_TJ != -torch.inf)
    kl_wanted_T = inputs.kl_weight != 0
    kl_on_T = kl_wanted_T & (inputs.ref_logp != -torch.inf)
    used_TJ = on_TJ.clone()
    used_TJ[:, 0] |= kl_on_T
    rows_R = (used_TJ.any(dim=1) | (inputs.entropy_weight != 0)).nonzero().view(-1)

    def keep(values: Tensor, on: Tensor) -> Tensor:
        return values.masked_fill(~on, 0)[rows_R]

    opd_weight_TK = inputs.opd_weight[:, None].expand_as(inputs.topk_old_logp)
    terms = Terms(
        rows_R=rows_R,
        inv_tau_R=1.0 / tau_T[rows_R],
        ids_RJ=keep(_join(inputs.ids, inputs.topk_ids), used_TJ),
        old_RJ=keep(old_TJ, on_TJ),
        advantage_RJ=keep(_join(inputs.advantage, inputs.topk_advantage), on_TJ),
        coef_RJ=keep(_join(inputs.rl_weight * inputs.is_weight, opd_weight_TK), on_TJ),
        on_RJ=on_TJ[rows_R],
        ref_R=keep(inputs.ref_logp, kl_on_T),
        kl_coef_R=keep(inputs.kl_weight, kl_on_T),
        entropy_coef_R=inputs.entropy_weight[rows_R],
    )
    check_temperature(temperature, tau_T[rows_R])
    check_ids("ids", terms.ids_RJ[:, 0], 0, num_vocab)
    check_ids("topk_ids", terms.ids_RJ[:, 1:], -1, num_vocab)
    _check_finite(terms)
    return terms, (wanted_TJ & ~on_TJ).sum() + (kl_wanted_T & ~kl_on_T).sum()


def _join(first_T: Tensor, rest_TK: Tensor) -> Tensor:
    return torch.cat([first_T[:, None], rest_TK], dim=1)


def _check_finite(terms: Terms) -> None:
    named = {
        "old_logp": terms.old_RJ[:, 0],
        "topk_old_logp": terms.old_RJ[:, 1:],
        "advantage": terms.advantage_RJ[:, 0],
        "topk_advantage": terms.advantage_RJ[:, 1:],
        "rl_weight * is_weight": terms.coef_RJ[:, 0],
        "opd_weight": terms.coef_RJ[:, 1:],
        "ref_logp": terms.ref_R,
        "kl_weight": terms.kl_coef_R,
        "entropy_weight": terms.entropy_coef_R,
    }
    good = torch.stack([values.isfinite().all() for values in named.values()])
    if not bool(good.all()):  # one wait for the device on the good path
        name = list(named)[good.tolist().index(False)]
        refuse(name, "NaN or inf in a token that counts", "finite numbers there, or a weight of 0")


@dataclass(frozen=True)
class Surrogate:
    loss_RJ: Tensor
    grad_RJ: Tensor
    """d loss / d log p of each id"""
    clipped_RJ: Tensor
    log_ratio_RJ: Tensor
    """log rho before the clamp, 0 where there is no term"""


def surrogate(logp_RJ: Tensor, terms: Terms, clip_low: float, clip_high: float) -> Surrogate:
    """coef * max(-A rho, -A clip(rho, 1 - low, 1 + high)), rho = exp(log p - old log p).

    A gradient of -A rho where the unclipped branch is the larger or equal one, else none.
    Source: the clipped surrogate of PPO, per token and per (token, id).
    """
    log_ratio = (logp_RJ - terms.old_RJ).masked_fill(~terms.on_RJ, 0.0)
    rho = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    free = -terms.advantage_RJ * rho
    held = -terms.advantage_RJ * rho.clamp(1 - clip_low, 1 + clip_high)
    clipped = held > free
    flat = clipped | (log_ratio.abs() > LOG_RATIO_LIMIT)
    return Surrogate(
        loss_RJ=terms.coef_RJ * torch.maximum(free, held),
        grad_RJ=terms.coef_RJ * free.masked_fill(flat, 0.0),
        clipped_RJ=clipped,
        log_ratio_RJ=log_ratio,
    )


def reference_kl(logp_R: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    """k3 = coef * (e^d - d - 1), d = clamp(ref log p - log p, +-10). -> (loss_R, d loss / d log p).

    d(k3)/d(log p) = 1 - e^d inside the clamp, 0 beyond. Source: the low-variance KL estimate.
    """
    d = terms.ref_R - logp_R
    beyond = d.abs() > KL_LIMIT
    d = d.clamp(-KL_LIMIT, KL_LIMIT)
    slope = (-torch.expm1(d)).masked_fill(beyond, 0.0)
    return terms.kl_coef_R * (torch.expm1(d) - d), terms.kl_coef_R * slope


def losses(terms: Terms, parts: Surrogate, kl_R: Tensor, entropy_R: Tensor) -> Tensor:
    """The loss of each row."""
    return parts.loss_RJ.sum(dim=1) + kl_R - terms.entropy_coef_R * entropy_R


def measure(terms: Terms, parts: Surrogate, kl_R: Tensor, entropy_R: Tensor) -> dict[str, Tensor]:
    """The sums of `hybrid_loss`; the first four, added, are the loss."""
    rl_on_R = terms.on_RJ[:, 0]
    log_ratio_R = parts.log_ratio_RJ[:, 0]
    clamped_R = log_ratio_R.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    rl_clipped_R, advantage_R = parts.clipped_RJ[:, 0], terms.advantage_RJ[:, 0]
    abs_R = log_ratio_R.abs()
    sums = {
        "rl_loss": parts.loss_RJ[:, 0].sum(),
        "opd_loss": parts.loss_RJ[:, 1:].sum(),
        "kl_loss": kl_R.sum(),
        "entropy_loss": -(terms.entropy_coef_R * entropy_R).sum(),
        "entropy": entropy_R.sum(),
        "tokens": torch.ones_like(entropy_R).sum(),
        "clip_low_count": (rl_clipped_R & (advantage_R < 0)).sum(),
        "clip_high_count": (rl_clipped_R & (advantage_R > 0)).sum(),
        "opd_clip_count": parts.clipped_RJ[:, 1:].sum(),
        "rl_tokens": rl_on_R.sum(),
        "opd_tokens": terms.on_RJ[:, 1:].any(dim=1).sum(),
        "abs_log_ratio_sum": abs_R.sum(),
        "abs_log_ratio_max": abs_R.max() if len(abs_R) else abs_R.sum(),
        "approx_kl": (torch.expm1(clamped_R) - clamped_R).sum(),
    }
    return {name: value.float() for name, value in sums.items()}
