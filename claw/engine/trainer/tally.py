"""What a step adds up: sums over its micro-batches, those of every rank, and metrics of them.

Owns: names and divisors of metrics. Does not own: the loss (loss), what is trained (plan).

T reply tokens of a micro-batch, R of one item.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from claw.config import RunConfig
from claw.engine import wire
from claw.engine.trainer import targets
from claw.engine.trainer.batch import MicroBatch
from claw.engine.trainer.plan import Item, Plan
from claw.engine.trainer.ranks import Ranks
from claw.records import Loss, Sample


class Tally:
    """Sums over the micro-batches of a step, and the metrics that come of them."""

    def __init__(self, config: RunConfig) -> None:
        self.config, self.total = config, 0.0
        self.sums: Counter[str] = Counter()
        self.gaps: list[np.ndarray] = []
        self.hint_choices: list[float] = []
        self.seen: dict[str, targets.Seen] = {}
        self.tokens = 0

    def add(
        self, value: float, sums: dict[str, Tensor], items: list[Item], micro: MicroBatch,
        aim: targets.Targets, logp_T: Tensor,
    ) -> None:
        self.total += value
        for name, number in sums.items():
            self.sums[name] += float(number)
        self.sums["overlap"] += aim.overlap_sum
        self.sums["teacher_gap"] += aim.gap_sum
        self.hint_choices += aim.hint_choices
        self.seen |= aim.seen
        self.tokens += micro.num_tokens + sum(len(h) + len(i.rl) for i in items for h in i.hints)
        for item, logp_R in zip(items, micro.per_sequence(logp_T), strict=True):
            self.gaps.append(np.abs(logp_R.cpu().numpy() - item.sample.logps)[item.any])

    def gather(self, ranks: Ranks) -> None:
        """Bring all ranks' sums to the first; the others keep theirs."""
        if ranks.size == 1:
            return
        for message in ranks.gather(self._message())[1:]:
            self._take(message)

    def _message(self) -> wire.Message:
        arrays = {"gaps": np.concatenate([np.zeros(0, np.float32), *self.gaps]),
                  "hint_choices": np.array(self.hint_choices, np.float64)}
        for i, seen in enumerate(self.seen.values()):
            arrays |= wire.pack(seen, f"{i}/")[1]
        fields = {"total": self.total, "sums": dict(self.sums), "tokens": self.tokens,
                  "seen": list(self.seen)}
        return wire.Message("tally", "", fields, arrays)

    def _take(self, message: wire.Message) -> None:
        self.total += message["total"]
        self.tokens += message["tokens"]
        self.sums.update(message["sums"])
        self.gaps.append(message.arrays["gaps"])
        self.hint_choices += message.arrays["hint_choices"].tolist()
        for i, id in enumerate(message["seen"]):
            self.seen[id] = wire.unpack(targets.Seen, {}, message.arrays, f"{i}/")

    def loss(self, metrics: dict[str, float]) -> Loss:
        s = self.sums
        return Loss(self.total, s["rl_loss"], s["opd_loss"], s["kl_loss"], metrics)

    def metrics(
        self, what: Plan, samples: Sequence[Sample], norm: float, lr: float, seconds: float,
        skipped: str,
    ) -> dict[str, float]:
        """Names as other trainers use them: train/, opd/, mismatch/, rollout/, async/, perf/."""
        s = self.sums
        rl_tokens, opd_tokens = max(s["rl_tokens"], 1.0), max(what.count("opd", "token-mean"), 1)
        found = {
            "train/loss": self.total, "train/rl_loss": s["rl_loss"],
            "train/opd_loss": s["opd_loss"],
            "train/kl": s["kl_loss"] / (self.config.loss.kl_coef or 1.0),
            "train/entropy": s["entropy"] / max(s["tokens"], 1.0),
            "train/approx_kl": s["approx_kl"] / rl_tokens,
            "train/clip_low": s["clip_low_count"] / rl_tokens,
            "train/clip_high": s["clip_high_count"] / rl_tokens,
            "train/opd_clip": s["opd_clip_count"] / opd_tokens,
            "train/missing_logp": s["missing_logp"],
            "train/grad_norm": norm, "train/lr": lr, "train/skipped": float(bool(skipped)),
            "train/rl_samples": float(what.count("rl", "sample-mean")),
            "train/opd_samples": float(what.count("opd", "sample-mean")),
            "perf/step_s": seconds, "perf/tokens_per_s": self.tokens / max(seconds, 1e-9),
        }
        if self.hint_choices:
            found["opd/overlap_mean"] = s["overlap"] / opd_tokens
            found["opd/teacher_gap_abs_mean"] = s["teacher_gap"] / opd_tokens
            found["opd/hint_choice"] = float(np.mean(self.hint_choices))
        found |= _mismatch(self.gaps) | _rollout(what, samples)
        return found


def _mismatch(gaps: list[np.ndarray]) -> dict[str, float]:
    """|trainer's log-prob - worker's log-prob| of the sampled tokens; staleness is part of it."""
    gap = np.concatenate(gaps) if gaps else np.zeros(0)
    gap = gap[np.isfinite(gap)]
    if not len(gap):
        return {}
    return {
        "mismatch/logp_abs_mean": float(gap.mean()), "mismatch/logp_abs_max": float(gap.max())
    }


def _rollout(what: Plan, samples: Sequence[Sample]) -> dict[str, float]:
    found = {f"rollout/dropped_{reason}": float(n) for reason, n in what.dropped.items()}
    found["rollout/samples"] = float(len(samples))
    if samples:
        found["rollout/reply_len_mean"] = float(np.mean([len(x.reply_ids) for x in samples]))
        found["rollout/truncated_ratio"] = float(np.mean([x.truncated for x in samples]))
    judged = [float(i.sample.advantages[i.rl].mean()) for i in what.items if i.rl.any()]
    if judged:
        found["rollout/advantage_mean"] = math.fsum(judged) / len(judged)
    ages = [i.age for i in what.items]
    if ages:
        found |= {"async/age_mean": float(np.mean(ages)), "async/age_max": float(max(ages))}
        found["async/masked_tokens"] = float(sum(i.num_masked for i in what.items))
    return found
