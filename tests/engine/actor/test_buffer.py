"""Samples wait, are leased once, and leave only with a reason."""

import numpy as np
from some_turns import sample

from claw.engine.actor.buffer import Buffer, is_loop


def many(buffer, count, start=0.0, **changes):
    made = [sample(f"s{i}", prompt=(i, int(start)), **changes) for i in range(count)]
    for i, s in enumerate(made):
        buffer.add(s, start + i)
    return made


def test_a_step_starts_when_enough_wait_or_one_waited_long_enough():
    buffer = Buffer(8)
    many(buffer, 3)
    assert buffer.lease(4, 100.0, now=50.0) is None
    assert [s.id for s in buffer.lease(4, 100.0, now=100.0).samples] == ["s0", "s1", "s2"]
    assert buffer.lease(4, 0.0, now=100.0) is None
    many(buffer, 5, start=200.0)
    assert [s.id for s in buffer.lease(4, 100.0, now=201.0).samples] == ["s0", "s1", "s2", "s3"]


def test_a_leased_sample_is_nobody_elses_until_it_is_put_back():
    buffer = Buffer(8)
    many(buffer, 2)
    first = buffer.lease(2, 0.0)
    assert buffer.lease(1, 0.0) is None
    buffer.release(first.id)
    again = buffer.lease(2, 0.0)
    assert {s.id for s in again.samples} == {"s0", "s1"}
    assert buffer.finish(again.id) is again and buffer.finish(again.id) is None


def test_one_step_trains_one_owners_adapter():
    buffer = Buffer(8)
    buffer.add(sample("a", owner="ann"), 1.0)
    buffer.add(sample("b", owner="bob"), 2.0)
    buffer.add(sample("c", owner="ann", prompt=(9,)), 3.0)
    assert [s.id for s in buffer.lease(5, 0.0).samples] == ["a", "c"]
    assert [s.id for s in buffer.lease(5, 0.0).samples] == ["b"]


def test_a_stale_sample_is_dropped_and_counted():
    buffer = Buffer(2)
    buffer.add(sample("old", versions=np.array([1, 4, 4], np.int32)), 1.0)
    buffer.add(sample("new", version=2), 2.0)
    assert [(s.id, why) for s, why in buffer.drop_stale(lambda s: 4)] == [("old", "stale")]
    assert buffer.take_dropped() == {"stale": 1} and buffer.take_dropped() == {}
    assert [s.id for s in buffer.lease(5, 0.0).samples] == ["new"]


def test_with_masking_a_sample_is_stale_only_when_all_of_it_is():
    buffer = Buffer(2, masks=True)
    buffer.add(sample("part", versions=np.array([1, 4, 4], np.int32)), 1.0)
    buffer.add(sample("old", versions=np.array([0, 1, 1], np.int32)), 2.0)
    assert [(s.id, why) for s, why in buffer.drop_stale(lambda s: 4)] == [("old", "stale")]
    assert list(buffer.waiting) == ["part"]


def test_what_is_not_worth_training_is_refused_with_its_reason():
    buffer = Buffer(8)
    assert buffer.refusal(sample()) == ""
    buffer.add(sample())
    assert buffer.refusal(sample()) == "duplicate"
    assert buffer.refusal(sample(), in_group=True) == ""
    assert buffer.refusal(sample(owner="anna")) == ""
    assert buffer.refusal(sample(reply=())) == "empty_reply"
    assert buffer.refusal(sample(has_advantage=False, prompt=(5,))) == "no_signal"
    hinted = sample(has_advantage=False, prompt=(5,), hints=(np.arange(3, dtype=np.int32),))
    assert buffer.refusal(hinted) == ""
    assert buffer.refusal(sample(mask=np.zeros(3, bool), prompt=(6,))) == "empty_reply"
    assert buffer.refusal(sample(reply=[1, 2, 3] * 40, prompt=(7,))) == "degenerate"


