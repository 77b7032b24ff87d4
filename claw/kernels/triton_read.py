"""Reading logits in Triton: log-sum-exp, entropy, given ids and exact top-k in one pass.

C rows, V vocabulary size (of this shard), J ids of a row, k top ids. A row is split in groups of
128 columns. Each group keeps its own running maximum and sums, so that the loop over the row
needs no word between warps; they are merged at its end. A second launch finds the top-k among
the k groups with the largest maxima, for k groups ahead of an element's own hold k elements ahead
of it; launches in order need no barrier around the maxima in memory.
Source: online softmax (Milakov and Gimelshein 2018); the top-k by group maxima is our own.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from claw.kernels.chunk import Reading
from claw.kernels.topk import stable_topk
from claw.kernels.triton_launch import WIDE, check_logits, on, options, power_of_2, vector

GROUP = 128
MOST_TOPK = 64
"""more would not fit the registers of one program; torch finds them then"""
LOWEST = tl.constexpr(-(2**31))
"""below the key of every number"""


@triton.jit
def read_rows(
    X, INV_TAU, IDS, PEAK, SUM, DOT, PICKED, MAXIMA, stride_x, stride_m,
    V: tl.constexpr, J: tl.constexpr, JP: tl.constexpr, WITH_MAXIMA: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """One row a program; see `Reading` for what is written. JP >= J is a power of two."""
    row = tl.program_id(0).to(tl.int64)  # row * stride does not fit 32 bits
    X += row * stride_x
    MAXIMA += row * stride_m
    inv_tau = tl.load(INV_TAU + row)
    group = tl.arange(0, GROUPS)
    peak = tl.full((GROUPS,), -float("inf"), tl.float32)
    total = tl.zeros((GROUPS,), tl.float32)
    dot = tl.zeros((GROUPS,), tl.float32)
    for start in range(0, V, GROUPS * GROUP):
        cols = start + group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        x = tl.load(X + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        top = tl.max(x, 1)
        if WITH_MAXIMA:
            tl.store(MAXIMA + start // GROUP + group, top)
        new_peak = tl.maximum(peak, top)
        base = tl.where(new_peak == -float("inf"), 0.0, new_peak)  # -inf - -inf is NaN
        z = (x - base[:, None]) * inv_tau
        e = tl.exp(z)
        # 0 in the first turn, where peak is -inf and so is nothing to carry over
        shift = tl.where(peak == -float("inf"), 0.0, (peak - base) * inv_tau)
        carry = tl.where(peak == -float("inf"), 0.0, tl.exp(shift))
        dot = carry * (dot + total * shift) + tl.sum(tl.where(e > 0, e * z, 0.0), 1)
        total = carry * total + tl.sum(e, 1)
        peak = new_peak
    highest = tl.max(peak, 0)
    base = tl.where(highest == -float("inf"), 0.0, highest)
    shift = tl.where(peak == -float("inf"), 0.0, (peak - base) * inv_tau)
    carry = tl.where(peak == -float("inf"), 0.0, tl.exp(shift))
    tl.store(PEAK + row, highest)
    tl.store(SUM + row, tl.sum(carry * total, 0))
    tl.store(DOT + row, tl.sum(carry * (dot + total * shift), 0))
    if J > 0:
        slot = tl.arange(0, JP)
        ids = tl.load(IDS + row * J + slot, mask=slot < J, other=-1)
        picked = tl.load(X + ids, mask=ids >= 0, other=0.0).to(tl.float32)
        tl.store(PICKED + row * J + slot, picked, mask=slot < J)


@triton.jit
def _key(x):
    """An int32 in the order of the float32 numbers, the two zeros equal and -inf still a key."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def top_of_groups(
    X, MAXIMA, TOP, TOP_IDS, stride_x, stride_m,
    V: tl.constexpr, K: tl.constexpr, CHOSEN: tl.constexpr, SLOTS: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The K largest of a row, equal ones by id, out of CHOSEN groups; SLOTS >= K, CHOSEN.

    SLOTS and GROUPS (at least all groups of a row) are powers of two. Selection is by integer key
    with a lowest key for what is taken, so that rows with -inf are ranked like any other.
    """
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_x
    MAXIMA += row * stride_m
    slot = tl.arange(0, SLOTS)
    group = tl.arange(0, GROUPS)
    inside = group < (V + GROUP - 1) // GROUP
    key = tl.where(inside, _key(tl.load(MAXIMA + group, mask=inside, other=0.0)), LOWEST)
    chosen = tl.zeros((SLOTS,), tl.int32)
    for j in range(CHOSEN):
        first = tl.min(tl.where(key == tl.max(key, 0), group, GROUPS), 0)
        chosen = tl.where(slot == j, first, chosen)
        key = tl.where(group == first, LOWEST, key)
    ids = chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    valid = (slot[:, None] < CHOSEN) & (ids < V)
    values = tl.load(X + ids, mask=valid, other=0.0).to(tl.float32)
    keys = tl.reshape(tl.where(valid, _key(values), LOWEST), (SLOTS * GROUP,))
    ids = tl.reshape(ids, (SLOTS * GROUP,))
    best_ids = tl.zeros((SLOTS,), tl.int32)
    for j in range(K):
        first = tl.min(tl.where(keys == tl.max(keys, 0), ids, V), 0)
        best_ids = tl.where(slot == j, first, best_ids)
        keys = tl.where(ids == first, LOWEST, keys)
    found = slot < K
    tl.store(TOP + row * K + slot, tl.load(X + best_ids, mask=found).to(tl.float32), mask=found)
    tl.store(TOP_IDS + row * K + slot, best_ids.to(tl.int64), mask=found)


def read(logits_CV: Tensor, inv_tau_C: Tensor, ids_CJ: Tensor, topk: int = 0) -> Reading:
    """See `claw.kernels.chunk.Chunk.read`; logits with a row stride, else contiguous."""
    rows, num_vocab = check_logits(logits_CV)
    peak_C, sum_C, dot_C = (logits_CV.new_empty(rows, dtype=torch.float32) for _ in range(3))
    ids_CJ, inv_tau_C = ids_CJ.contiguous(), vector(inv_tau_C)
    width = ids_CJ.shape[1]
    picked_CJ = logits_CV.new_empty(rows, width, dtype=torch.float32)
    in_triton = 0 < topk <= MOST_TOPK
    groups = min(WIDE // GROUP, power_of_2(triton.cdiv(num_vocab, GROUP)))
    # the loop writes whole turns, so the last one may go past the last group
    stride_m = triton.cdiv(num_vocab, groups * GROUP) * groups if in_triton else 0
    maxima_CG = logits_CV.new_empty(rows, stride_m, dtype=torch.float32)
    if rows:
        with on(logits_CV):
            read_rows[(rows,)](
                logits_CV, inv_tau_C, ids_CJ, peak_C, sum_C, dot_C, picked_CJ, maxima_CG,
                logits_CV.stride(0), stride_m, V=num_vocab, J=width, JP=power_of_2(width),
                WITH_MAXIMA=in_triton, GROUP=GROUP, GROUPS=groups, **options(8),
            )  # fmt: skip
    if in_triton:
        top_Ck, top_ids_Ck = _top(logits_CV, maxima_CG, topk)
    else:
        top_Ck, top_ids_Ck = stable_topk(logits_CV, topk)
    return Reading(peak_C, sum_C, dot_C, picked_CJ, top_Ck.float(), top_ids_Ck)


def _top(logits_CV: Tensor, maxima_CG: Tensor, topk: int) -> tuple[Tensor, Tensor]:
    rows, num_vocab = logits_CV.shape
    top_Ck = logits_CV.new_empty(rows, topk, dtype=torch.float32)
    top_ids_Ck = logits_CV.new_empty(rows, topk, dtype=torch.int64)
    groups = triton.cdiv(num_vocab, GROUP)
    if rows:
        with on(logits_CV):
            top_of_groups[(rows,)](
                logits_CV, maxima_CG, top_Ck, top_ids_Ck, logits_CV.stride(0),
                maxima_CG.stride(0), V=num_vocab, K=topk, CHOSEN=min(topk, groups),
                SLOTS=power_of_2(topk), GROUP=GROUP, GROUPS=power_of_2(groups), **options(8),
            )  # fmt: skip
    return top_Ck, top_ids_Ck
