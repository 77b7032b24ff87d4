"""One owner's adapter as it learns: its steps, versions, gate, and how each becomes durable.

Owns: the order step -> gate -> publish -> checkpoint of one owner, going back, what a resume knows.
Does not own: which owner's turn it is, the wire (trainer); the step itself, files.

A process holds the weights and moments of one learner at a time. They are those of the learner's
newest checkpoint, so another one's are taken up by loading that, and nothing has to be saved
before. What belongs to a learner alone is here; what all share is `Shared`.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from claw.config import RunConfig
from claw.engine import faults, wire
from claw.engine.monitor import Monitor
from claw.engine.trainer import checkpoint, drift, step, targets, weights
from claw.engine.trainer.batch import Pair
from claw.engine.trainer.checkpoint import Progress
from claw.engine.trainer.gate import Gate
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser
from claw.engine.trainer.weights import Shelf
from claw.errors import ClawError
from claw.records import DEFAULT_OWNER, Sample, Update, Version, VersionStatus

log = logging.getLogger(__name__)

BACK = "back to "
"""so begins the note of a version that replaces one that workers refused"""


@dataclass(frozen=True)
class Lease:
    """Samples in hand, all of one owner."""

    id: str
    samples: list[Sample]
    dropped: dict[str, int]
    """what the actor dropped since the last lease, by reason"""


@dataclass(frozen=True)
class Shared:
    """What every step uses, whoever's adapter it trains."""

    config: RunConfig
    run_dir: Path
    policy: Policy
    optim: Optimiser
    monitor: Monitor
    texts: list[Pair]
    canary_ids: np.ndarray
    origin: drift.Reading | None = None
    """what the first weights say of the texts"""


