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


def test_boundaries_and_reply_positions() -> None:
    a, b = np.arange(1, 4, dtype=np.int32), np.arange(11, 13, dtype=np.int32)
    micro = batch.pad([(a, b), (b, a)])
    assert micro.ids_BL.tolist() == [[1, 2, 3, 11, 12], [11, 12, 1, 2, 3]]
    assert micro.cu_seqlens.tolist() == [0, 5, 10] and micro.num_tokens == 10
    assert micro.reply_ids_T.tolist() == [11, 12, 1, 2, 3]
    assert micro.row_T.tolist() == [0, 0, 1, 1, 1]
    assert micro.column_T.tolist() == [2, 3, 1, 2, 3], "one before the token that it predicts"
    assert [len(x) for x in micro.per_sequence(micro.reply_ids_T)] == [2, 3]


def test_shorter_sequences_are_padded_on_the_right() -> None:
    one, two = np.array([7], np.int32), np.array([8, 9], np.int32)
    micro = batch.pad([(one, one), (two, two)])
    assert micro.ids_BL.tolist() == [[7, 7, 0, 0], [8, 9, 8, 9]]
    assert micro.lengths_B.tolist() == [2, 4]
    hidden = torch.arange(8.0).view(2, 4, 1)
    assert micro.at_replies(hidden).flatten().tolist() == [0.0, 5.0, 6.0]


def test_a_sequence_without_prompt_or_reply_is_refused() -> None:
    one, none = np.array([7], np.int32), np.array([], np.int32)
    for pairs in ([], [(none, one)], [(one, none)]):
        with pytest.raises(ValueError, match="a prompt and a reply"):
            batch.pad(pairs)
