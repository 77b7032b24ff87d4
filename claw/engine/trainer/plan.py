"""What a global batch trains: which sample has which term, and over how many it is averaged.

Owns: the checks of what came over the wire, masks, counts over the whole batch.
Does not own: the weights of tokens (loss), the order of work (step).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from claw.config import RunConfig
from claw.engine.pictures import Lens
from claw.engine.trainer.loss import METHODS, asks_teacher
from claw.records import Sample


@dataclass(frozen=True)
class Limits:
    """What the trainer can take, and whose samples it trains."""

    owner: str
    adapter: str
    version: int
    """number of the weights that are about to be trained"""
    vocab_size: int
    context: int
    lens: Lens | None = None
    """how the model reads pictures"""


@dataclass(frozen=True, eq=False)
class Item:
    """One sample with its terms. R reply tokens."""

    sample: Sample
    temperature: float
    """the turn's own; 1 for greedy turns"""
    rl: np.ndarray
    """bool [R] tokens with a GRPO term"""
    opd: np.ndarray
    """bool [R] tokens with an OPD term"""
    hints: tuple[np.ndarray, ...]
    """int32 hinted prompts, shortest first; empty without an OPD term"""
    age: int
    """versions between its oldest trained token and the weights that train it"""
    num_masked: int = 0
    """tokens that are too old to be trained"""

    @property
    def any(self) -> np.ndarray:
        """bool [R] tokens with any term: KL and entropy count these."""
        return self.rl | self.opd


@dataclass(frozen=True, eq=False)
class Plan:
    """The items in an order that does not depend on the order of arrival, and the counts."""

    items: tuple[Item, ...]
    dropped: dict[str, int]
    """how many samples are not trained, by reason; and `hints`, candidates that do not fit"""
    left_out: dict[str, str]
    """the samples that are not trained, by id, each with its reason"""

    def count(self, term: str, rule: str) -> int:
        """What a term's sum is divided by: see `loss.token_weights`."""
        masks = [getattr(item, term) for item in self.items]
        if rule == "batch-mean":
            return len(self.items)
        if rule == "sample-mean":
            return sum(bool(m.any()) for m in masks)
        return int(sum(m.sum() for m in masks))


def make(samples: Sequence[Sample], config: RunConfig, limits: Limits) -> Plan:
    """Decide for each sample of a global batch; nothing is left out without a counted reason."""
    dropped: Counter[str] = Counter()
    left_out: dict[str, str] = {}
    items: dict[str, Item] = {}
    for sample in samples:
        if sample.id in items:
            dropped["duplicate"] += 1
            continue
        reason = _refusal(sample, limits)
        item = None if reason else _item(sample, config, limits)
        if item is not None:
            reason = _no_use(item, config)
        if item is None or reason:
            dropped[reason] += 1
            left_out[sample.id] = reason
            continue
        items[sample.id] = item
        asked = len(sample.hints) if asks_teacher(config) else 0
        if asked > len(item.hints):
            dropped["hints"] += asked - len(item.hints)
    ordered = sorted(items.values(), key=lambda i: (i.sample.num_tokens, i.sample.id))
    if config.loss.baseline == "batch":
        ordered = _centred(ordered)
    return Plan(tuple(ordered), dict(dropped), left_out)


def _no_use(item: Item, config: RunConfig) -> str:
    """Return why a sample that could be trained is not; empty when it is."""
    if item.age > config.async_.max_staleness:
        return "stale"
    return "" if item.any.any() else "nothing_to_train"


def _centred(items: list[Item]) -> list[Item]:
    """Subtract the mean advantage of the batch's samples that have a GRPO term.

    A_i - mean_j A_j: the batch baseline of REINFORCE (Williams, 1992). Where nearly every vote is
    -1, the few good replies are raised instead of every token being pushed down.
    """
    means = [float(i.sample.advantages[i.rl].mean()) for i in items if i.rl.any()]
    baseline = np.float32(sum(means) / len(means)) if means else np.float32(0)
    return [
        replace(i, sample=replace(i.sample, advantages=i.sample.advantages - baseline))
        for i in items
    ]


def _refusal(s: Sample, limits: Limits) -> str:
    """Return why a sample cannot be trained at all; empty when it can."""
    rows = (s.logps, s.mask, s.advantages, s.versions)
    if (s.owner, s.adapter) != (limits.owner, limits.adapter):
        return "other_owner"
    if any(a.shape != s.reply_ids.shape for a in rows) or s.mask.dtype != bool:
        return "malformed"
    if not (np.isfinite(s.temperature) and s.temperature >= 0):
        return "malformed"
    if not np.isfinite(s.advantages[s.mask]).all():
        return "malformed"
    if s.temperature > 0 and np.isnan(s.logps[s.mask]).any():  # greedy ones are not asked
        return "malformed"
    if not all(_in_vocabulary(ids, limits) for ids in (s.prompt_ids, s.reply_ids)):
        return "malformed"
    if not _shows(s.prompt_ids, s, limits):
        return "pictures"
    return "too_long" if s.num_tokens > limits.context else ""


def _shows(prompt: np.ndarray, s: Sample, limits: Limits) -> bool:
    """Whether the prompt has the tokens of the sample's pictures, and the model reads them."""
    if not s.images and not s.pictures:
        return True
    if limits.lens is None or len(s.pictures) != len(s.images):
        return False
    if any(limits.lens.problem(picture) for picture in s.pictures):
        return False
    try:
        limits.lens.places(prompt, s.pictures)
    except ValueError:
        return False
    return True


def _in_vocabulary(ids: np.ndarray, limits: Limits) -> bool:
    return bool(len(ids) and ids.min() >= 0 and ids.max() < limits.vocab_size)


def _item(s: Sample, config: RunConfig, limits: Limits) -> Item:
    method, none = METHODS[config.train.method], np.zeros(len(s.mask), dtype=bool)
    mask, oldest = s.mask, s.version
    if config.async_.stale == "mask":
        mask = mask & (limits.version - s.versions <= config.async_.max_staleness)
        oldest = int(s.versions[mask].min()) if mask.any() else oldest
    has_rl = (
        method.rl and config.loss.w_rl > 0 and s.has_advantage and s.temperature > 0
        and not (s.truncated and config.loss.truncated == "mask")
    )
    hints: tuple[np.ndarray, ...] = ()
    if asks_teacher(config):
        hints = tuple(h for h in s.hints if _is_usable(h, s, limits))
    return Item(
        sample=s,
        temperature=s.temperature or 1.0,
        rl=mask if has_rl else none,
        opd=mask if hints else none,
        hints=tuple(sorted(hints, key=len)),
        age=limits.version - oldest,
        num_masked=int(s.mask.sum() - mask.sum()),
    )


def _is_usable(hint: np.ndarray, s: Sample, limits: Limits) -> bool:
    fits = _in_vocabulary(hint, limits) and len(hint) + len(s.reply_ids) <= limits.context
    return fits and _shows(hint, s, limits)
