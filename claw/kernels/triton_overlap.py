"""Counting shared ids in Triton. N hints, T tokens, K ids of a token."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from claw.kernels.triton_launch import on, options, power_of_2

TOKENS = 16
"""of one program"""


@triton.jit
def count_shared(
    STUDENT, TEACHER, MASK, COUNTS, BEST, T,
    N: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """counts[n, t] = how many of the student's ids the hint's teacher has; best[t] = first largest.

    The teacher's ids come one at a time, so any K fits the registers.
    """
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    slot = tl.arange(0, KP)
    inside = token < T
    wanted = inside & (tl.load(MASK + token, mask=inside, other=0) != 0)
    is_id = wanted[:, None] & (slot[None, :] < K)
    # -1 is padding there and -2 here, and so is every id of a masked token
    ids = tl.load(STUDENT + token[:, None] * K + slot[None, :], mask=is_id, other=-2)
    ids = tl.where(ids < 0, -2, ids)
    most = tl.full((TOKENS,), -1, tl.int64)
    best = tl.zeros((TOKENS,), tl.int64)
    row = token
    for hint in range(N):
        shared = tl.zeros((TOKENS, KP), tl.int1)
        for j in range(K):
            theirs = tl.load(TEACHER + row * K + j, mask=inside, other=-1)
            shared = shared | (ids == theirs[:, None])
        count = tl.sum(shared.to(tl.int64), 1)
        tl.store(COUNTS + row, count, mask=inside)
        best = tl.where(count > most, hint, best)  # an equal later hint changes nothing
        most = tl.maximum(most, count)
        row += T
    tl.store(BEST + token, best, mask=inside)


def counts(student_TK: Tensor, teacher_NTK: Tensor, mask_T: Tensor) -> tuple[Tensor, Tensor]:
    """-> (shared ids [N, T], the first hint with the most [T]), int64.

    Sums over tokens are left to torch: whole numbers add up to the same in any order.
    """
    num_hints, num_tokens, k = teacher_NTK.shape
    found_NT = student_TK.new_empty(num_hints, num_tokens)
    best_T = student_TK.new_empty(num_tokens)
    if num_tokens:
        with on(student_TK):
            count_shared[(triton.cdiv(num_tokens, TOKENS),)](
                student_TK.contiguous(), teacher_NTK.contiguous(), mask_T.to(torch.int8), found_NT,
                best_T, num_tokens, N=num_hints, K=k, KP=power_of_2(k), TOKENS=TOKENS, **options(4),
            )  # fmt: skip
    return found_NT, best_T
