"""How much of the student's top-k a hinted teacher shares, and which hint shares most.

N hints, T tokens, k ids of a token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from claw.kernels import backend
from claw.kernels.check import check_tensor, refuse


@dataclass(frozen=True)
class Overlap:
    per_token: Tensor
    """[N, T] int64, shared ids; 0 where the mask is off"""
    per_hint: Tensor
    """[N] int64, the sum over tokens"""
    best: int
    """the hint with the largest sum, the lowest index among equals"""
    best_per_token: Tensor
    """[T] int64, the same choice for each token by itself"""


@torch.no_grad()
def overlap(student_ids: Tensor, teacher_ids: Tensor, mask: Tensor) -> Overlap:
    """O[h, t] = |S^q_t intersect S^p_{h,t}| over the tokens of the mask.

    student_ids [T, k], teacher_ids [N, T, k] int64, distinct inside a row; -1 is padding and
    matches nothing. mask [T] bool. N >= 1. ValueError for any other shape, dtype or device.
    Source: the overlap-guided hint choice of OpenClaw-RL.
    """
    if student_ids.ndim != 2:
        refuse("student_ids", f"shape {list(student_ids.shape)}", "[tokens, k]")
    num_tokens, k = student_ids.shape
    num_hints = teacher_ids.shape[0] if teacher_ids.ndim else 0
    if num_hints == 0:
        refuse("teacher_ids", f"shape {list(teacher_ids.shape)}", "[hints, tokens, k], hints >= 1")
    device = student_ids.device
    check_tensor("student_ids", student_ids, (num_tokens, k), torch.int64, device)
    check_tensor("teacher_ids", teacher_ids, (num_hints, num_tokens, k), torch.int64, device)
    check_tensor("mask", mask, (num_tokens,), torch.bool, device)
    if backend.choose(device.type) == "triton":
        from claw.kernels import triton_overlap

        per_token_NT, best_per_token_T = triton_overlap.counts(student_ids, teacher_ids, mask)
    else:
        per_token_NT = _counts(student_ids, teacher_ids, mask)
        best_per_token_T = _first_largest(per_token_NT)
    per_hint_N = per_token_NT.sum(dim=1)
    return Overlap(per_token_NT, per_hint_N, int(_first_largest(per_hint_N)), best_per_token_T)


def _counts(student_TK: Tensor, teacher_NTK: Tensor, mask_T: Tensor) -> Tensor:
    per_token_NT = student_TK.new_zeros(teacher_NTK.shape[:2])
    for column in range(student_TK.shape[1]):  # a column at a time: no [N, T, k, k] tensor
        wanted_T1 = student_TK[:, column, None].masked_fill(~mask_T[:, None], -1)
        found_NT = (teacher_NTK == wanted_T1).any(dim=2) & (wanted_T1[:, 0] >= 0)
        per_token_NT += found_NT
    return per_token_NT


def _first_largest(counts_N: Tensor) -> Tensor:
    """argmax over the first dimension, lowest index among equals; argmax promises no order."""
    num_hints = counts_N.shape[0]
    rank_N = torch.arange(num_hints - 1, -1, -1, device=counts_N.device)
    rank_N = rank_N.view(-1, *[1] * (counts_N.ndim - 1))
    return (counts_N * num_hints + rank_N).argmax(dim=0)
