"""The training loss: GRPO, top-k OPD, KL to a reference and an entropy bonus in one pass.

T tokens, R rows with a term, C rows of a chunk, H hidden size, V vocabulary size, K top-k ids,
J = 1 + K ids of a row. Gradients are made chunk by chunk, in the forward pass unless asked
otherwise, so neither logits nor probabilities outlive their chunk.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from claw.kernels.check import check_linear, check_tensor, refuse, temperature_vector
from claw.kernels.chunk import rows_of
from claw.kernels.gradients import Made, MadeAgain, Walk
from claw.kernels.shard import Shard
from claw.kernels.terms import (
    Inputs,
    Terms,
    losses,
    measure,
    reference_kl,
    select_terms,
    surrogate,
)
from claw.kernels.walk import Seen, Sinks, walk


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
    mode: str = "forward",
    reduction: str = "sum",
    weight_grad: Tensor | None = None,
    process_group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The summed loss (float32) of T tokens and float32 sums about it.

    hidden [T, H], weight [V, H] of one float dtype; ids [T] and topk_ids [T, K] int64, -1 is
    padding; temperature a number or a float [T]; all else float32, [T] or, topk_*, [T, K].
    Log-probs l are of softmax(logits / temperature). Per token:

        rl_weight * is_weight * max(-A rho, -A clip(rho, 1 - clip_low, 1 + clip_high))
      + opd_weight * sum_v max(-A_v rho_v, -A_v clip(rho_v, 1 - clip_low, 1 + clip_high))
      + kl_weight * (e^d - d - 1) - entropy_weight * H
        rho = exp(clamp(l - old, +-20)),  d = clamp(ref - l, +-10),  H = -sum_j p_j log p_j

    The weights hold every normaliser and coefficient. A weight of 0 means no such term, whatever
    stands beside it; rows without any term are left out of the products. An old or reference
    log-prob of -inf is "not known": no term, counted in `missing_logp`.
    With g_v = d loss / d l_v summed over equal ids and G their sum, the gradient to the logits is
    (g_j - G p_j + entropy_weight p_j (log p_j + H)) / temperature, in float32 before rounding.

    Metrics, 0-dim float32: rl_loss, opd_loss, kl_loss, entropy_loss (they add up to the loss);
    entropy over tokens; clip_low_count, clip_high_count, opd_clip_count; rl_tokens, opd_tokens,
    tokens; abs_log_ratio_sum, abs_log_ratio_max, approx_kl (over rl_tokens, against old_logp);
    missing_logp. ValueError names an argument of wrong shape, dtype, device or value.

    mode "forward" makes the gradients at once: three products, one number as upstream gradient.
    "recompute" makes them in the backward pass: a fourth product, nothing kept but the arguments,
    and for a normaliser that is known only afterwards: with reduction "none" the loss is [T], 0
    for tokens without a term, and takes an upstream gradient for each token.
    weight_grad [V, H] float32: the weight's gradient is added to it and autograd gets none for the
    weight. In mode "forward" that happens in this call, and the upstream gradient must be 1; after
    an error its content is void.
    process_group: the weight is this rank's rows of the vocabulary, in the order of the ranks; ids
    are those of the whole and all else is the same on every rank, as are the results. The
    gradient to hidden is the whole one, that to the weight is of this rank's rows.
    Source: GRPO and the overlap-guided top-k OPD of OpenClaw-RL; K = 1 with the sampled id is
    sampled-token OPD.
    """
    check_linear(hidden, weight, chunk_tokens)
    want = torch.is_grad_enabled()
    wants = (want and hidden.requires_grad, want and weight.requires_grad)
    _check_options(mode, reduction, weight, weight_grad, wants[1], (clip_low, clip_high))
    same = {"hidden_requires_grad": int(wants[0]), "has_topk": int(topk_ids is not None)}
    shard = Shard.of(process_group, hidden, len(weight), **same)
    inputs = _inputs(
        hidden,
        shard.num_vocab,
        {"ids": ids, "old_logp": old_logp, "advantage": advantage, "rl_weight": rl_weight},
        {
            "topk_ids": topk_ids,
            "topk_old_logp": topk_old_logp,
            "topk_advantage": topk_advantage,
            "opd_weight": opd_weight,
        },
        {"ref_logp": ref_logp, "kl_weight": kl_weight},
        {"entropy_weight": entropy_weight, "is_weight": is_weight},
    )
    with torch.no_grad():
        tau_T = temperature_vector(temperature, hidden)
        terms, num_missing = select_terms(inputs, temperature, tau_T, shard.num_vocab)
        clip, rows = (clip_low, clip_high), rows_of(chunk_tokens, hidden, shard.largest)
        sinks = _sinks(hidden, weight, weight_grad, wants) if mode == "forward" else Sinks()
        seen = walk(hidden, weight, terms, clip, rows, sinks, shard)
        loss, metrics = _results(seen, terms, clip, len(hidden), reduction)
        metrics["missing_logp"] = num_missing.float()
    if not any(wants):
        return loss, metrics
    if mode == "forward":
        return Made.apply(hidden, weight, loss, sinks, weight_grad is not None), metrics
    again = Walk(terms, clip, rows, shard, weight_grad)
    return MadeAgain.apply(hidden, weight, loss, again), metrics


