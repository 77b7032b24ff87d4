"""The quality gate: a version that unlearned what it knew does not serve.

Owns: the held-out loss of the first weights, recent good turns, the limits, the verdict.
Does not own: how far weights have moved (drift), what happens after a refusal (learner).

Good turns stay in memory only: a conversation that must be forgotten lies in no file of the
trainer, and the gate fills up again within a few steps of a restart.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from claw.config import GateConfig
from claw.engine.trainer import drift, score
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
    stops: bool = False
    """nothing more is learned until a person has gone back"""


class Gate:
    """Compares new weights with the first ones on fixed texts, and with those that sampled."""

    def __init__(
        self, config: GateConfig, texts: list[Pair], max_tokens: int,
        origin: drift.Reading | None = None,
    ) -> None:
        """`origin`: what the first weights say of the texts; without it no drift is measured."""
        self.config, self.texts, self.max_tokens = config, texts, max_tokens
        self.origin = origin
        self.before: drift.Reading | None = None
        """what the owner's weights say of the texts before a step; None: not read yet"""
        self.first: float | None = None
        """nats per token of the first weights on the held-out texts"""
        self.replay: deque[Sample] = deque(maxlen=MAX_REPLAY)

    def measure_first(self, policy: Policy) -> None:
        """Remember what the weights before any training say of the held-out texts."""
        if self.config.enabled:
            self.first = drift.loss(self.origin or self._read(policy), self.texts)

    def look_before(self, policy: Policy) -> None:
        """Know what the weights say before a step, to tell how far it moves them.

        Read once, after a resume or a rollback: later it is what the last check read.
        """
        is_asked = self.config.enabled and self.origin is not None and self.config.max_step_drift
        if is_asked and self.before is None:
            self.before = self._read(policy)

    def check(self, policy: Policy) -> Verdict:
        """Rise = -mean log-prob now minus what it was; drift = KL(now || then) on fixed texts.

        Rise: held-out texts against the first weights at temperature 1, and good turns against the
        weights that sampled them, at the turn's own temperature; above gate.max_rise the version is
        refused. Drift: of the held-out texts, since the step began (gate.max_step_drift refuses the
        version) and since the first weights: above gate.max_drift, reached in steps that are each
        within their limit, all further learning stops as well.
        """
        if not self.config.enabled or self.first is None:
            return Verdict("", {})
        try:
            now = self._read(policy)
            rises = {"heldout": drift.loss(now, self.texts) - self.first}
            if self.replay:
                rises["replay"] = self._replay_rise(policy)
            moved = self._moved(now)
        except score.NotFinite:
            return Verdict("the weights give numbers that are not finite", {})
        verdict = _verdict(rises, moved, self.config)
        if not verdict.why and self.before is not None:
            self.before = now  # these weights are the owner's from here on
        return verdict

    def keep(self, samples: Sequence[Sample]) -> None:
        """Remember the turns that got a positive vote; the oldest make room."""
        for s in samples:
            is_good = s.has_advantage and s.mask.any() and s.advantages[s.mask].mean() > 0
            knows = np.isfinite(s.logps[s.mask]).all() and s.temperature > 0
            if is_good and knows and s.num_tokens <= MAX_REPLAY_TOKENS:
                self.replay.append(s)

    def _read(self, policy: Policy) -> drift.Reading:
        return drift.read(policy, self.texts, self.max_tokens)

    def _moved(self, now: drift.Reading) -> dict[str, float]:
        since = {"drift": self.origin, "step_drift": self.before}
        return {name: drift.divergence(now, then) for name, then in since.items()
                if then is not None}

    def _replay_rise(self, policy: Policy) -> float:
        kept = list(self.replay)
        pairs = [(s.prompt_ids, s.reply_ids, *s.pictures) for s in kept]
        now = score.logps(policy, pairs, self.max_tokens, [s.temperature for s in kept])
        gaps = [(s.logps - logps)[s.mask] for s, logps in zip(kept, now, strict=True)]
        return float(np.concatenate(gaps).mean())


def _verdict(
    rises: dict[str, float], moved: dict[str, float], config: GateConfig
) -> Verdict:
    """A limit of 0 is off; a number that is not below its limit is over it, also NaN."""
    limits = {"drift": config.max_drift, "step_drift": config.max_step_drift}
    over = [name for name, value in moved.items() if limits[name] and not value <= limits[name]]
    whys = [
        f"the loss on {_WORDS[name]} rose by {rise:.3f} nats per token (limit {config.max_rise:g})"
        for name, rise in rises.items() if not rise <= config.max_rise
    ]
    whys += [f"{_MOVED[name]} {moved[name]:.3f} nats per token away (limit {limits[name]:g})"
             for name in over]
    stops = over == ["drift"]  # one step too far is undone by going back to its parent
    whys += [STOPPED] if stops else []
    metrics = {f"gate/{name}_rise": rise for name, rise in rises.items()}
    return Verdict("; ".join(whys), metrics | {f"gate/{n}": m for n, m in moved.items()}, stops)


STOPPED = "nothing more is learned until you go back to an earlier version: claw rollback N"
_MOVED = {"drift": "what it says of fixed texts is, from the first weights on,",
          "step_drift": "one step has moved what it says of fixed texts"}
_WORDS = {"heldout": "held-out text", "replay": "earlier turns that people liked"}
