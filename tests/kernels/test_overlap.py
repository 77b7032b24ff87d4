"""Overlap against Python sets. N hints, T tokens, K ids."""

import pytest
import torch
from torch import Tensor

from claw.kernels import overlap, reference

BOTH = pytest.mark.parametrize("function", [overlap, reference.overlap])


def rows(tokens: int, k: int, seed: int, hints: int | None = None) -> Tensor:
    """Distinct ids in each row, some of the tail padded with -1."""
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens,) if hints is None else (hints, tokens)
    ids = torch.rand(*shape, 3 * k, generator=generator).argsort(dim=-1)[..., :k]
    padded = torch.rand(*shape, k, generator=generator) < 0.1
    return ids.masked_fill(padded, -1)


@BOTH
@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("k", [1, 4, 20])
@pytest.mark.parametrize("hints", [1, 3])
def test_it_counts_shared_ids_like_sets_do(function, tokens: int, k: int, hints: int) -> None:
    student, teacher = rows(tokens, k, 0), rows(tokens, k, 1, hints)
    mask = torch.arange(tokens) % 3 != 1
    expected = [
        [
            len(set(student[t].tolist()) & set(teacher[h, t].tolist()) - {-1}) * bool(mask[t])
            for t in range(tokens)
        ]
        for h in range(hints)
    ]
    sums = [sum(row) for row in expected]
    out = function(student, teacher, mask)
    assert out.per_token.tolist() == expected
    assert out.per_hint.tolist() == sums
    assert out.best == sums.index(max(sums))
    columns = list(zip(*expected, strict=True))
    assert out.best_per_token.tolist() == [column.index(max(column)) for column in columns]


@BOTH
def test_equal_hints_go_to_the_lowest_index(function) -> None:
    student = torch.tensor([[1, 2], [3, 4], [5, 6]])
    none, half = torch.full((3, 2), 90), torch.tensor([[1, 90], [3, 90], [5, 90]])
    out = function(student, torch.stack([none, half, half, half]), torch.ones(3).bool())
    assert out.best == 1
    assert out.best_per_token.tolist() == [1, 1, 1]
    nothing = function(student, torch.stack([none, none]), torch.ones(3).bool())
    assert nothing.best == 0
    assert nothing.best_per_token.tolist() == [0, 0, 0]


@BOTH
def test_padding_matches_no_padding(function) -> None:
    padding = torch.full((4, 3), -1)
    out = function(padding, torch.stack([padding, padding]), torch.ones(4).bool())
    assert not out.per_token.any()


@BOTH
def test_masked_tokens_decide_nothing(function) -> None:
    student = torch.tensor([[1, 2], [3, 4]])
    first, second = torch.tensor([[1, 2], [9, 9]]), torch.tensor([[9, 9], [3, 9]])
    out = function(student, torch.stack([first, second]), torch.tensor([False, True]))
    assert out.per_hint.tolist() == [0, 1]
    assert out.best == 1
    assert function(student, torch.stack([first, second]), torch.ones(2).bool()).best == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"student_ids": torch.zeros(2, dtype=torch.int64)}, "student_ids: found shape"),
        ({"teacher_ids": torch.zeros(1, 2, 4, dtype=torch.int64)}, "teacher_ids: found shape"),
        ({"teacher_ids": torch.zeros(0, 2, 3, dtype=torch.int64)}, "hints >= 1"),
        ({"teacher_ids": torch.zeros(1, 2, 3)}, "teacher_ids: found torch.float32"),
        ({"mask": torch.ones(3).bool()}, "mask: found shape"),
        ({"mask": torch.ones(2)}, "mask: found torch.float32"),
    ],
)
def test_a_bad_argument_is_refused_by_name(change: dict, message: str) -> None:
    good = {
        "student_ids": torch.zeros(2, 3, dtype=torch.int64),
        "teacher_ids": torch.zeros(1, 2, 3, dtype=torch.int64),
        "mask": torch.ones(2).bool(),
    }
    with pytest.raises(ValueError, match=message):
        overlap(**good | change)
