"""The second loop: lease -> step -> gate -> publish + checkpoint -> ack -> announce.

Owns: whose step it is, resuming, what the actor asks between two steps.
Does not own: the step of one owner and how it becomes durable (learner), sockets (link).

A lease is acknowledged after the version and the checkpoint that names the lease are on the disk.
Killed before that, the step never happened; killed after it, the hello of the next start reports
the lease as `last_lease`, and its samples are not trained again.

All owners train on one base: each has an adapter of its own, and a step trains one of them. The
first of them all, `default`, begins with the run; the others at their first lease, from the same
first weights. Full weights are one set, so they have one owner.
"""

import logging
import random
from pathlib import Path

import numpy as np
import torch

from claw.config import RunConfig
from claw.engine import faults, pulse, wire
from claw.engine.monitor import Monitor
from claw.engine.trainer import drift, durable, follow, heldout, model, weights
from claw.engine.trainer.learner import Learner, Lease, Shared, folder_of
from claw.engine.trainer.link import Link, Stopped
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser
from claw.engine.trainer.ranks import Ranks
from claw.errors import ClawError, UsageError
from claw.records import DEFAULT_OWNER, Update, Version, new_id

log = logging.getLogger(__name__)

POLL_S = 1.0
"""how long the actor may hold a lease request; a rollback waits no longer than this"""


NO_ROOM_S = 10.0
"""after which a step that could not be saved is tried again"""