def test_loops_are_told_from_long_text_and_short_repetition():
    rng = np.random.default_rng(0)
    assert not is_loop(rng.integers(0, 1000, 500))
    assert not is_loop(np.array([5] * 20))
    assert is_loop(np.array([5] * 60))
    assert is_loop(np.concatenate([rng.integers(0, 1000, 20), np.tile(np.arange(7), 40)]))


def test_leases_of_an_earlier_process_are_known_again():
    buffer = Buffer(8)
    buffer.restore([(sample("a"), "l1"), (sample("b"), "l2"), (sample("c"), "l1")])
    assert [s.id for s in buffer.finish("l1").samples] == ["a", "c"]
    assert [s.id for s in buffer.release("l2").samples] == ["b"]
    assert list(buffer.waiting) == ["b"]


# --- shares of a step ----------------------------------------------------------------------------


HALF = {"conversation": 0.5, "hint": 0.5}


def queue(shares, *rows):
    """A buffer in which samples of (conversation, hint) wait, in this order."""
    buffer = Buffer(8, shares=shares)
    said = {f"s{i}": row for i, row in enumerate(rows)}
    buffer.sources = lambda s: frozenset(
        (kind, name) for kind, name in zip(("conversation", "hint"), said[s.id], strict=True)
        if name)
    for i in range(len(rows)):
        buffer.add(sample(f"s{i}", prompt=(i, 7)), float(i))
    return buffer


def steps(buffer, size):
    """Every step that comes, once no more samples do."""
    made = []
    while (lease := buffer.lease(size, 0.0)) is not None:
        made.append([s.id for s in lease.samples])
    return made


def test_one_conversation_has_at_most_its_share_and_the_rest_is_first_in_the_next_step():
    buffer = queue(HALF, *[("loud", "")] * 6, ("quiet", ""), ("quiet", ""), ("third", ""))
    assert steps(buffer, 4) == [["s0", "s1", "s6", "s7"], ["s2", "s3", "s8"], ["s4", "s5"]]
    assert buffer.over["conversation"] == 4 + 2


def test_one_hint_has_at_most_its_share_in_however_many_conversations():
    rows = [(f"talk {i}", "obey") for i in range(5)] + [("other", "be brief"), ("last", "")]
    assert steps(queue(HALF, *rows), 4) == [["s0", "s1", "s5", "s6"], ["s2", "s3", "s4"]]


def test_a_lone_conversation_with_one_wish_trains_in_whole_steps_as_if_there_were_no_shares():
    rows = [("only", "be brief")] * 9
    assert steps(queue(HALF, *rows), 4) == steps(queue({}, *rows), 4)
    assert [len(step) for step in steps(queue(HALF, *rows), 4)] == [4, 4, 1]


def test_nothing_is_lost_or_starves_whatever_waits():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 16):
        rows = [(f"talk {rng.integers(3)}", f"hint {rng.integers(4)}") for _ in range(60)]
        made = steps(queue({"conversation": 0.2, "hint": 0.01}, *rows), size)
        left = {int(id[1:]) for step in made for id in step}
        assert left == set(range(60)) and sum(map(len, made)) == 60
        for step in made:  # the oldest that waits is always in
            assert f"s{min(left)}" in step
            left -= {int(id[1:]) for id in step}


def test_a_share_of_one_is_no_limit_and_a_small_one_lets_one_through():
    rows = [("a", "")] * 3 + [("b", "")]
    assert steps(queue({"conversation": 1.0}, *rows), 4) == [["s0", "s1", "s2", "s3"]]
    assert steps(queue({"conversation": 0.01}, *rows), 4)[0] == ["s0", "s3"]


def test_a_round_of_the_demo_makes_the_steps_that_it_made_without_shares():
    """Eight conversations of one person, two turns each, all with the same correction."""
    rows = [(f"talk {i}", hint) for i in range(8) for hint in ("be brief", "")]
    rows += [(f"talk {i}", "be brief") for i in range(8)]
    assert steps(queue(HALF, *rows[:16]), 16) == steps(queue({}, *rows[:16]), 16)
    # only when more than half a step has one and the same wish do some of these wait for the next
    assert [len(step) for step in steps(queue(HALF, *rows), 16)] == [16, 8]
