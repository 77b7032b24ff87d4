"""From scores to what the loss takes: old log-probs, advantages and ids of each reply token.

Owns: hint choice, subset and advantages of one micro-batch (all without gradient).
Does not own: formulas (loss), forward passes (score).

T reply tokens of a micro-batch, R of one item, N its hints, K ids of the distillation, k config's.
"""

import math
import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from claw import kernels
from claw.config import RunConfig
from claw.engine.trainer import loss
from claw.engine.trainer.batch import MicroBatch
from claw.engine.trainer.plan import Item
from claw.engine.trainer.score import Teacher


@dataclass(frozen=True)
class Student:
    """The current weights' view of the replies at each turn's temperature."""

    hidden_TH: Tensor
    """detached"""
    head: Tensor
    tau_T: Tensor
    logp_T: Tensor
    topk_ids_Tk: Tensor
    topk_logp_Tk: Tensor


@dataclass
class Targets:
    """Per-token arguments of `hybrid_loss`, and what was seen on the way."""

    old_logp_T: Tensor
    advantage_T: Tensor
    is_weight_T: Tensor | None = None
    topk_ids_TK: Tensor | None = None
    topk_old_logp_TK: Tensor | None = None
    topk_advantage_TK: Tensor | None = None
    overlap_sum: float = 0.0
    """shared ids over the OPD tokens, of the chosen hints"""
    gap_sum: float = 0.0
    """|l_T - l_old| of the sampled tokens over the OPD tokens"""
    hint_choices: list[float] = field(default_factory=list)
    seen: dict[str, "Seen"] = field(default_factory=dict)
    """by sample id, of the samples with hints"""


@dataclass(frozen=True)
class Seen:
    """What a hinted teacher made of one sample, for people to look at. R reply tokens."""

    overlap: np.ndarray
    """float32 [N] shared top-k ids per token under each hint of the sample; NaN: not used"""
    chosen: np.ndarray
    """float32 [N] share of the tokens that each hint taught"""
    gap: np.ndarray
    """float32 [R] l_T - l_old of each sampled token, within the bound: below 0 the teacher would
    rather have said something else; 0 where nothing was taught"""


@dataclass(frozen=True)
class _Chosen:
    """One item's teacher after the choice of a hint."""

    per_hint: Tensor
    """[N] overlap of each hint, summed over the tokens"""
    hint_R: Tensor
    overlap_R: Tensor
    topk_ids_Rk: Tensor
    topk_logp_Rk: Tensor
    at_student_Rk: Tensor
    """the teacher's log-probs at the student's top-k"""
    logp_R: Tensor
    """the teacher's log-prob of the sampled token"""


def see(hidden_TH: Tensor, head: Tensor, micro: MicroBatch, tau_T: Tensor, k: int) -> Student:
    """Score the training pass's own hidden states, detached: the weights have not moved yet."""
    hidden_TH, head = hidden_TH.detach(), head.detach()
    found = kernels.score(hidden_TH, head, micro.reply_ids_T[:, None], k, tau_T)
    assert found.logp is not None
    return Student(hidden_TH, head, tau_T, found.logp[:, 0], found.topk_ids, found.topk_logp)


def make(
    student: Student, teacher: Teacher, items: list[Item], micro: MicroBatch, config: RunConfig,
    seed: int,
) -> Targets:
    """Put together what the configured method asks for. Formulas: `loss`, docs/formulas.md."""
    method = loss.METHODS[config.train.method]
    old_T, is_T = _old(student, items, config)
    targets = Targets(old_T, _join([i.sample.advantages for i in items], old_T), is_T)
    if method.opd:
        chosen = _choose(student, teacher, items, micro, config, seed)
        _observe(targets, chosen, student, items, micro, config)
        if method.topk:
            _distil_topk(targets, chosen, student, micro, config)
        elif method.rl:
            _combine(targets, chosen, student, items, micro, config)
        else:
            _distil_sampled(targets, chosen, student, micro, config)
    return targets


