"""How a batch is split over ranks, and the words between them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import VERSION, config
from hypothesis import given
from hypothesis import strategies as st
from some_samples import batch, sample

from claw import config as settings
from claw.engine import wire
from claw.engine.trainer import model, plan, ranks, share
from claw.engine.trainer.plan import Item, Limits
from claw.engine.trainer.ranks import Ranks
from claw.errors import UsageError, WireError

LIMITS = Limits(VERSION.owner, VERSION.adapter, 0, 300, 512)


def items(n: int, **changes: Any) -> tuple[Item, ...]:
    return plan.make(batch(n), config(**changes), LIMITS).items


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(1, 5))
def test_every_item_has_one_rank_and_no_rank_has_much_more_than_its_part(
    replies: list[int], size: int
) -> None:
    made = plan.make([sample(i, reply=n) for i, n in enumerate(replies)], config(), LIMITS).items
    parts = share.split(made, size)
    assert sorted(i.sample.id for part in parts for i in part) == sorted(
        i.sample.id for i in made)
    assert all(part == [i for i in made if i in part] for part in parts), "in the plan's order"
    costs = {id(i): i.sample.num_tokens + sum(len(h) + len(i.rl) for h in i.hints) for i in made}
    loads = [sum(costs[id(i)] for i in part) for part in parts]
    for part, load in zip(parts, loads, strict=True):
        last = min((costs[id(i)] for i in part), default=0)
        assert load - last <= min(loads), "the last item went where there was least"


@pytest.mark.parametrize("packing", [False, True])
def test_all_ranks_make_as_many_passes_of_each_kind(packing: bool) -> None:
    c = config(train={"micro_tokens": 64, "packing": packing})
    made = items(7)
    for size in (1, 2, 4, 9):
        found = [share.rounds(made, Ranks(rank, size), c) for rank in range(size)]
        assert len({len(rounds) for rounds in found}) == 1
        for beside in zip(*found, strict=True):
            assert len({part.teacher_passes for part in beside}) == 1
            assert beside[0].teacher_passes >= 1
        trained = [i for rounds in found for part in rounds for i in part.items
                   if not part.is_idle]
        assert sorted(i.sample.id for i in trained) == sorted(i.sample.id for i in made)
    assert all(part.is_idle for part in found[8]), "nine ranks and seven samples"


def test_alone_is_the_plan_itself() -> None:
    c, made = config(train={"micro_tokens": 4096}), items(4)
    (part,) = share.rounds(made, Ranks(), c)
    assert part.items == made and not part.is_idle
    assert share.rounds((), Ranks(), c) == []


def test_words_are_cut_where_they_were_joined() -> None:
    arrays = {"a": np.arange(70_000, dtype=np.int64), "b": np.zeros(0, np.float32)}
    told = wire.Message("hidden", "", {"seed": 7}, arrays)
    heard = wire.decode(ranks._cut(ranks._join(wire.encode(told))))
    assert heard.type == "hidden" and heard["seed"] == 7
    assert all(np.array_equal(heard.arrays[name], array) for name, array in arrays.items())


def test_words_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "MAX_BYTES", 1000)
    with pytest.raises(WireError, match="too many"):
        ranks._join([b"x" * 1001])


def test_a_process_alone_agrees_with_itself_and_tells_nobody() -> None:
    alone = Ranks()
    with alone.in_step():
        assert alone.any(True) and not alone.any(False)
    alone.tell("anything")
    (own,) = alone.gather(wire.Message("tally", ""))
    assert own.type == "tally"


def test_ranks_and_a_single_device_are_refused_together() -> None:
    with pytest.raises(UsageError, match="one device"):
        settings.parse({"train": {"ranks": 2, "device": "cuda:1"}})


def test_a_model_that_sees_is_refused_on_several_ranks(tiny_qwen3_vl_dir: Path) -> None:
    with pytest.raises(UsageError, match="one rank"):
        model.load(tiny_qwen3_vl_dir, config(), Ranks(0, 2))


def test_several_ranks_need_who_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(UsageError, match="torchrun"):
        ranks.open_ranks("", "cpu")
