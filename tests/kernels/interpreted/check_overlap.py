"""Counting shared ids in Triton's interpreter, beyond what test_overlap.py asks of any backend.

Run by test_triton.py. N hints, T tokens, K ids of a token.
"""

import pytest
import torch

from claw.kernels import overlap


def distinct(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape[:-1], 3 * shape[-1], generator=generator).argsort(-1)[..., : shape[-1]]


@pytest.mark.parametrize(("tokens", "k"), [(1, 1), (17, 4), (33, 50)])
def test_counts_are_those_of_sets(tokens: int, k: int) -> None:
    student, teacher = distinct(tokens, k, seed=0), distinct(4, tokens, k, seed=1)
    student[::3, -1] = -1
    teacher[1, ::3, 0] = -1
    mask = torch.arange(tokens) % 5 != 2
    expected = [
        [
            len(set(student[t].tolist()) & set(hint[t].tolist()) - {-1}) * bool(mask[t])
            for t in range(tokens)
        ]
        for hint in teacher
    ]
    out = overlap(student, teacher, mask)
    assert out.per_token.tolist() == expected
    assert out.per_hint.tolist() == [sum(row) for row in expected]
    columns = list(zip(*expected, strict=True))
    assert out.best_per_token.tolist() == [column.index(max(column)) for column in columns]


def test_strided_ids_are_read_right() -> None:
    student, teacher = distinct(9, 6, seed=0), distinct(2, 9, 6, seed=1)
    plain = overlap(student, teacher, torch.ones(9).bool())
    wide = torch.stack([student, student * 0], dim=2)[:, :, 0]
    swapped = teacher.transpose(0, 1).contiguous().transpose(0, 1)
    out = overlap(wide, swapped, torch.ones(1).bool().expand(9))
    assert torch.equal(out.per_token, plain.per_token)
    assert torch.equal(out.best_per_token, plain.best_per_token)


def test_no_tokens_share_nothing() -> None:
    ids = torch.zeros(0, 4, dtype=torch.int64)
    out = overlap(ids, ids[None].expand(2, 0, 4), torch.zeros(0).bool())
    assert out.per_hint.tolist() == [0, 0] and out.best == 0
