"""The table of losses: what each method feeds to `claw.kernels.hybrid_loss`.

T tokens, S samples, N hints, K ids of a token. l_old, l_T, l_cur: log-probs of softmax(logits/tau)
under the old policy, the teacher that saw a hint, and the current weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from claw.config import RunConfig
from claw.kernels import Overlap


@dataclass(frozen=True)
class Method:
    """Which terms of `hybrid_loss` a method uses."""

    rl: bool
    """needs an advantage from a reward"""
    opd: bool
    """needs a teacher that saw a hint"""
    topk: bool
    """True: OPD over the k ids of `subset`; False: over the sampled token alone"""
    description: str
    advantage: Callable[..., Tensor] | None = None
    """one advantage for one surrogate on the sampled token; None: `combined_advantage`"""


METHODS = {
    "grpo": Method(
        True,
        False,
        False,
        "clipped surrogate of the reward's advantage on the sampled token",
    ),
    "opd": Method(
        False,
        True,
        True,
        "clipped surrogate of `opd_advantage` on the k ids of the subset",
    ),
    "opd-sampled": Method(
        False,
        True,
        False,
        "the same with k = 1 and the sampled token, advantage `sampled_opd_advantage`",
    ),
    "hybrid": Method(
        True,
        True,
        True,
        "w_RL * grpo + w_OPD * opd, two terms, each with its own normaliser",
    ),
    "combined": Method(
        True,
        True,
        False,
        "one surrogate on the sampled token, its advantage the sum `combined_advantage`",
    ),
}


def asks_teacher(config: RunConfig) -> bool:
    """Whether hinted prompts are read at all."""
    return METHODS[config.train.method].opd and config.loss.w_opd > 0


def register(name: str, advantage: Callable[..., Tensor]) -> None:
    """Add a loss that `train.method` can name (hook `claw_loss`).

    `advantage` takes what `combined_advantage` takes and returns the advantage [T] of one clipped
    surrogate on the sampled tokens.
    """
    if name in METHODS:
        raise ValueError(f"a loss is called {name!r} already")
    described = (advantage.__doc__ or "a plugin's own advantage").strip().splitlines()[0]
    METHODS[name] = Method(True, True, False, described, advantage)


def token_weights(
    lengths: Tensor, sample_of_token: Tensor, mask: Tensor, rule: str, count: int
) -> Tensor:
    """The share of each token in a term, so that the sum over all ranks and chunks is the mean.

    lengths [S] tokens of each whole sample that have the term (not only those of this chunk);
    sample_of_token [T] int64 into lengths; mask [T] bool, the tokens here that have the term;
    count over the whole global batch. -> [T] float32, 0 outside the mask.
    "sample-mean": 1 / (lengths[sample] * count), count = samples that have the term.
    "batch-mean": the same, count = all samples of the batch: a term that few samples have is small,
    so that a step in which nearly all was right changes little.
    "token-mean": 1 / count, count = tokens that have the term.
    A count of 0 gives zeros. Source: per-sample masked mean of OpenClaw-RL, but divided by the
    samples that have the term, so that one without a hint does not dilute it; DAPO's token mean.
    ValueError: unknown rule, a masked token in a sample of length 0, a negative count.
    """
    if rule not in ("sample-mean", "batch-mean", "token-mean"):
        allowed = "'sample-mean', 'batch-mean' or 'token-mean'"
        raise ValueError(f"rule: found {rule!r}; allowed: {allowed}")
    if count < 0 or (count == 0 and bool(mask.any())):
        raise ValueError(f"count: found {count} with a term in the batch; allowed: 1 or more")
    if count == 0:
        return torch.zeros_like(mask, dtype=torch.float32)
    if rule == "token-mean":
        return mask.float() / count
    lengths_T = lengths[sample_of_token]
    if bool((mask & (lengths_T <= 0)).any()):
        raise ValueError("lengths: found 0 for a sample with masked tokens; allowed: their number")
    return mask.float() / (lengths_T.clamp(min=1).float() * count)


def opd_advantage(
    old_logp_S: Tensor, teacher_logp_S: Tensor, valid: Tensor, clip_c: float,
    weight: str = "student",
) -> Tensor:
    """A_v = Delta_v w_v, Delta_v = clip(l_T - l_old, -C, C), w = softmax over valid v of l_old.

    With weight "teacher" w is the softmax of l_T instead: an id that the hinted teacher wants and
    the student hardly knows (the end of the turn after two sentences) gets a gradient of the size
    of the teacher's probability, where w of l_old leaves almost none. The unclipped sum is then
    the gradient of the forward KL on the subset, up to a baseline; not in the source.

    old_logp_S, teacher_logp_S, valid (bool) [T, K] over the subset; C > 0, inf for no clip.
    -> [T, K] without gradient. An invalid entry, or one of which either side is -inf (not known),
    is exactly 0 and outside the softmax; a row of such entries is all 0. NaN stays NaN.
    Source: the overlap-guided top-k OPD of OpenClaw-RL.
    """
    if not clip_c > 0:
        raise ValueError(f"clip_c: found {clip_c}; allowed: positive, or inf for no clip")
    old, teacher = old_logp_S.detach(), teacher_logp_S.detach()
    known = valid & (old != -torch.inf) & (teacher != -torch.inf)
    delta = (teacher - old).masked_fill(~known, 0.0).clamp(-clip_c, clip_c)
    # A finite floor in place of -inf: a row without a known entry must not become 0/0.
    by = {"student": old, "teacher": teacher}[weight]
    floored = by.masked_fill(~known, torch.finfo(old.dtype).min)
    return (delta * floored.softmax(dim=-1)).masked_fill(~known, 0.0)


def sampled_opd_advantage(
    old_logp: Tensor, teacher_logp: Tensor, clip_c: float = math.inf
) -> Tensor:
    """A = clip(l_T - l_old, -C, C) of the sampled token, [T] without gradient.

    An entry of which either side is -inf (not known) is 0; NaN stays NaN.
    Source: the token-level OPD of OpenClaw-RL, which does not clip.
    """
    if not clip_c > 0:
        raise ValueError(f"clip_c: found {clip_c}; allowed: positive, or inf for no clip")
    old, teacher = old_logp.detach(), teacher_logp.detach()
    known = (old != -torch.inf) & (teacher != -torch.inf)
    return (teacher - old).masked_fill(~known, 0.0).clamp(-clip_c, clip_c)


def combined_advantage(
    old_logp: Tensor,
    teacher_logp: Tensor,
    has_hint: Tensor,
    advantage: Tensor,
    w_opd: float = 1.0,
    w_rl: float = 1.0,
) -> Tensor:
    """A = w_OPD (l_T - l_old) + w_RL A_RL: one advantage for one surrogate, [T] without gradient.

    has_hint [T] bool; a token without a hint has the second part only, whatever teacher_logp
    holds. Source: the additive combination of the first OpenClaw-RL paper, which there fed
    log-probs without a hint into the first part.
    """
    opd = sampled_opd_advantage(old_logp, teacher_logp).masked_fill(~has_hint, 0.0)
    return w_opd * opd + w_rl * advantage.detach()


def subset(mode: str, student_ids: Tensor, teacher_ids: Tensor) -> Tensor:
    """The ids S_t over which OPD sums: [T, K] int64, -1 is padding.

    student_ids, teacher_ids [T, K], the top-k of the old policy and of the chosen hint's teacher.
    "student": S^q; "teacher": S^p; "overlap": S^q without what S^p lacks, those places -1.
    Source: the subsets of the overlap-guided top-k OPD of OpenClaw-RL.
    """
    if mode == "student":
        return student_ids
    if mode == "teacher":
        return teacher_ids
    if mode == "overlap":
        shared = (student_ids[:, :, None] == teacher_ids[:, None, :]).any(dim=2)
        return student_ids.masked_fill(~shared, -1)
    raise ValueError(f"subset mode: found {mode!r}; allowed: 'student', 'teacher' or 'overlap'")


def choose_hint(mode: str, overlap: Overlap, seed: int) -> Tensor:
    """The hint of each token, [T] int64 into the N hints, which come shortest first.

    "sequence": argmax_h sum_t O[h, t]; "token": argmax_h O[h, t]; ties to the lowest index, that
    is the shortest hint; "shortest": the first; "random": one for the sequence, drawn by seed.
    Source: the hint choices of OpenClaw-RL; random is the baseline to measure them against.
    """
    num_hints = overlap.per_token.shape[0]
    if mode == "token":
        return overlap.best_per_token
    if mode == "sequence":
        hint = overlap.best
    elif mode == "shortest":
        hint = 0
    elif mode == "random":
        generator = torch.Generator().manual_seed(seed)
        hint = int(torch.randint(num_hints, (), generator=generator))
    else:
        allowed = "'sequence', 'token', 'shortest' or 'random'"
        raise ValueError(f"hint mode: found {mode!r}; allowed: {allowed}")
    return torch.full_like(overlap.best_per_token, hint)


def truncated_is_weight(prox_logp: Tensor, behaviour_logp: Tensor, cap: float) -> Tensor:
    """min(pi_prox / pi_behaviour, cap) of the sampled token, [T] without gradient.

    Only beside a ratio against recomputed log-probs (mode `proximal`). An entry of which either
    side is -inf (not known) cannot be corrected and weighs 0; NaN stays NaN.
    Source: truncated importance sampling for log-probs of another engine or older weights.
    """
    if not cap > 0:
        raise ValueError(f"cap: found {cap}; allowed: positive")
    prox, behaviour = prox_logp.detach(), behaviour_logp.detach()
    known = (prox != -torch.inf) & (behaviour != -torch.inf)
    return (prox - behaviour).exp().clamp(max=cap).masked_fill(~known, 0.0)