def _check_options(
    mode: str,
    reduction: str,
    weight: Tensor,
    weight_grad: Tensor | None,
    want_weight: bool,
    clip: tuple[float, float],
) -> None:
    for name, value, top in (("clip_low", clip[0], 1.0), ("clip_high", clip[1], torch.inf)):
        if not 0 <= value <= top:
            refuse(name, value, f"0 to {top:g}")
    if mode not in ("forward", "recompute"):
        refuse("mode", repr(mode), "'forward' or 'recompute'")
    if reduction not in ("sum", "none"):
        refuse("reduction", repr(reduction), "'sum' or 'none'")
    if reduction == "none" and mode == "forward":
        refuse("reduction", "'none' in mode 'forward'", "'none' in mode 'recompute', or 'sum'")
    if weight_grad is not None:
        check_tensor("weight_grad", weight_grad, weight.shape, torch.float32, weight.device)
        if not want_weight:
            refuse("weight_grad", "a weight without gradients", "None, or weight.requires_grad")


def _sinks(
    hidden: Tensor, weight: Tensor, weight_grad: Tensor | None, wants: tuple[bool, bool]
) -> Sinks:
    sum_VH = weight_grad
    if wants[1] and weight_grad is None:
        sum_VH = torch.zeros_like(weight, dtype=torch.float32)
    return Sinks(torch.zeros_like(hidden) if wants[0] else None, sum_VH)


def _results(
    seen: Seen, terms: Terms, clip: tuple[float, float], num_tokens: int, reduction: str
) -> tuple[Tensor, dict[str, Tensor]]:
    parts = surrogate(seen.logp_RJ, terms, *clip)
    kl_R = reference_kl(seen.logp_RJ[:, 0], terms)[0]
    metrics = measure(terms, parts, kl_R, seen.entropy_R)
    if reduction == "sum":
        names = ("rl_loss", "opd_loss", "kl_loss", "entropy_loss")
        return sum(metrics[name] for name in names), metrics
    loss_T = seen.entropy_R.new_zeros(num_tokens)
    loss_T[terms.rows_R] = losses(terms, parts, kl_R, seen.entropy_R)
    return loss_T, metrics


def _inputs(
    hidden: Tensor,
    num_vocab: int,
    always: dict[str, Tensor],
    topk: dict[str, Tensor | None],
    reference: dict[str, Tensor | None],
    single: dict[str, Tensor | None],
) -> Inputs:
    """Check shapes, dtypes and devices; a group comes whole or not at all (then zeros)."""
    num_tokens, device = hidden.shape[0], hidden.device
    width = 0
    if topk["topk_ids"] is not None:
        width = topk["topk_ids"].shape[-1] if topk["topk_ids"].ndim == 2 else 1
        if not 1 <= width <= num_vocab:
            refuse("topk_ids", f"{width} ids a token", f"1 to {num_vocab}, the vocabulary")
    for group in (topk, reference):
        if len({value is None for value in group.values()}) > 1:
            absent = [name for name, value in group.items() if value is None]
            refuse(", ".join(absent), "None", f"{', '.join(group)} all together or none")
    found = {}
    for name, value in (always | topk | reference | single).items():
        shape = (num_tokens, width) if name.startswith("topk") else (num_tokens,)
        dtype = torch.int64 if name.endswith("ids") else torch.float32
        if value is None:
            fill = 1 if name == "is_weight" else 0
            value = torch.full(shape, fill, dtype=dtype, device=device)
        check_tensor(name, value, shape, dtype, device)
        found[name] = value.detach()
    return Inputs(**found)
