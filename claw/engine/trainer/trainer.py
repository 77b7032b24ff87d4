"""The second loop: lease -> step -> gate -> publish + checkpoint -> ack -> announce.

Owns: the order in which a step becomes durable, rollback, resuming.
Does not own: the step itself, files, sockets.

A lease is acknowledged after the version and the checkpoint that names the lease are on the disk.
Killed before that, the step never happened; killed after it, the hello of the next start reports
the lease as `last_lease`, and its samples are not trained again.
"""

import logging
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from claw.config import RunConfig
from claw.engine import wire
from claw.engine.monitor import Monitor
from claw.engine.trainer import checkpoint, heldout, model, step, targets, weights
from claw.engine.trainer.checkpoint import Progress
from claw.engine.trainer.gate import Gate
from claw.engine.trainer.link import Link, Stopped
from claw.engine.trainer.optim import Optimiser
from claw.engine.trainer.weights import Shelf
from claw.errors import ClawError, UsageError
from claw.records import Sample, Update, Version, VersionStatus, new_id

log = logging.getLogger(__name__)

POLL_S = 1.0
"""how long the actor may hold a lease request; a rollback waits no longer than this"""
BACK = "back to "
"""so begins the note of a version that replaces one that workers refused"""


@dataclass(frozen=True)
class Lease:
    """Samples in hand."""

    id: str
    samples: list[Sample]
    dropped: dict[str, int]
    """what the actor dropped since the last lease, by reason"""


