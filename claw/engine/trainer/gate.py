"""The quality gate: a version that unlearned what it knew does not serve.

Owns: the held-out loss of the first weights, recent good turns, the verdict.
Does not own: what happens after a refusal (trainer).

Good turns stay in memory only: a conversation that must be forgotten lies in no file of the
trainer, and the gate fills up again within a few steps of a restart.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from claw.config import GateConfig
from claw.engine.trainer import score
from claw.engine.trainer.batch import Pair
from claw.engine.trainer.model import Policy
from claw.records import Sample

MAX_REPLAY = 16
MAX_REPLAY_TOKENS = 1024
"""of one turn: longer ones would make the gate dearer than the step"""


@dataclass(frozen=True)
class Verdict:
    """`why` is empty when the version may serve."""

    why: str
    metrics: dict[str, float]


class Gate:
    """Compares new weights with the first ones on fixed texts, and with those that sampled."""

    def __init__(self, config: GateConfig, texts: list[Pair], max_tokens: int) -> None:
        self.config, self.texts, self.max_tokens = config, texts, max_tokens
        self.first: float | None = None
        """nats per token of the first weights on the held-out texts"""
        self.replay: deque[Sample] = deque(maxlen=MAX_REPLAY)

    def measure_first(self, policy: Policy) -> None:
        """Remember what the weights before any training say of the held-out texts."""
        if self.config.enabled:
            self.first = self._heldout(policy)

    def check(self, policy: Policy) -> Verdict:
        """Rise = -mean log-prob now minus what it was: above gate.max_rise the version is refused.

        Held-out texts against the first weights at temperature 1; good turns against the weights
        that sampled them, at the turn's own temperature.
        """
        if not self.config.enabled or self.first is None:
            return Verdict("", {})
        try:
            rises = {"heldout": self._heldout(policy) - self.first}
            if self.replay:
                rises["replay"] = self._replay_rise(policy)
        except score.NotFinite:
            return Verdict("the weights give numbers that are not finite", {})
        limit = self.config.max_rise
        why = "; ".join(
            f"the loss on {_WORDS[name]} rose by {rise:.3f} nats per token (limit {limit:g})"
            for name, rise in rises.items() if not rise <= limit
        )
        return Verdict(why, {f"gate/{name}_rise": rise for name, rise in rises.items()})

    def keep(self, samples: Sequence[Sample]) -> None:
        """Remember the turns that got a positive vote; the oldest make room."""
        for s in samples:
            is_good = s.has_advantage and s.mask.any() and s.advantages[s.mask].mean() > 0
            knows = np.isfinite(s.logps[s.mask]).all() and s.temperature > 0
            if is_good and knows and s.num_tokens <= MAX_REPLAY_TOKENS:
                self.replay.append(s)

    def _heldout(self, policy: Policy) -> float:
        return -float(np.concatenate(score.logps(policy, self.texts, self.max_tokens)).mean())

    def _replay_rise(self, policy: Policy) -> float:
        kept = list(self.replay)
        pairs = [(s.prompt_ids, s.reply_ids, *s.pictures) for s in kept]
        now = score.logps(policy, pairs, self.max_tokens, [s.temperature for s in kept])
        gaps = [(s.logps - logps)[s.mask] for s, logps in zip(kept, now, strict=True)]
        return float(np.concatenate(gaps).mean())


_WORDS = {"heldout": "held-out text", "replay": "earlier turns that people liked"}