class Learner:
    """An owner's progress, versions and gate."""

    def __init__(self, shared: Shared, owner: str = DEFAULT_OWNER) -> None:
        self.owner, self._shared = owner, shared
        self.shelf = Shelf(shared.run_dir, owner)
        self.checkpoints = folder_of(shared.run_dir) / owner
        config = shared.config
        self.gate = Gate(config.gate, shared.texts, config.train.micro_tokens, shared.origin)
        self.progress = Progress()
        self.seen: dict[str, targets.Seen] = {}
        """of the last step, by sample id: told with its acknowledgement, kept in no file here"""

    # --- start -------------------------------------------------------------------------------

    def begin(self, gate_first: float | None) -> Version:
        """Publish the weights in hand as version 0 and write the first checkpoint."""
        self.gate.first = gate_first
        self.gate.before = self.gate.origin
        self.progress = Progress(gate_first=gate_first)
        first = self._publish(0, parent=None, note="before any training")
        self._adopt(first)
        self._save(0)
        return first

    def recall(self) -> bool:
        """Know again how far it was; False: it has no checkpoint."""
        found = checkpoint.newest(self.checkpoints)
        if found is None:
            return False
        p = checkpoint.read_progress(found)
        # a version that was made since may serve already: its number is not given again
        self.progress = replace(p, number=p.number + checkpoint.num_damaged(self.checkpoints))
        self.gate.first = self.progress.gate_first
        p = self.progress
        if p.current and p.current.status is VersionStatus.REFUSED and not p.held:
            self.progress = replace(p, held=p.current.note)  # by an earlier claw
        self._prune()  # takes away a version whose step did not become durable
        return True

    def take_up(self, *, with_random: bool = False) -> None:
        """Put its weights and moments into the policy and the optimiser."""
        found = checkpoint.newest(self.checkpoints)
        assert found is not None, "begin() writes the first checkpoint"
        checkpoint.load(found, self._shared.policy, self._shared.optim, with_random=with_random)

    @property
    def held(self) -> str:
        """Why nothing is trained: no worker serves what was gone back to, or the drift is too far.

        Empty while it learns.
        """
        return self.progress.held

    def told(self) -> dict[str, Any]:
        """What the actor is told of it at hello: it puts back every lease that is not durable."""
        p = self.progress
        return {
            "step": p.step, "last_lease": p.last_lease, "last_update": p.last_update,
            "why": p.last_why, "left_out": p.left_out,
            "versions": [wire.pack(v)[0] for v in p.versions],
        }

    # --- a step ------------------------------------------------------------------------------

    def train(
        self, lease: Lease, total: int, stop: Callable[[], bool]
    ) -> tuple[Update, Version, str]:
        """Make the step and make it durable; its weights are in hand. Return what the actor hears.

        `total`: steps of all owners before it. The third value says why no new version serves: the
        step changed nothing (the version is then the present one) or the gate refused it. Empty
        when one does.
        """
        p, shared = self.progress, self._shared
        assert p.current is not None, "begin() comes first"
        started = time.perf_counter()
        self.gate.look_before(shared.policy)
        done = step.run(
            shared.policy, shared.optim, lease.samples, shared.config, version=p.current,
            seed=shared.config.seed * 1_000_003 + p.step, stop=stop,
        )
        self.seen = done.seen
        if done.skipped:
            return self._skip(lease, done, total)
        verdict = self.gate.check(shared.policy)
        self.progress = replace(
            p, step=p.step + 1, last_lease=lease.id, last_why=verdict.why, left_out=done.left_out,
            held=verdict.why if verdict.stops else "",
        )
        if verdict.why:
            version = self._refuse(verdict.why)
        else:
            version = self._publish(p.number + 1, parent=p.current.number)
            self._adopt(version)
            self.gate.keep(lease.samples)
        update = _update(self.progress.step, version.number, lease.id, done, started)
        self.progress = replace(self.progress, last_update=wire.pack(update)[0])
        self._save(total + 1)
        more = verdict.metrics | {"gate/refused": float(bool(verdict.why))}
        self._report(update, lease, more, total + 1)
        return update, version, verdict.why

    def _skip(self, lease: Lease, done: step.Done, total: int) -> tuple[Update, Version, str]:
        current = self.progress.current
        assert current is not None
        log.warning("lease %s trained nothing: %s", lease.id, done.skipped)
        update = _update(self.progress.step, current.number, lease.id, done, time.perf_counter())
        self._report(update, lease, {}, total)
        return update, current, done.skipped

    def _refuse(self, why: str) -> Version:
        """Put the version aside for a look, and take the weights and moments of its parent back."""
        p = self.progress
        log.warning("version %d is refused: %s", p.number + 1, why)
        version = self._publish(
            p.number + 1, parent=p.current.number if p.current else None,
            status=VersionStatus.REFUSED, note=why, canary=False,
        )
        self.take_up()
        self.progress = replace(p, number=version.number, versions=(*p.versions, version))
        return version

    def _publish(
        self, number: int, *, parent: int | None, status: VersionStatus = VersionStatus.PUBLISHED,
        note: str = "", canary: bool = True,
    ) -> Version:
        return weights.publish(
            self._shared.policy, self.shelf, number=number, parent=parent, step=self.progress.step,
            canary_ids=self._shared.canary_ids if canary else None, status=status, note=note,
        )

    def _adopt(self, version: Version) -> None:
        """The trained weights are this version now."""
        p = self.progress
        self.progress = replace(
            p, number=version.number, current=version, versions=(*p.versions, version)
        )

    def _save(self, total: int | None = None) -> None:
        # pruning comes after: a crash between the two leaves files too many, never too few
        if total is not None:
            self.progress = replace(self.progress, total=total)
        checkpoint.save(self.checkpoints, self.progress, self._shared.policy, self._shared.optim)
        self._prune()

    def _prune(self) -> None:
        p = self.progress
        assert p.current is not None, "a version is adopted before files are pruned"
        keep = self._shared.config.train.keep_versions
        self.progress = replace(p, versions=weights.prune(self.shelf, p.versions, keep, p.current))

    def _report(self, update: Update, lease: Lease, more: dict[str, float], total: int) -> None:
        dropped = {f"rollout/actor_dropped_{why}": float(n) for why, n in lease.dropped.items()}
        numbers = {"train/version": float(update.version), "perf/total_s": update.seconds}
        whose = {} if self.owner == DEFAULT_OWNER else {"owner": self.owner}
        self._shared.monitor.log(update.loss.metrics | more | dropped | numbers | whose, total)

    # --- going back --------------------------------------------------------------------------

    def turned_down(self, number: int, why: str, good: int) -> Version | None:
        """No worker serves a version: publish the newest one that they do serve again.

        So what is trained is always what samples. A later version is judged by itself. When the
        one that was gone back to is refused as well, the fault is not in the weights: nothing of
        this owner is trained until a person says `claw rollback`. Returns the version that was
        made. Its weights are in hand.
        """
        p = self.progress
        known = {v.number: v for v in p.versions if v.status is VersionStatus.PUBLISHED}
        if number not in known:
            return None
        refused = replace(known[number], status=VersionStatus.REFUSED, note=why)
        self.progress = replace(p, versions=tuple(
            refused if v.number == number else v for v in p.versions))
        log.error("no worker serves version %d of %s: %s", number, self.owner, why)
        self._shared.monitor.log({"train/turned_down": float(number)}, p.total)
        if p.current is None or p.current.number != number:
            self._save()
            return None
        if not known[number].note.startswith(BACK) and good in known and good != number:
            return self.roll_back(good, f"{BACK}v{good}: workers refuse v{number}")
        self.progress = replace(self.progress, current=refused, held=why)
        self._save()
        return None

    @faults.around("trainer.rollback")
    def roll_back(self, to: int, note: str = "") -> Version:
        """Publish the weights of version `to` as a new version; moments start again.

        ClawError: not on the disk, damaged, or one that was refused.
        """
        p, shared = self.progress, self._shared
        known = {v.number: v for v in p.versions if v.status == VersionStatus.PUBLISHED}
        if to not in known:
            raise ClawError(
                "no such version to go back to", found=f"{self.owner} v{to}",
                allowed=", ".join(f"v{n}" for n in sorted(known)),
            )
        weights.load(shared.policy, self.shelf.path(to))
        shared.optim.adopt()
        self.gate.before = None
        made = self._publish(p.number + 1, parent=to, note=note or f"rollback to v{to}")
        self._adopt(made)
        self.progress = replace(self.progress, held="")
        self._save()
        shared.monitor.log({"train/rollback_to": float(to)}, p.total)
        return made


def folder_of(run_dir: Path) -> Path:
    """Where the checkpoints of all owners lie, a folder each."""
    return run_dir / "checkpoints"


def _update(number: int, version: int, lease_id: str, done: step.Done, started: float) -> Update:
    seconds = max(done.seconds, time.perf_counter() - started)
    return Update(number, version, lease_id, done.loss, done.grad_norm, done.lr, seconds)
