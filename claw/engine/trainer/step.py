"""One optimiser step over a leased global batch.

Owns: the order of work, accumulation over micro-batches, what makes a step impossible, metrics.
Does not own: which term a sample has (plan), formulas (loss), the kernels.

T reply tokens of a micro-batch.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from claw import kernels
from claw.config import RunConfig
from claw.engine import faults
from claw.engine.trainer import batch, loss, plan, score, targets
from claw.engine.trainer.batch import MicroBatch
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser, is_finite
from claw.engine.trainer.plan import Item, Limits, Plan
from claw.records import Loss, Sample, Version


class Abandoned(Exception):
    """The step was asked to stop before its update; weights and optimiser are untouched."""


@dataclass(frozen=True)
class Done:
    """What became of a step."""

    loss: Loss
    grad_norm: float
    lr: float
    seconds: float
    skipped: str
    """why the weights did not change; empty when they did"""
    left_out: dict[str, str]
    """samples without a part in the step, by id, each with its reason"""
    seen: dict[str, targets.Seen] = field(default_factory=dict)
    """what hinted teachers made of the samples, by id"""


@faults.around("trainer.step")
def run(
    policy: Policy, optim: Optimiser, samples: Sequence[Sample], config: RunConfig, *,
    version: Version, seed: int = 0, stop: Callable[[], bool] = lambda: False,
) -> Done:
    """Train one global batch; the weights change once, at the end, or not at all.

    `version` is what the weights are now: its owner's samples are trained, ages count from it.
    For each micro-batch: the teacher over hinted prompts, the student's forward pass with
    gradients, scoring of that pass's detached hidden states, targets, `hybrid_loss`, backward. The
    weights do not change within the step, so the student's scores (l_old of the distillation, the
    log-probs that `proximal` recomputes) and the training pass share one forward pass.
    A batch without a term, or a loss or gradient that is not finite, changes nothing and says so
    in `Done.skipped`. Abandoned: `stop` became true between micro-batches.
    """
    started = time.perf_counter()
    limits = Limits(
        version.owner, version.adapter, version.number, policy.vocab_size, policy.context,
        policy.lens,
    )
    what = plan.make(samples, config, limits)
    tally = _Tally(config)
    optim.zero_grad()
    skipped = "" if what.items else "nothing to train"
    try:
        for items, micro in _micro_batches(what, config, policy.device):
            if stop():
                raise Abandoned
            _one(policy, items, micro, what, config, seed, tally)
    except score.NotFinite as error:
        skipped = f"not finite: {error}"
    except BaseException:
        optim.zero_grad()
        raise
    norm, lr = 0.0, optim.lr
    if not skipped:
        norm = optim.clip()
        skipped = _impossible(tally.total, norm)
    if skipped:
        optim.zero_grad()
    else:
        optim.step()
        policy.update_ema()
    seconds = time.perf_counter() - started
    metrics = tally.metrics(what, samples, norm, lr, seconds, skipped)
    return Done(tally.loss(metrics), norm, lr, seconds, skipped, what.left_out,
                tally.seen)


def _impossible(total: float, norm: float) -> str:
    if not is_finite(total):
        return "not finite: the loss"
    return "" if is_finite(norm) else "not finite: the gradient"


def _micro_batches(
    what: Plan, config: RunConfig, device: torch.device
) -> list[tuple[list[Item], MicroBatch]]:
    lengths = [item.sample.num_tokens for item in what.items]
    found = []
    for indices in batch.group(lengths, config.train.micro_tokens):
        items = [what.items[i] for i in indices]
        pairs = [(i.sample.prompt_ids, i.sample.reply_ids, *i.sample.pictures) for i in items]
        found.append((items, batch.pad(pairs, device)))
    return found


def _one(
    policy: Policy, items: list[Item], micro: MicroBatch, what: Plan, config: RunConfig,
    seed: int, tally: "_Tally",
) -> None:
    """Forward, targets, loss and backward of one micro-batch; gradients add up."""
    method, k = loss.METHODS[config.train.method], config.loss.k
    taus = [np.full(len(i.rl), i.temperature, np.float32) for i in items]
    tau_T = torch.as_tensor(np.concatenate(taus)).to(policy.device)
    teacher = score.teacher(
        policy, config.loss.teacher, items if method.opd else [], config.train.micro_tokens
    )
    has_kl = config.loss.kl_coef > 0
    ref_T = score.reference_logps(policy, micro, tau_T) if has_kl else None
    hidden_TH = score.finite(micro.at_replies(policy.student(micro.ids_BL, micro.pictures)))
    student = targets.see(
        hidden_TH, policy.head, micro, tau_T, min(k, policy.vocab_size) if method.opd else 0
    )
    aim = targets.make(student, teacher, items, micro, config, seed)
    value, sums = kernels.hybrid_loss(
        hidden_TH, policy.head, ids=micro.reply_ids_T, old_logp=aim.old_logp_T,
        advantage=aim.advantage_T, topk_ids=aim.topk_ids_TK, topk_old_logp=aim.topk_old_logp_TK,
        topk_advantage=aim.topk_advantage_TK, ref_logp=ref_T, is_weight=aim.is_weight_T,
        temperature=tau_T, clip_low=config.loss.clip_low, clip_high=config.loss.clip_high,
        **_weights(items, micro, what, config),
    )
    if not bool(torch.isfinite(value)):
        raise score.NotFinite("the loss")
    value.backward()
    tally.add(float(value.detach()), sums, items, micro, aim, student.logp_T)


def _weights(
    items: list[Item], micro: MicroBatch, what: Plan, config: RunConfig
) -> dict[str, Tensor | None]:
    """Coefficient x share of each token, with counts over the whole global batch.

    The combined method has one surrogate: its tokens are those of either part, and both
    coefficients are inside its advantage.
    """
    method, c = loss.METHODS[config.train.method], config.loss

    def share(term: str, coefficient: float) -> Tensor:
        masks = [getattr(item, term) for item in items]
        lengths = torch.tensor([int(m.sum()) for m in masks], device=micro.row_T.device)
        mask_T = torch.as_tensor(np.concatenate(masks)).to(micro.row_T.device)
        count = what.count(term, c.normalise)
        return coefficient * loss.token_weights(lengths, micro.row_T, mask_T, c.normalise, count)

    is_combined = method.rl and method.opd and not method.topk
    rl = share("any", 1.0) if is_combined else share("rl", c.w_rl)
    return {
        "rl_weight": rl,
        "opd_weight": share("opd", c.w_opd) if method.opd and not is_combined else None,
        "kl_weight": share("any", c.kl_coef) if c.kl_coef > 0 else None,
        "entropy_weight": share("any", c.entropy_coef) if c.entropy_coef > 0 else None,
    }


class _Tally:
    """Sums over the micro-batches of a step, and the metrics that come of them."""

    def __init__(self, config: RunConfig) -> None:
        self.config, self.total = config, 0.0
        self.sums: Counter[str] = Counter()
        self.max_log_ratio = 0.0
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
