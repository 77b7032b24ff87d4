"""How far weights have moved: the divergence of what they say about fixed texts.

Owns: what some weights say at each token of the texts, and the divergence of two of them.
Does not own: the texts (heldout), the limits and the verdict (gate).

N reply tokens of all texts, H hidden, V vocabulary, C rows of a chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from claw import kernels
from claw.engine.trainer import score
from claw.engine.trainer.batch import Pair
from claw.engine.trainer.model import Policy

ROWS = 64
"""of a chunk: with a vocabulary of 150,000 each of its few tensors has 38 MB"""


@dataclass(frozen=True)
class Reading:
    """What weights say of the texts: the logits are hidden @ head^T, a chunk of rows at a time."""

    hidden_NH: Tensor
    head_VH: Tensor


def read(policy: Policy, texts: Sequence[Pair], max_tokens: int) -> Reading:
    """What the current weights say, whatever becomes of them later. NotFinite: they are broken."""
    with policy.weights_of("current"):
        hidden_NH = torch.cat(score.reply_hidden(policy, texts, max_tokens))
    head_VH = policy.head.detach()
    # no adapter is on it; full weights are changed in place, and what shards are gathered into goes
    stays = policy.peft is not None and policy.whole is None
    return Reading(hidden_NH, head_VH if stays else head_VH.clone())


@torch.no_grad()
def loss(reading: Reading, texts: Sequence[Pair]) -> float:
    """Nats per reply token of the texts."""
    replies = np.concatenate([reply for _, reply, *_ in texts]).astype(np.int64)
    ids_N1 = torch.as_tensor(replies).to(reading.hidden_NH.device)[:, None]
    found = kernels.score(reading.hidden_NH, reading.head_VH, ids_N1)
    assert found.logp is not None, "ids were given"
    return -float(found.logp.double().mean())


@torch.no_grad()
def divergence(now: Reading, then: Reading) -> float:
    """KL(now || then) = 1/N sum_n sum_v p_now(v) (log p_now(v) - log p_then(v)), nats per token.

    Over the whole vocabulary at temperature 1: what a top-k misses is where strange words grow.
    """
    num_rows, total = len(now.hidden_NH), 0.0
    for start in range(0, num_rows, ROWS):
        rows = slice(start, start + ROWS)
        now_CV, then_CV = (
            torch.log_softmax((r.hidden_NH[rows] @ r.head_VH.T).float(), dim=-1)
            for r in (now, then)
        )
        total += float((now_CV.exp() * (now_CV - then_CV)).sum(dim=-1).double().sum())
    if not np.isfinite(total):
        raise score.NotFinite("the divergence")
    return max(total / num_rows, 0.0)