class Trainer:
    """Everything that steps need, and the loop."""

    def __init__(
        self, config: RunConfig, model_dir: Path, run_dir: Path, link: Link, monitor: Monitor,
        ranks: Ranks | None = None,
    ) -> None:
        """`ranks`: those that train with this process, the first of them; the others `follow`."""
        self.config, self.link, self.run_dir = config, link, run_dir
        self.policy, self.optim = in_hand(model_dir, config, ranks)
        texts = heldout.encode(model_dir)
        # these are the first weights, also where a checkpoint is taken up after this
        origin = (drift.read(self.policy, texts, config.train.micro_tokens)
                  if config.gate.enabled else None)
        self.shared = Shared(config, run_dir, self.policy, self.optim, monitor, texts,
                             heldout.canary(texts), origin)
        self.learners: dict[str, Learner] = {}
        self.learner = Learner(self.shared)
        """the one whose weights are in hand"""

    @property
    def step(self) -> int:
        """Steps of all owners."""
        return sum(learner.progress.step for learner in self.learners.values())

    # --- start -------------------------------------------------------------------------------

    def begin(self, *, resume: bool) -> None:
        """Continue from the newest checkpoints, or write version 0 and the first one."""
        folder = folder_of(self.run_dir)
        for owner in sorted(p.name for p in folder.iterdir()) if folder.is_dir() else ():
            learner = Learner(self.shared, owner)
            if learner.recall():
                self.learners[owner] = learner
        if self.learners and not resume:
            raise UsageError("the run has a checkpoint already", found=str(folder),
                             do="resume the run, or start a new one")
        if self.learners:
            self.learner = max(self.learners.values(), key=lambda one: one.progress.total)
            self.learner.take_up(with_random=True)
            return
        _seed(self.config.seed)
        self.learner.gate.measure_first(self.policy)
        self.learners[DEFAULT_OWNER] = self.learner
        self.learner.begin(self.learner.gate.first)

    @faults.around("trainer.hello")
    def greet(self) -> None:
        """Say hello; the actor puts back every lease that is not durable."""
        fields = {"step": self.step, "learners": [one.told() for one in self.learners.values()]}
        self.link.ask(wire.Message("trainer.hello", new_id("hello"), fields))
        for one in self.learners.values():
            current = one.progress.current
            if current and current.number:
                self.link.announce(current)  # that may have died with the last process

    # --- the loop ----------------------------------------------------------------------------

    def run(self) -> None:
        """Train leases until max_steps. Stopped: SIGTERM, a stop message, or no parent any more."""
        self.greet()
        while not self.is_done:
            pulse.mark(pulse.WORK)
            self.policy.ranks.tell(follow.HERE)
            self._serve_requests()
            lease = self._lease()
            if lease is None:
                continue
            self.link.state("training", self.step)
            try:
                update, version, why = self.train(lease)
            except Exception as error:
                if not durable.is_no_room(error):
                    raise
                self._wait_for_room(error)
                continue
            self.link.state("waiting", self.step)
            self._acknowledge(lease, update, version, why)
            if not why:
                self.link.announce(version)

    @property
    def is_done(self) -> bool:
        return 0 < self.config.train.max_steps <= self.step

    def _lease(self) -> Lease | None:
        self.link.held = {owner: one.held for owner, one in self.learners.items() if one.held}
        held = sorted(self.link.held)
        if len(held) == len(self.learners):
            return self._wait_for_a_person()
        train = self.config.train
        asked = wire.Message("lease", new_id("ask"), {
            "max_samples": train.batch_size, "max_wait_s": train.max_wait_s, "poll_s": POLL_S,
            "not_of": held,
        })
        self.link.state("waiting", self.step)
        reply = self.link.ask(asked, wait_s=POLL_S)
        if reply.type != "lease.samples":
            return None
        return Lease(reply["lease_id"], wire.read_samples(reply), dict(reply.get("dropped") or {}))

    def _wait_for_a_person(self) -> None:
        self.link.state("held", self.step)
        if self.link.stopping.wait(POLL_S):
            raise Stopped

    def _wait_for_room(self, error: Exception) -> None:
        """The step did not become durable, so it never happened: its lease goes back."""
        log.error("%s", ClawError(
            "a step could not be saved, so it is undone", found=f"{self.run_dir}: {error}",
            do="free space on that disk, or make it writable; the samples wait and are tried again",
        ))
        self.link.state("no room", self.step)
        if self.link.stopping.wait(NO_ROOM_S):
            raise Stopped
        self.learner.recall()
        self.learner.take_up(with_random=True)
        self.greet()

    def train(self, lease: Lease) -> tuple[Update, Version, str]:
        """Make a lease's step: see `Learner.train`."""
        self._take_up(lease.samples[0].owner if lease.samples else DEFAULT_OWNER)
        return self.learner.train(lease, self.step, self._is_stopping)

    def _is_stopping(self) -> bool:
        """Asked between two micro-batches, which is also the sign that a step gets on."""
        pulse.mark(pulse.WORK)
        return self.link.stopping.is_set()

    @faults.around("trainer.ack")
    def _acknowledge(self, lease: Lease, update: Update, version: Version, why: str) -> None:
        message = wire.record_message(
            "lease.ack", update, new_id("ack"), lease_id=lease.id, version=wire.pack(version)[0],
            why=why, left_out=self.learner.progress.left_out,
        )
        for id, seen in self.learner.seen.items():
            message.arrays.update(wire.pack(seen, f"{id}/")[1])
        self.link.ask(message, through_stop=True)

    # --- owners ------------------------------------------------------------------------------

    def _take_up(self, owner: str) -> None:
        """Have an owner's weights and moments in hand; one that was never here begins."""
        if self.policy.peft is None and owner != DEFAULT_OWNER:
            return  # the step leaves the samples out: they are not the owner's of these weights
        if owner not in self.learners:
            self._enrol(owner)
        elif self.learners[owner] is not self.learner:
            self.learner = self.learners[owner]
            self.learner.take_up()

    def _enrol(self, owner: str) -> None:
        """An owner begins where the run began: with the first weights and no moments."""
        first = self.learners[DEFAULT_OWNER]
        self.learner = Learner(self.shared, owner)
        weights.load(self.policy, first.shelf.path(0))
        self.optim.begin_again()
        version = self.learner.begin(first.gate.first)
        self.learners[owner] = self.learner
        log.info("%s has an adapter of their own now", owner)
        # to the actor only: workers serve a version 0 by themselves, which is no adapter at all
        self.link.send(wire.record_message("version.published", version))

    # --- what is asked between two steps -----------------------------------------------------

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
        owner = str(asked["owner"])
        if owner not in self.learners or asked["adapter"] != DEFAULT_OWNER:
            return
        self._take_up(owner)
        version = self.learner.turned_down(int(asked["number"]), str(asked["why"]),
                                           int(asked["good"]))
        if version is not None:
            self.link.announce(version)

    def roll_back(self, owner: str, adapter: str, to: int) -> Version:
        """See `Learner.roll_back`. ClawError: also where the owner has no versions."""
        if owner not in self.learners or adapter != DEFAULT_OWNER:
            raise ClawError("no such version to go back to", found=f"{owner}/{adapter} v{to}",
                            allowed=", ".join(f"{name}/{DEFAULT_OWNER}" for name in self.learners))
        self._take_up(owner)
        return self.learner.roll_back(to)


def in_hand(
    model_dir: Path, config: RunConfig, ranks: Ranks | None = None
) -> tuple[Policy, Optimiser]:
    """The weights and moments of this process, the same on every rank."""
    policy = model.load(model_dir, config, ranks)
    return policy, Optimiser(policy.parameters, config.train, policy.ranks)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
