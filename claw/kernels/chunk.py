"""The pieces both passes share: logits of a few rows, and their softmax at a temperature.

C rows of a chunk, H hidden size, V vocabulary size. Scoring and training go through the same
lines, so that their rounding cancels in a ratio of old and current log-probs.
"""

import torch
from torch import Tensor


def logits_into(out_CV: Tensor, hidden_CH: Tensor, weight_VH: Tensor) -> Tensor:
    """out = hidden @ weight^T in float32; the product itself runs in the operands' dtype."""
    if hidden_CH.dtype == torch.float32:
        return torch.mm(hidden_CH, weight_VH.t(), out=out_CV)
    return out_CV.copy_(hidden_CH @ weight_VH.t())


def softmax_into(exp_CV: Tensor, logits_CV: Tensor, inv_tau_C: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and scale the logits in place, put their exponentials in exp.

    logits become z = (logits - row max) / tau and exp = e^z; log p = z - log(sum).
    Subtracting before scaling keeps the top exact at low temperatures.
    -> (peak_C = row max / tau, sum_C = sum of exp); log-sum-exp = peak + log(sum).
    """
    peak_C = logits_CV.amax(dim=1)
    logits_CV.sub_(peak_C[:, None]).mul_(inv_tau_C[:, None])
    torch.exp(logits_CV, out=exp_CV)
    return peak_C * inv_tau_C, exp_CV.sum(dim=1)


def entropy(exp_CV: Tensor, z_CV: Tensor, sum_C: Tensor) -> Tensor:
    """H = log(sum) - sum_j p_j z_j; the batched product spares a [C, V] temporary."""
    dot_C = torch.bmm(exp_CV[:, None, :], z_CV[:, :, None]).view(-1)
    return sum_C.log() - dot_C / sum_C