def _old(student: Student, items: list[Item], config: RunConfig) -> tuple[Tensor, Tensor | None]:
    """The denominator of the ratio, and the truncated weight beside it (mode proximal).

    A greedy turn was not drawn from softmax(logits / 1), so it has no behaviour log-probs: where
    its tokens have a ratio at all (method combined), that is against the scored ones.
    """
    behaviour_T = _join([i.sample.logps for i in items], student.logp_T)
    greedy = [np.full(len(i.rl), i.sample.temperature == 0) for i in items]
    behaviour_T = torch.where(_join(greedy, behaviour_T) > 0, student.logp_T, behaviour_T)
    if config.is_.mode == "behaviour":
        return behaviour_T, None
    weight_T = loss.truncated_is_weight(student.logp_T, behaviour_T, config.is_.cap)
    return student.logp_T, weight_T


def _join(arrays: list[np.ndarray], like: Tensor) -> Tensor:
    return torch.as_tensor(np.concatenate(arrays).astype(np.float32)).to(like.device)


# --- hints -----------------------------------------------------------------------------------


def _choose(
    student: Student, teacher: Teacher, items: list[Item], micro: MicroBatch, config: RunConfig,
    seed: int,
) -> list[_Chosen | None]:
    k = student.topk_ids_Tk.shape[1]
    hidden_MH = torch.cat(teacher.hidden)
    if not len(hidden_MH):
        return [None] * len(items)
    asked_TJ = torch.cat([student.topk_ids_Tk, micro.reply_ids_T[:, None]], dim=1)
    per_item = [len(item.hints) for item in items]
    asked = [x.repeat(n, 1) for x, n in zip(micro.per_sequence(asked_TJ), per_item, strict=True)]
    taus = [x.repeat(n) for x, n in zip(micro.per_sequence(student.tau_T), per_item, strict=True)]
    ids_parts, tau_M = micro.per_sequence(student.topk_ids_Tk), torch.cat(taus)
    found = kernels.score(hidden_MH, teacher.head, torch.cat(asked), k, tau_M)
    assert found.logp is not None
    sizes = [len(h) for h in teacher.hidden]
    parts = [x.split(sizes) for x in (found.topk_ids, found.topk_logp, found.logp)]
    return [
        _choose_one(item, ids, *(p[i] for p in parts), config, seed) if item.hints else None
        for i, (item, ids) in enumerate(zip(items, ids_parts, strict=True))
    ]


def _choose_one(
    item: Item, student_ids_Rk: Tensor, topk_ids: Tensor, topk_logp: Tensor, logp: Tensor,
    config: RunConfig, seed: int,
) -> _Chosen:
    shape = (len(item.hints), len(student_ids_Rk), -1)
    ids_NRk, logp_NRk, asked_NRj = (x.view(shape) for x in (topk_ids, topk_logp, logp))
    mask_R = torch.tensor(item.opd).to(student_ids_Rk.device)
    shared = kernels.overlap(student_ids_Rk, ids_NRk, mask_R)
    # the same draw for the same sample in the same step, whatever the micro-batches
    draw = seed ^ zlib.crc32(item.sample.id.encode())
    hint_R = loss.choose_hint(config.loss.hint_choice, shared, draw)
    at = (hint_R, torch.arange(len(hint_R), device=hint_R.device))
    return _Chosen(
        shared.per_hint, hint_R, shared.per_token[at], ids_NRk[at], logp_NRk[at],
        asked_NRj[at][:, :-1], asked_NRj[at][:, -1],
    )


def _observe(
    targets: Targets, chosen: list[_Chosen | None], student: Student, items: list[Item],
    micro: MicroBatch, config: RunConfig,
) -> None:
    for item, one, old_R in zip(items, chosen, micro.per_sequence(student.logp_T), strict=True):
        if one is None:
            continue
        mask_R = torch.as_tensor(item.opd).to(old_R.device)
        targets.overlap_sum += float(one.overlap_R[mask_R].sum())
        targets.gap_sum += float((one.logp_R - old_R)[mask_R].abs().sum())
        targets.hint_choices.append(float(one.hint_R[mask_R].float().mean()))
        targets.seen[item.sample.id] = _seen(item, one, old_R, mask_R, _bound(config))


