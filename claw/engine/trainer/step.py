"""One optimiser step over a leased global batch.

Owns: the order of work, accumulation over micro-batches, what makes a step impossible.
Does not own: which term a sample has (plan), whose share it is (share), formulas (loss), the
kernels, metrics (tally).

Several ranks make a step together: each runs this over its share. The counts that losses are
divided by are those of the whole batch, so gradients add up to those of one rank.

T reply tokens of a micro-batch.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from claw import kernels
from claw.config import RunConfig
from claw.engine import faults, wire
from claw.engine.trainer import loss, plan, score, share, targets
from claw.engine.trainer.batch import MicroBatch
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser, is_finite
from claw.engine.trainer.plan import Item, Limits, Plan
from claw.engine.trainer.share import Round
from claw.engine.trainer.tally import Tally
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
    With several ranks the first one's call has the others make it too (`follow`); its `stop` counts
    and its `Done` is of the whole batch.
    """
    if policy.ranks.size > 1:
        told = {"version": wire.pack(version)[0], "seed": seed}
        policy.ranks.tell_all_of(wire.samples_message("step", list(samples), "", **told))
    with policy.ranks.in_step():
        return _run(policy, optim, samples, config, version, seed, stop)


def _run(
    policy: Policy, optim: Optimiser, samples: Sequence[Sample], config: RunConfig,
    version: Version, seed: int, stop: Callable[[], bool],
) -> Done:
    started, ranks = time.perf_counter(), policy.ranks
    if ranks.size > 1:
        torch.manual_seed(seed + ranks.rank)  # the dropout of adapters, the same after a resume
    limits = Limits(
        version.owner, version.adapter, version.number, policy.vocab_size, policy.context,
        policy.lens,
    )
    what = plan.make(samples, config, limits)
    tally = Tally(config)
    optim.zero_grad()
    skipped = "" if what.items else "nothing to train"
    try:
        for part in share.rounds(what.items, ranks, config):
            if ranks.any(stop()):
                raise Abandoned
            _one(policy, part, what, config, seed, tally)
    except score.NotFinite as error:
        skipped = f"not finite: {error}"
    except BaseException:
        optim.zero_grad()
        raise
    norm, lr = 0.0, optim.lr
    if not skipped:
        norm = optim.clip()
        skipped = _impossible(tally.total, norm)
        if ranks.any(bool(skipped)):
            skipped = skipped or "not finite: the loss of another rank"
    if skipped:
        optim.zero_grad()
    else:
        optim.step()
        policy.update_ema()
    tally.gather(ranks)
    seconds = time.perf_counter() - started
    metrics = tally.metrics(what, samples, norm, lr, seconds, skipped)
    return Done(tally.loss(metrics), norm, lr, seconds, skipped, what.left_out,
                tally.seen)


def _impossible(total: float, norm: float) -> str:
    if not is_finite(total):
        return "not finite: the loss"
    return "" if is_finite(norm) else "not finite: the gradient"


def _one(
    policy: Policy, part: Round, what: Plan, config: RunConfig, seed: int, tally: Tally
) -> None:
    """Forward, targets, loss and backward of one micro-batch; gradients add up."""
    method, k = loss.METHODS[config.train.method], config.loss.k
    items = list(part.items)
    pairs = [(i.sample.prompt_ids, i.sample.reply_ids, *i.sample.pictures) for i in items]
    micro = policy.lay(pairs)
    taus = [np.full(len(i.rl), i.temperature, np.float32) for i in items]
    tau_T = torch.as_tensor(np.concatenate(taus)).to(policy.device)
    teacher = score.teacher(
        policy, config.loss.teacher, items if method.opd else [], config.train.micro_tokens,
        part.teacher_passes,
    )
    has_kl = config.loss.kl_coef > 0
    ref_T = score.reference_logps(policy, micro, tau_T) if has_kl else None
    hidden_TH = score.finite(
        micro.at_replies(policy.student(micro.ids_BL, micro.pictures, micro.bounds)),
        policy.ranks)
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
    if policy.ranks.any(not bool(torch.isfinite(value))):
        raise score.NotFinite("the loss")
    value.backward()
    if not part.is_idle:
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
        device = micro.sequence_T.device
        lengths = torch.tensor([int(m.sum()) for m in masks], device=device)
        mask_T = torch.as_tensor(np.concatenate(masks)).to(device)
        count = what.count(term, c.normalise)
        return coefficient * loss.token_weights(
            lengths, micro.sequence_T, mask_T, c.normalise, count)

    is_combined = method.rl and method.opd and not method.topk
    rl = share("any", 1.0) if is_combined else share("rl", c.w_rl)
    return {
        "rl_weight": rl,
        "opd_weight": share("opd", c.w_opd) if method.opd and not is_combined else None,
        "kl_weight": share("any", c.kl_coef) if c.kl_coef > 0 else None,
        "entropy_weight": share("any", c.entropy_coef) if c.entropy_coef > 0 else None,
    }