class Trainer:
    """Everything a step needs, and the loop."""

    def __init__(
        self, config: RunConfig, model_dir: Path, run_dir: Path, link: Link, monitor: Monitor,
        shelf: Shelf,
    ) -> None:
        self.config, self.link, self.monitor, self.shelf = config, link, monitor, shelf
        self.checkpoints = run_dir / "checkpoints"
        self.policy = model.load(model_dir, config)
        self.optim = Optimiser(self.policy.parameters, config.train)
        texts = heldout.encode(model_dir)
        self.canary_ids = heldout.canary(texts)
        self.gate = Gate(config.gate, texts, config.train.micro_tokens)
        self.progress = Progress()
        self.held = ""
        """why nothing is trained: no worker serves what was gone back to"""
        self.seen: dict[str, targets.Seen] = {}
        """of the last step, by sample id: told with its acknowledgement, kept in no file here"""

    # --- start -------------------------------------------------------------------------------

    def begin(self, *, resume: bool) -> None:
        """Continue from the newest checkpoint, or write version 0 and the first one."""
        found = checkpoint.newest(self.checkpoints)
        if found is not None and not resume:
            raise UsageError(
                "the run has a checkpoint already", found=str(found),
                do="resume the run, or start a new one",
            )
        if found is not None:
            self.progress = checkpoint.load(found, self.policy, self.optim)
            self.gate.first = self.progress.gate_first
            self._prune()  # takes away a version whose step did not become durable
            return
        _seed(self.config.seed)
        self.gate.measure_first(self.policy)
        self.progress = Progress(gate_first=self.gate.first)
        self._adopt(self._publish(0, parent=None, note="before any training"))
        self._save()

    def greet(self) -> None:
        """Say hello; the actor puts back every lease but the last durable one."""
        p = self.progress
        if p.current and p.current.status is VersionStatus.REFUSED:
            self.held = p.current.note
        fields = {
            "step": p.step, "last_lease": p.last_lease, "last_update": p.last_update,
            "why": p.last_why, "left_out": p.left_out,
            "versions": [wire.pack(v)[0] for v in p.versions],
        }
        self.link.ask(wire.Message("trainer.hello", new_id("hello"), fields))
        if p.current and p.current.number:
            self.link.announce(p.current)  # the announcement may have died with the last process

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> None:
        """Train leases until max_steps. Stopped: SIGTERM, a stop message, or no parent any more."""
        self.greet()
        while not self.is_done:
            self._serve_requests()
            if self.held:
                self._wait_for_a_person()
                continue
            lease = self._lease()
            if lease is None:
                continue
            self.link.state("training", self.progress.step)
            update, version, why = self.train(lease)
            self.link.state("waiting", self.progress.step)
            self._acknowledge(lease, update, version, why)
            if not why:
                self.link.announce(version)

    @property
    def is_done(self) -> bool:
        return 0 < self.config.train.max_steps <= self.progress.step

    def _lease(self) -> Lease | None:
        train = self.config.train
        asked = wire.Message("lease", new_id("ask"), {
            "max_samples": train.batch_size, "max_wait_s": train.max_wait_s, "poll_s": POLL_S,
        })
        self.link.state("waiting", self.progress.step)
        reply = self.link.ask(asked, wait_s=POLL_S)
        if reply.type != "lease.samples":
            return None
        return Lease(reply["lease_id"], wire.read_samples(reply), dict(reply.get("dropped") or {}))

    def _acknowledge(self, lease: Lease, update: Update, version: Version, why: str) -> None:
        message = wire.record_message(
            "lease.ack", update, new_id("ack"), lease_id=lease.id, version=wire.pack(version)[0],
            why=why, left_out=self.progress.left_out,
        )
        for id, seen in self.seen.items():
            message.arrays.update(wire.pack(seen, f"{id}/")[1])
        self.link.ask(message, through_stop=True)

    # --- a step ------------------------------------------------------------------------------

    def train(self, lease: Lease) -> tuple[Update, Version, str]:
        """Make the step and make it durable. Returns what the actor is told.

        The third value says why no new version serves: the step changed nothing (the version is
        then the present one) or the gate refused it. Empty when one does.
        """
        p = self.progress
        assert p.current is not None, "begin() comes first"
        started = time.perf_counter()
        done = step.run(
            self.policy, self.optim, lease.samples, self.config, version=p.current,
            seed=self.config.seed * 1_000_003 + p.step, stop=self.link.stopping.is_set,
        )
        self.seen = done.seen
        if done.skipped:
            return self._skip(lease, done)
        verdict = self.gate.check(self.policy)
        self.progress = replace(
            p, step=p.step + 1, last_lease=lease.id, last_why=verdict.why, left_out=done.left_out
        )
        if verdict.why:
            version = self._refuse(verdict.why)
        else:
            version = self._publish(p.number + 1, parent=p.current.number)
            self._adopt(version)
            self.gate.keep(lease.samples)
        update = _update(self.progress.step, version.number, lease.id, done, started)
        self.progress = replace(self.progress, last_update=wire.pack(update)[0])
        self._save()
        self._report(update, lease, verdict.metrics | {"gate/refused": float(bool(verdict.why))})
        return update, version, verdict.why

    def _skip(self, lease: Lease, done: step.Done) -> tuple[Update, Version, str]:
        current = self.progress.current
        assert current is not None
        log.warning("lease %s trained nothing: %s", lease.id, done.skipped)
        update = _update(self.progress.step, current.number, lease.id, done, time.perf_counter())
        self._report(update, lease, {})
        return update, current, done.skipped

    def _refuse(self, why: str) -> Version:
        """Put the version aside for a look, and take the weights and moments of its parent back."""
        p = self.progress
        log.warning("version %d is refused: %s", p.number + 1, why)
        version = self._publish(
            p.number + 1, parent=p.current.number if p.current else None,
            status=VersionStatus.REFUSED, note=why, canary=False,
        )
        before = checkpoint.newest(self.checkpoints)
        assert before is not None, "begin() writes the first checkpoint"
        checkpoint.load(before, self.policy, self.optim, with_random=False)
        self.progress = replace(
            p, number=version.number, versions=(*p.versions, version)
        )
        return version

    def _publish(
        self, number: int, *, parent: int | None, status: VersionStatus = VersionStatus.PUBLISHED,
        note: str = "", canary: bool = True,
    ) -> Version:
        return weights.publish(
            self.policy, self.shelf, number=number, parent=parent, step=self.progress.step,
            canary_ids=self.canary_ids if canary else None, status=status, note=note,
        )

    def _adopt(self, version: Version) -> None:
        """The trained weights are this version now."""
        p = self.progress
        self.progress = replace(
            p, number=version.number, current=version, versions=(*p.versions, version)
        )

    def _save(self) -> None:
        # pruning comes after: a crash between the two leaves files too many, never too few
        checkpoint.save(self.checkpoints, self.progress, self.policy, self.optim)
        self._prune()

    def _prune(self) -> None:
        p = self.progress
        assert p.current is not None, "a version is adopted before files are pruned"
        kept = weights.prune(self.shelf, p.versions, self.config.train.keep_versions, p.current)
        self.progress = replace(p, versions=kept)

    def _report(self, update: Update, lease: Lease, more: dict[str, float]) -> None:
        dropped = {f"rollout/actor_dropped_{why}": float(n) for why, n in lease.dropped.items()}
        numbers = {"train/version": float(update.version), "perf/total_s": update.seconds}
        self.monitor.log(update.loss.metrics | more | dropped | numbers, self.progress.step)

    # --- going back --------------------------------------------------------------------------

    def _serve_requests(self) -> None:
        while not self.link.requests.empty():
            asked = self.link.requests.get()
            if asked.type == "version.refused":
                self._turned_down(asked)
                continue
            try:
                version = self.roll_back(asked["owner"], asked["adapter"], asked["to"])
            except ClawError as error:
                self.link.send(wire.Message("rollback.done", asked.id, {"error": str(error)}))
                continue
            fields = {"version": wire.pack(version)[0]}
            self.link.send(wire.Message("rollback.done", asked.id, fields))
            self.link.announce(version)

    def _turned_down(self, asked: wire.Message) -> None:
        """No worker serves a version: publish the newest one that they do serve again.

        So what is trained is always what samples. A later version is judged by itself. When the
        one that was gone back to is refused as well, the fault is not in the weights: nothing is
        trained until a person says `claw rollback`.
        """
        p, number, why = self.progress, int(asked["number"]), str(asked["why"])
        known = {v.number: v for v in p.versions if v.status is VersionStatus.PUBLISHED}
        if (asked["owner"], asked["adapter"]) != (self.shelf.owner, self.shelf.adapter) or (
            number not in known
        ):
            return
        refused = replace(known[number], status=VersionStatus.REFUSED, note=why)
        self.progress = replace(p, versions=tuple(
            refused if v.number == number else v for v in p.versions))
        log.error("no worker serves version %d: %s", number, why)
        self.monitor.log({"train/turned_down": float(number)}, p.step)
        if p.current is None or p.current.number != number:
            self._save()
            return
        good, goes_back = int(asked["good"]), not known[number].note.startswith(BACK)
        if goes_back and good in known and good != number:
            note = f"{BACK}v{good}: workers refuse v{number}"
            self.link.announce(self.roll_back(asked["owner"], asked["adapter"], good, note))
            return
        self.held, self.progress = why, replace(self.progress, current=refused)
        self._save()

    def _wait_for_a_person(self) -> None:
        self.link.state("held", self.progress.step)
        if self.link.stopping.wait(POLL_S):
            raise Stopped

    def roll_back(self, owner: str, adapter: str, to: int, note: str = "") -> Version:
        """Publish the weights of version `to` as a new version; moments start again.

        ClawError: another owner's, not on the disk, damaged, or one that was refused.
        """
        p = self.progress
        known = {v.number: v for v in p.versions if v.status == VersionStatus.PUBLISHED}
        if (owner, adapter) != (self.shelf.owner, self.shelf.adapter) or to not in known:
            raise ClawError(
                "no such version to go back to", found=f"{owner}/{adapter} v{to}",
                allowed=", ".join(f"v{n}" for n in sorted(known)),
            )
        weights.load(self.policy, self.shelf.path(to))
        self.optim.adopt()
        self._adopt(self._publish(p.number + 1, parent=to, note=note or f"rollback to v{to}"))
        self.held = ""
        self._save()
        self.monitor.log({"train/rollback_to": float(to)}, p.step)
        assert self.progress.current is not None
        return self.progress.current


def _update(number: int, version: int, lease_id: str, done: step.Done, started: float) -> Update:
    seconds = max(done.seconds, time.perf_counter() - started)
    return Update(number, version, lease_id, done.loss, done.grad_norm, done.lr, seconds)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
