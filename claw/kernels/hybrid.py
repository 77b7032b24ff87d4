"""The training loss: GRPO, top-k OPD, KL to a reference and an entropy bonus in one pass.

T tokens, R rows with a term, C rows of a chunk, H hidden size, V vocabulary size, K top-k ids,
J = 1 + K ids of a row. Gradients are made in the forward pass, chunk by chunk, so neither logits
nor probabilities outlive their chunk.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from claw.kernels.check import (
    check_finite_result,
    check_linear,
    check_tensor,
    refuse,
    temperature_vector,
)
from claw.kernels.chunk import entropy, logits_into, softmax_into
from claw.kernels.terms import Inputs, Terms, measure, reference_kl, select_terms, surrogate


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
    chunk_tokens: int = 256,
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
    Source: GRPO and the overlap-guided top-k OPD of OpenClaw-RL; K = 1 with the sampled id is
    sampled-token OPD.
    """
    check_linear(hidden, weight, chunk_tokens)
    for name, value, top in (("clip_low", clip_low, 1.0), ("clip_high", clip_high, torch.inf)):
        if not 0 <= value <= top:
            refuse(name, value, f"0 to {top:g}")
    inputs = _inputs(
        hidden,
        weight.shape[0],
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
    want = torch.is_grad_enabled()
    wants = (want and hidden.requires_grad, want and weight.requires_grad)
    with torch.no_grad():
        tau_T = temperature_vector(temperature, hidden)
        terms, num_missing = select_terms(inputs, temperature, tau_T, weight.shape[0])
        walk = _Walk(hidden, weight, terms, (clip_low, clip_high), wants)
        metrics = walk.run(chunk_tokens) | {"missing_logp": num_missing.float()}
        loss = sum(metrics[name] for name in ("rl_loss", "opd_loss", "kl_loss", "entropy_loss"))
    loss = _WithGradients.apply(hidden, weight, loss, walk.grad_hidden_TH, walk.grad_weight_VH)
    return loss, metrics


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


class _Walk:
    """One walk over the rows: buffers of one chunk, what each row says, and the gradients."""

    def __init__(
        self,
        hidden_TH: Tensor,
        weight_VH: Tensor,
        terms: Terms,
        clip: tuple[float, float],
        wants: tuple[bool, bool],
    ) -> None:
        self.hidden_TH, self.weight_VH, self.terms, self.clip = hidden_TH, weight_VH, terms, clip
        self.with_entropy = bool((terms.entropy_coef_R != 0).any())
        want_hidden, want_weight = wants
        self.grad_hidden_TH = torch.zeros_like(hidden_TH) if want_hidden else None
        self.grad_weight_VH = (
            torch.zeros_like(weight_VH, dtype=torch.float32) if want_weight else None
        )

    def run(self, chunk_tokens: int) -> dict[str, Tensor]:
        """Fill the gradients and return the sums."""
        num_rows, num_vocab = len(self.terms.rows_R), self.weight_VH.shape[0]
        shape = (min(chunk_tokens, num_rows), num_vocab)
        z, exps = self.hidden_TH.new_empty(2, *shape, dtype=torch.float32)
        logp_RJ = torch.empty_like(self.terms.old_RJ)
        entropy_R, lse_R = torch.empty_like(self.terms.ref_R), torch.empty_like(self.terms.ref_R)
        for start in range(0, num_rows, chunk_tokens):
            stop = min(start + chunk_tokens, num_rows)
            part = self.terms.part(start, stop)
            z_CV, exp_CV = z[: stop - start], exps[: stop - start]
            hidden_CH = self.hidden_TH[part.rows_R]
            logits_into(z_CV, hidden_CH, self.weight_VH)
            peak_C, sum_C = softmax_into(exp_CV, z_CV, part.inv_tau_R)
            lse_R[start:stop] = peak_C + sum_C.log()
            logp_RJ[start:stop] = z_CV.gather(1, part.ids_RJ) - sum_C.log()[:, None]
            entropy_R[start:stop] = entropy(exp_CV, z_CV, sum_C)
            if self.grad_hidden_TH is not None or self.grad_weight_VH is not None:
                grad_CJ = self._logp_gradient(logp_RJ[start:stop], part)
                _logits_gradient(
                    exp_CV, z_CV, sum_C, entropy_R[start:stop], grad_CJ, part, self.with_entropy
                )
                self._accumulate(exp_CV, hidden_CH, part.rows_R)
        check_finite_result(lse_R, self.hidden_TH, self.terms.rows_R)
        kl_R = reference_kl(logp_RJ[:, 0], self.terms)[0]
        return measure(self.terms, surrogate(logp_RJ, self.terms, *self.clip), kl_R, entropy_R)

    def _logp_gradient(self, logp_CJ: Tensor, part: Terms) -> Tensor:
        grad_CJ = surrogate(logp_CJ, part, *self.clip).grad_RJ
        grad_CJ[:, 0] += reference_kl(logp_CJ[:, 0], part)[1]
        return grad_CJ

    def _accumulate(self, dlogits_CV: Tensor, hidden_CH: Tensor, rows_C: Tensor) -> None:
        rounded_CV = dlogits_CV.to(hidden_CH.dtype)
        if self.grad_hidden_TH is not None:
            self.grad_hidden_TH[rows_C] = rounded_CV @ self.weight_VH
        if self.grad_weight_VH is None:
            return
        if rounded_CV.dtype == torch.float32:
            self.grad_weight_VH.addmm_(rounded_CV.t(), hidden_CH)
        else:  # the product stays in the fast dtype, the sum over chunks in float32
            self.grad_weight_VH += rounded_CV.t() @ hidden_CH


def _logits_gradient(
    exp_CV: Tensor,
    z_CV: Tensor,
    sum_C: Tensor,
    entropy_C: Tensor,
    grad_CJ: Tensor,
    part: Terms,
    with_entropy: bool,
) -> None:
    """exp becomes d loss / d logits in place; z is scratch.

    (g_j - G p_j + w p_j (log p_j + H)) / tau with p = exp / sum, log p = z - log(sum).
    The sparse part is added before any rounding, as p - 1 of a confident token is all its signal.
    """
    scale_C = part.inv_tau_R / sum_C
    flat_C = -grad_CJ.sum(dim=1)
    if with_entropy:
        flat_C = flat_C + part.entropy_coef_R * (entropy_C - sum_C.log())
        z_CV.mul_((part.entropy_coef_R * scale_C)[:, None]).add_((flat_C * scale_C)[:, None])
        exp_CV.mul_(z_CV)
    else:
        exp_CV.mul_((flat_C * scale_C)[:, None])
    exp_CV.scatter_add_(1, part.ids_RJ, grad_CJ * part.inv_tau_R[:, None])


class _WithGradients(torch.autograd.Function):
    """Hang ready gradients on the loss; the backward pass only scales them."""

    @staticmethod
    def forward(ctx, hidden, weight, loss, grad_hidden, grad_weight):
        ctx.dtypes = hidden.dtype, weight.dtype
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss):
        def scaled(grad: Tensor | None, dtype: torch.dtype) -> Tensor | None:
            if grad is None:
                return None
            out = torch.empty_like(grad, dtype=dtype)
            return torch.mul(grad, grad_loss, out=out)  # rounds on the way, no float32 copy

        pairs = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return *(scaled(grad, dtype) for grad, dtype in pairs), None, None, None
