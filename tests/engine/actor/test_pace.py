"""`async.stale = "pace"`: episodes begin only as fast as training follows."""

import asyncio

import numpy as np
from test_buffer import sample

from claw import config as settings
from claw.engine.actor.buffer import Buffer
from claw.engine.actor.groups import Episode, Groups
from claw.engine.actor.pace import Pace
from claw.records import End, Trace


def make(stale="pace", staleness=1, batch=2, trains=lambda: True):
    config = settings.parse({"async": {"stale": stale, "max_staleness": staleness},
                             "train": {"batch_size": batch}})
    buffer, groups = Buffer(staleness), Groups()
    return Pace(config, buffer, groups, trains), buffer, groups


def begins(pace, group=""):
    """Whether an episode of this group may begin now."""
    async def main():
        try:
            await asyncio.wait_for(pace.wait(group), 0.05)
        except TimeoutError:
            return False
        return True
    return asyncio.run(main())


def episode(groups, name, turns=0, group="", size=1):
    made = Episode(Trace(name, "default", "p", "task", group))
    made.turns += [f"{name}.{i}" for i in range(turns)]
    groups.open(made, size)
    return made


def test_no_more_is_begun_than_the_bound_lets_be_trained_in_time():
    pace, buffer, groups = make()  # (1 + 1) * 2 samples may be ahead
    for i in range(3):
        buffer.add(sample(f"s{i}", prompt=(i,)), float(i))
    assert begins(pace)
    open_one = episode(groups, "e")
    assert pace.ahead == 4 and not begins(pace)
    open_one.turns += ["t1", "t2"]
    assert pace.ahead == 5, "each turn gives a sample"
    lease = buffer.lease(2, 0.0)
    assert not begins(pace), "what is in training is still ahead"
    buffer.finish(lease.id)
    assert pace.ahead == 3 and begins(pace)


def test_a_group_that_has_begun_is_never_held_up():
    pace, _, groups = make()
    episode(groups, "a", turns=4, group="g", size=3)
    assert begins(pace, "g") and not begins(pace, "h")


def test_without_a_trainer_and_without_the_setting_nothing_waits():
    for pace, buffer, _ in (make(trains=lambda: False), make(stale="drop")):
        for i in range(9):
            buffer.add(sample(f"s{i}", prompt=(i,)), float(i))
        assert begins(pace)


def test_with_this_bound_nothing_is_too_old_when_episodes_end_in_order():
    """Episodes of one sample each, a step when a batch waits, two versions allowed."""
    pace, buffer, groups = make(staleness=2, batch=3)
    version, ages, random = 0, [], np.random.default_rng(0)
    running = []
    for i in range(300):
        if begins_now(pace):
            running.append((episode(groups, f"e{i}", turns=1), version))
        if running and random.random() < 0.6:
            done, sampled = running.pop(0)
            groups.note_end(Trace(done.trace.id, "default", "p", "task", end=End.DONE))
            groups.take_complete(lambda turn: True)
            buffer.add(sample(done.trace.id, prompt=(i,), version=sampled), float(i))
        if random.random() < 0.2 and (lease := buffer.lease(3, 1e12)) is not None:
            ages += [version - s.version for s in lease.samples]
            buffer.finish(lease.id)
            version += 1
    assert len(ages) > 60 and max(ages) == 2


def begins_now(pace):
    return not (pace.ahead >= pace._room)