def _seen(item: Item, one: _Chosen, old_R: Tensor, mask_R: Tensor, bound: float) -> Seen:
    """In the order of the sample's own hints; the item has the usable ones, shortest first."""
    place = {id(hint): i for i, hint in enumerate(item.hints)}
    at = [place.get(id(hint)) for hint in item.sample.hints]
    per_hint = one.per_hint.cpu().numpy() / max(int(mask_R.sum()), 1)
    picks = one.hint_R[mask_R].cpu().numpy()
    gap = loss.sampled_opd_advantage(old_R, one.logp_R, bound).masked_fill(~mask_R, 0.0)
    return Seen(
        np.array([np.nan if i is None else per_hint[i] for i in at], np.float32),
        np.array([0.0 if i is None else np.mean(picks == i) for i in at], np.float32),
        gap.float().cpu().numpy(),
    )


# --- advantages ------------------------------------------------------------------------------


def _bound(config: RunConfig) -> float:
    return config.loss.gap_clip or math.inf


def _spread(chosen: list[_Chosen | None], name: str, fallback: tuple[Tensor, ...]) -> Tensor:
    """The field over all items; an item without a hint takes its part of `fallback`."""
    return torch.cat([
        part if one is None else getattr(one, name)
        for one, part in zip(chosen, fallback, strict=True)
    ])


def _distil_topk(
    targets: Targets, chosen: list[_Chosen | None], student: Student, micro: MicroBatch,
    config: RunConfig,
) -> None:
    ids_parts = micro.per_sequence(student.topk_ids_Tk)
    logp_parts = micro.per_sequence(student.topk_logp_Tk)
    mode = config.loss.subset
    teacher_ids = _spread(chosen, "topk_ids_Rk", ids_parts)
    ids_TK = loss.subset(mode, student.topk_ids_Tk, teacher_ids)
    if mode == "teacher":
        old_TK = kernels.score(student.hidden_TH, student.head, ids_TK, 0, student.tau_T).logp
        teacher_TK = _spread(chosen, "topk_logp_Rk", logp_parts)
    else:
        old_TK = student.topk_logp_Tk
        teacher_TK = _spread(chosen, "at_student_Rk", logp_parts)
    targets.topk_ids_TK, targets.topk_old_logp_TK = ids_TK, old_TK
    targets.topk_advantage_TK = loss.opd_advantage(
        old_TK, teacher_TK, ids_TK >= 0, _bound(config), config.loss.gap_weight
    )


def _sampled_gap(
    chosen: list[_Chosen | None], student: Student, micro: MicroBatch, config: RunConfig
) -> Tensor:
    teacher_T = _spread(chosen, "logp_R", micro.per_sequence(student.logp_T))
    return loss.sampled_opd_advantage(student.logp_T, teacher_T, _bound(config))


def _distil_sampled(
    targets: Targets, chosen: list[_Chosen | None], student: Student, micro: MicroBatch,
    config: RunConfig,
) -> None:
    targets.topk_ids_TK = micro.reply_ids_T[:, None]
    targets.topk_old_logp_TK = student.logp_T[:, None]
    targets.topk_advantage_TK = _sampled_gap(chosen, student, micro, config)[:, None]


def _combine(
    targets: Targets, chosen: list[_Chosen | None], student: Student, items: list[Item],
    micro: MicroBatch, config: RunConfig,
) -> None:
    """One advantage of both parts, each only where the token has it; see the method's formula."""
    gap_T = _sampled_gap(chosen, student, micro, config)
    has_rl_T = _join([i.rl for i in items], gap_T) > 0
    has_hint_T = _join([i.opd for i in items], gap_T) > 0
    advantage = loss.METHODS[config.train.method].advantage or loss.combined_advantage
    targets.advantage_T = advantage(
        student.logp_T, student.logp_T + gap_T, has_hint_T,
        targets.advantage_T.masked_fill(~has_rl_T, 0.0), config.loss.w_opd, config.loss.w_rl,
    )
