"""Packing keeps boundaries and stays under the limit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from claw.engine.trainer import batch

LENGTHS = st.lists(st.integers(1, 200), max_size=40)


@given(LENGTHS, st.integers(1, 300))
def test_groups_hold_every_sequence_once_within_the_limit(lengths: list[int], limit: int) -> None:
    groups = batch.group(lengths, limit)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    for g in groups:
        assert len(g) * max(lengths[i] for i in g) <= limit or len(g) == 1


@given(LENGTHS, st.integers(1, 300))
def test_packed_groups_hold_every_sequence_once_within_the_limit(
    lengths: list[int], limit: int
) -> None:
    groups = batch.group(lengths, limit, packed=True)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    sizes = [sum(lengths[i] for i in g) for g in groups]
    for g, size in zip(groups, sizes, strict=True):
        assert size <= limit or len(g) == 1
    assert sum(2 * size <= limit for size in sizes) <= 1, "two that fit into one"


def test_boundaries_and_reply_positions() -> None:
    a, b = np.arange(1, 4, dtype=np.int32), np.arange(11, 13, dtype=np.int32)
    micro = batch.lay([(a, b), (b, a)])
    assert micro.ids_BL.tolist() == [[1, 2, 3, 11, 12], [11, 12, 1, 2, 3]]
    assert micro.cu_seqlens.tolist() == [0, 5, 10] and micro.num_tokens == 10
    assert micro.reply_ids_T.tolist() == [11, 12, 1, 2, 3]
    assert micro.row_T.tolist() == [0, 0, 1, 1, 1]
    assert micro.column_T.tolist() == [2, 3, 1, 2, 3], "one before the token that it predicts"
    assert [len(x) for x in micro.per_sequence(micro.reply_ids_T)] == [2, 3]


def test_shorter_sequences_are_padded_on_the_right() -> None:
    one, two = np.array([7], np.int32), np.array([8, 9], np.int32)
    micro = batch.lay([(one, one), (two, two)])
    assert micro.ids_BL.tolist() == [[7, 7, 0, 0], [8, 9, 8, 9]]
    assert micro.cu_seqlens.tolist() == [0, 2, 6] and micro.bounds is None
    hidden = torch.arange(8.0).view(2, 4, 1)
    assert micro.at_replies(hidden).flatten().tolist() == [0.0, 5.0, 6.0]


def test_packed_sequences_lie_in_one_row_without_padding() -> None:
    one, two, three = (np.arange(n, 2 * n, dtype=np.int32) for n in (1, 2, 3))
    micro = batch.lay([(two, one), (one, three)], packed=True)
    assert micro.ids_BL.tolist() == [[2, 3, 1, 1, 3, 4, 5]]
    assert micro.bounds.tolist() == [0, 3, 7]
    assert micro.sequence_T.tolist() == [0, 1, 1, 1] and micro.row_T.tolist() == [0] * 4
    hidden = torch.arange(7.0).view(1, 7, 1)
    assert micro.at_replies(hidden).flatten().tolist() == [1.0, 3.0, 4.0, 5.0]


def test_a_sequence_without_prompt_or_reply_is_refused() -> None:
    one, none = np.array([7], np.int32), np.array([], np.int32)
    for pairs in ([], [(none, one)], [(one, none)]):
        with pytest.raises(ValueError, match="a prompt and a reply"):
            batch.lay(pairs)
