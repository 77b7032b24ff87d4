"""One walk of the training loss over its rows, chunk by chunk, with or without gradients.

T tokens, R rows with a term, C rows of a chunk, H hidden size, V vocabulary size, J ids of a row.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from claw.kernels.check import check_finite_result
from claw.kernels.chunk import Slope, open_chunk
from claw.kernels.product import add_product, times_weight
from claw.kernels.shard import Shard
from claw.kernels.softmax import Softmax
from claw.kernels.terms import Terms, reference_kl, surrogate


@dataclass(frozen=True)
class Seen:
    """What each row says."""

    logp_RJ: Tensor
    entropy_R: Tensor


@dataclass(frozen=True)
class Sinks:
    """Where gradients go; None is a gradient that nobody wants, and nothing is done for it."""

    hidden_TH: Tensor | None = None
    """[T, H], zeros where no row is; written"""
    weight_VH: Tensor | None = None
    """[V, H] float32, added to"""

    @property
    def any(self) -> bool:
        return self.hidden_TH is not None or self.weight_VH is not None


@torch.no_grad()
def walk(
    hidden_TH: Tensor,
    weight_VH: Tensor,
    terms: Terms,
    clip: tuple[float, float],
    rows: int,
    sinks: Sinks,
    shard: Shard,
) -> Seen:
    """Fill the sinks and return the rows' numbers. ValueError: NaN or inf in a matrix."""
    num_rows = len(terms.rows_R)
    chunk = open_chunk(hidden_TH, min(rows, num_rows), len(weight_VH))
    with_entropy = bool((terms.entropy_coef_R != 0).any())
    seen = Seen(torch.empty_like(terms.old_RJ), torch.empty_like(terms.ref_R))
    lse_R = torch.empty_like(terms.ref_R)
    for start in range(0, num_rows, rows):
        here = slice(start, min(start + rows, num_rows))
        part = terms.part(here.start, here.stop)
        hidden_CH = hidden_TH[part.rows_R]
        chunk.fill(hidden_CH, weight_VH)
        ids_CJ = shard.local(part.ids_RJ)
        mine = chunk.read(part.inv_tau_R, ids_CJ, topk=0)
        reading = shard.merge(mine, part.inv_tau_R, topk=0)
        softmax = Softmax.of(reading, part.inv_tau_R)
        seen.logp_RJ[here] = logp_CJ = softmax.logp(reading.picked_CJ)
        seen.entropy_R[here], lse_R[here] = softmax.entropy_C, softmax.lse_C
        if sinks.any:
            slope = _slope(part, softmax, logp_CJ, ids_CJ, mine.peak_C, clip, with_entropy)
            dlogits_CV = chunk.gradient(slope)
            if sinks.hidden_TH is not None:
                part_CH = times_weight(dlogits_CV, weight_VH)
                _write(sinks.hidden_TH, part.rows_R, part_CH, shard)
            if sinks.weight_VH is not None:
                add_product(sinks.weight_VH, dlogits_CV.t(), hidden_CH)
    check_finite_result(lse_R, hidden_TH, terms.rows_R)
    return seen


def _slope(
    part: Terms,
    softmax: Softmax,
    logp_CJ: Tensor,
    ids_CJ: Tensor,
    peak_C: Tensor,
    clip: tuple[float, float],
    with_entropy: bool,
) -> Slope:
    """(g_j - G p_j + w p_j (log p_j + H)) / tau, g summed over equal ids, G the sum of all g."""
    grad_CJ = surrogate(logp_CJ, part, *clip).grad_RJ
    grad_CJ[:, 0] += reference_kl(logp_CJ[:, 0], part)[1]
    base_C, slope_C = -grad_CJ.sum(dim=1), None
    if with_entropy:
        base_C = base_C + part.entropy_coef_R * softmax.entropy_C
        slope_C = part.entropy_coef_R * part.inv_tau_R
    return Slope(
        offset_C=softmax.offset(peak_C),
        base_C=base_C * part.inv_tau_R,
        slope_C=slope_C,
        ids_CJ=ids_CJ,
        grad_CJ=grad_CJ * part.inv_tau_R[:, None],
        logp_CJ=logp_CJ,
    )


def _write(grad_TH: Tensor, rows_C: Tensor, part_CH: Tensor, shard: Shard) -> None:
    """A shard has its part of the sum over the vocabulary; the parts add up in float32."""
    if shard.group is not None:
        part_CH = shard.add_up(part_CH.float())
    grad_TH[rows_C] = part_CH.to(grad_TH.dtype)
