"""What weights say of given replies, without gradients: students, hinted teachers, fixed texts.

Owns: the forward passes and scoring calls of one micro-batch that carry no gradient.
Does not own: the choice among hints and the advantages (targets), the training pass (step).

T reply tokens of a micro-batch, N hints of a sample, R its reply tokens, H hidden, k top ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from claw import kernels
from claw.engine.trainer import batch
from claw.engine.trainer.batch import Pair
from claw.engine.trainer.model import Policy
from claw.engine.trainer.plan import Item
from claw.engine.trainer.ranks import Ranks

IDLE: Pair = (np.zeros(1, np.int32), np.zeros(1, np.int32))
"""a pass that only keeps step with other ranks"""


class NotFinite(Exception):
    """A number of the forward pass is NaN or inf: the step cannot be done."""


@dataclass(frozen=True)
class Teacher:
    """Hidden states of the teacher over each item's reply, once for each of its hints."""

    head: Tensor
    """[V, H] of the teacher's weights"""
    hidden: tuple[Tensor, ...]
    """[N * R, H] for each item (N may be 0)"""


def finite(hidden_TH: Tensor, ranks: Ranks) -> Tensor:
    """Return the argument. NotFinite: it holds NaN or inf, in a step that of any rank."""
    if ranks.any(not bool(torch.isfinite(hidden_TH).all())):
        raise NotFinite("hidden states")
    return hidden_TH


def reply_hidden(
    policy: Policy, pairs: Sequence[Pair], max_tokens: int, passes: int = 0
) -> list[Tensor]:
    """The hidden states [R, H] that predict each pair's reply, in the pairs' order; no gradient.

    `passes`: at least so many forward passes are made, as other ranks make so many.
    """
    found: dict[int, Tensor] = {}
    lengths = [len(p) + len(r) for p, r, *_ in pairs]
    groups = batch.group(lengths, max_tokens, packed=policy.packs)
    with torch.no_grad():
        for indices in groups:
            micro = policy.lay([pairs[i] for i in indices])
            hidden_TH = _hidden(policy, micro)
            found |= dict(zip(indices, micro.per_sequence(hidden_TH), strict=True))
        for _ in range(passes - len(groups)):
            _hidden(policy, policy.lay([IDLE]))
    return [found[i] for i in range(len(pairs))]


def _hidden(policy: Policy, micro: batch.MicroBatch) -> Tensor:
    hidden_BLH = policy.hidden(micro.ids_BL, micro.pictures, micro.bounds)
    return finite(micro.at_replies(hidden_BLH), policy.ranks)


def teacher(
    policy: Policy, who: str, items: Sequence[Item], max_tokens: int, passes: int = 0
) -> Teacher:
    """Run `who` over hinted prompt + the same reply ids, for every hint of every item.

    `passes`: see `reply_hidden`.
    """
    pairs = [(hint, item.sample.reply_ids, *item.sample.pictures)
             for item in items for hint in item.hints]
    with policy.weights_of(who) as weights:
        rows = iter(reply_hidden(weights, pairs, max_tokens, passes))
        head = weights.head.detach()
        if who == "ema" and policy.whole is not None:
            head = head.clone()  # its storage takes the current weights next
    empty = head.new_empty(0, head.shape[1])
    hidden = tuple(torch.cat([empty, *(next(rows) for _ in item.hints)]) for item in items)
    return Teacher(head, hidden)


def reference_logps(policy: Policy, micro: batch.MicroBatch, tau_T: Tensor) -> Tensor:
    """[T] log-probs of the reply under the first weights, for the KL term."""
    with policy.weights_of("base") as weights:
        hidden_TH = _hidden(weights, micro)
        found = kernels.score(hidden_TH, weights.head, micro.reply_ids_T[:, None], 0, tau_T)
    assert found.logp is not None
    return found.logp[:, 0]


def logps(
    policy: Policy, pairs: Sequence[Pair], max_tokens: int,
    temperatures: Sequence[float] | None = None,
) -> list[np.ndarray]:
    """float32 [R] log-probs of each pair's reply under the current weights (temperature 1 if None).

    log softmax(logits / temperature) at the reply ids. NotFinite: the weights are broken.
    """
    if not pairs:
        return []
    taus = temperatures or [1.0] * len(pairs)
    with policy.weights_of("current"):
        hidden = reply_hidden(policy, pairs, max_tokens)
        lengths = [len(reply) for _, reply, *_ in pairs]
        device = policy.device
        replies = np.concatenate([r for _, r, *_ in pairs]).astype(np.int64)
        ids_T = torch.as_tensor(replies).to(device)
        tau_T = torch.as_tensor(np.repeat(np.float32(taus), lengths)).to(device)
        found = kernels.score(torch.cat(hidden), policy.head, ids_T[:, None], 0, tau_T)
    assert found.logp is not None
    return [part.cpu().numpy() for part in found.logp[:, 0].split(lengths)]
