"""Who trains what of a batch: whole samples, balanced by tokens, in rounds that all ranks make.

Owns: the split, the micro-batches of each rank, how many passes the ranks make together.
Does not own: which terms a sample has (plan), the passes (step).

Weights in shards are gathered by all ranks at once, so each makes as many passes as the others: one
whose share is smaller, or empty, passes a stand-in that nothing is learned from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from claw.config import RunConfig, TrainConfig
from claw.engine.trainer import batch
from claw.engine.trainer.plan import Item
from claw.engine.trainer.ranks import Ranks
from claw.records import DEFAULT_OWNER, Sample


@dataclass(frozen=True)
class Round:
    """One micro-batch of this rank, beside one of each other rank."""

    items: tuple[Item, ...]
    teacher_passes: int
    """forward passes of the teacher that every rank makes"""

    @property
    def is_idle(self) -> bool:
        return self.items == (IDLE,)


def rounds(items: Sequence[Item], ranks: Ranks, config: RunConfig) -> list[Round]:
    """This rank's micro-batches; every rank gets as many."""
    train = config.train
    micros = [_micro_batches(part, train) for part in split(items, ranks.size)]
    found = []
    for i in range(max(map(len, micros))):
        beside = [own[i] if i < len(own) else (IDLE,) for own in micros]
        passes = max(len(_group(_hinted(own), train)) for own in beside)
        found.append(Round(beside[ranks.rank], passes))
    return found


def split(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Give each item to the rank with the fewest tokens so far, the largest items first.

    Tokens are those that are computed: of the sample, and of its reply after each hint. Each rank's
    items are in the order of the argument.
    """
    shares: list[list[int]] = [[] for _ in range(size)]
    tokens = [0] * size
    costs = [item.sample.num_tokens + sum(_hinted([item])) for item in items]
    for i in sorted(range(len(items)), key=lambda i: -costs[i]):
        rank = tokens.index(min(tokens))
        shares[rank].append(i)
        tokens[rank] += costs[i]
    return [[items[i] for i in sorted(part)] for part in shares]


def _micro_batches(items: Sequence[Item], train: TrainConfig) -> list[tuple[Item, ...]]:
    lengths = [item.sample.num_tokens for item in items]
    return [tuple(items[i] for i in indices) for indices in _group(lengths, train)]


def _group(lengths: Sequence[int], train: TrainConfig) -> list[list[int]]:
    return batch.group(lengths, train.micro_tokens, packed=train.packing)


def _hinted(items: Sequence[Item]) -> list[int]:
    return [len(hint) + len(item.rl) for item in items for hint in item.hints]


def _idle() -> Item:
    id, none = np.zeros(1, np.int32), np.zeros(1, bool)
    zero = np.zeros(1, np.float32)
    sample = Sample("", "", "", DEFAULT_OWNER, DEFAULT_OWNER, prompt_ids=id, reply_ids=id,
                    logps=zero, mask=none, advantages=zero, versions=id, temperature=1.0,
                    has_advantage=False)
    return Item(sample, 1.0, rl=none, opd=none, hints=(), age=0)


IDLE = _idle()
"""what a rank passes that has nothing: one token after another, without a term"""
