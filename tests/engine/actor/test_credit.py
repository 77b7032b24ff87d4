"""Advantages against numbers worked out by hand."""

import numpy as np
import pytest
from some_turns import completion, turn

from claw.engine.actor import credit
from claw.engine.actor.credit import Judged
from claw.records import FinishReason, Sampling

AB = {"alpha": 0.5, "baseline": 0.0}


def test_a_vote_is_its_own_advantage_less_the_baseline():
    group = [Judged(None, (1.0, -1.0, 0.0, None))]
    assert credit.vote(group, alpha=0.5, baseline=0.25) == [[0.75, -1.25, -0.25, None]]


def test_outcome_mixes_and_standardises_over_the_group():
    # r = .5*1+.5*0 = .5 ; .5*0+.5*(-1) = -.5 ; .5*1+.5*1 = 1    mean 1/3, variance 7/18
    group = [Judged(1.0, (1.0, -1.0)), Judged(0.0, (-1.0,)), Judged(1.0, (1.0, None))]
    [a, b, c] = credit.outcome(group, **AB)
    std = (7 / 18) ** 0.5 + 1e-6
    assert a == pytest.approx([(0.5 - 1 / 3) / std] * 2)
    assert b == pytest.approx([(-0.5 - 1 / 3) / std])
    assert c == pytest.approx([(1 - 1 / 3) / std] * 2)


def test_a_group_of_one_is_measured_against_the_baseline():
    assert credit.outcome([Judged(1.0, (None, None))], alpha=0.5, baseline=0.4) == [[0.6, 0.6]]


def test_a_constant_group_says_nothing():
    group = [Judged(1.0, (1.0,)), Judged(1.0, (1.0,))]
    assert credit.outcome(group, **AB) == [[None], [None]]
    assert credit.step(group, **AB) == [[None], [None]]


def test_what_is_missing_leaves_the_other_part_alone():
    group = [Judged(None, (1.0,)), Judged(1.0, (None,)), Judged(None, (None,))]
    assert credit.outcome(group[:2], **AB) == [[None], [None]]  # both are 1: constant
    assert credit.outcome(group[2:], **AB) == [[None]]
    assert credit.outcome([group[0], Judged(-1.0, (None,)), group[2]], **AB) == [
        [pytest.approx(1, abs=1e-5)], [pytest.approx(-1, abs=1e-5)], [None]]


def test_step_standardises_over_equal_index_and_keeps_lengths():
    # index 0: .5*1+.5*1 = 1, .5*0+.5*(-1) = -.5 ; mean .25, std .75 ; index 1: one alone: 0
    group = [Judged(1.0, (1.0, -1.0)), Judged(0.0, (-1.0,))]
    made = credit.step(group, **AB)
    assert made[0] == pytest.approx([1.0, 0.0], abs=1e-5)
    assert made[1] == pytest.approx([-1.0], abs=1e-5)


def test_an_advantage_covers_exactly_the_sampled_tokens_of_its_own_turn():
    for ids in ((40, 3), (40, 41, 42, 43, 3)):
        made = credit.sample(turn(completion=completion(ids)), -1.0, [])
        assert made.advantages.tolist() == [-1.0] * len(ids)
        assert made.mask.all() and made.mask.dtype == bool and made.has_advantage
        assert len(made.logps) == len(made.versions) == len(ids)


def test_greedy_and_abstained_turns_have_no_grpo_term_and_cut_ones_say_so():
    greedy = credit.sample(turn(sampling=Sampling(temperature=0.0)), 1.0, [])
    assert not greedy.has_advantage and not greedy.advantages.any()
    hints = [np.arange(3, dtype=np.int32)]
    abstained = credit.sample(turn(), None, hints)
    assert not abstained.has_advantage and len(abstained.hints) == 1
    cut = credit.sample(turn(completion=completion(finish=FinishReason.LENGTH)), 1.0, [])
    assert cut.truncated
