"""Named points at which a process of a run can be made to die or stand still, once, by a test.

Owns: the list of points, and what happens at the one that is armed.
Does not own: what must hold afterwards (tests/whole/test_whole_faults.py).

`CLAW_FAULT=trainer.publish.before=kill` and `CLAW_FAULT_FOLDER=DIR` arm one point for a run and all
its processes. `kill` is SIGKILL to the process that comes there, `stop` is SIGSTOP; `kill:3` is the
third time that one process comes there. The file DIR/<point> is made first, and says that it
happened: a process that is started again, or another one, goes on. Where nothing is armed a point
costs nothing.
"""

import functools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from claw.errors import UsageError, nearest

AROUND = (
    # the actor: each kind of write to the journal, and the transaction that makes it last
    "journal.commit", "journal.trace", "journal.turn", "journal.completion", "journal.state",
    "journal.next", "journal.signal", "journal.sample", "journal.sample_state", "journal.lease",
    "journal.version", "journal.event", "journal.meta", "journal.forget",
    # the actor: what it tells the trainer
    "actor.welcome", "actor.lease", "actor.acked",
    # the trainer, in the order of a step
    "trainer.hello", "trainer.step", "trainer.publish", "trainer.weights", "trainer.manifest",
    "trainer.checkpoint", "trainer.tensors", "trainer.complete", "trainer.prune",
    "trainer.ack", "trainer.announce", "trainer.rollback",
    # the worker, from an announcement to its answer
    "worker.hello", "worker.check", "worker.pull", "worker.load", "worker.canary", "worker.swap",
    "worker.acknowledge", "worker.chunk",
    # the launcher
    "launcher.lock", "launcher.start", "launcher.addresses", "launcher.restart", "launcher.stop",
    "launcher.release",
)
"""each stands for two points, `<name>.before` and `<name>.after`"""
POINTS = tuple(f"{name}.{when}" for name in AROUND for when in ("before", "after"))
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
ARM, FOLDER = "CLAW_FAULT", "CLAW_FAULT_FOLDER"

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Fault:
    """What is armed."""

    point: str
    action: str
    left: int
    """times that the point is still to be passed, the last one included"""
    marker: Path

    def strike(self) -> None:
        self.left -= 1
        if self.left:
            return
        try:
            with self.marker.open("x") as out:
                out.write(str(os.getpid()))
        except FileExistsError:
            return  # it has happened in this run
        os.kill(os.getpid(), SIGNALS[self.action])


def read(words: str, folder: str) -> Fault:
    """Read what is to be armed. UsageError: no such point or action, or no folder."""
    point, _, rest = words.partition("=")
    action, _, count = rest.partition(":")
    if point not in POINTS:
        raise UsageError("no such point", found=f"{ARM}={words}", do=nearest(point, list(POINTS)))
    if action not in SIGNALS or not (count or "1").isdigit() or count == "0":
        raise UsageError("no such fault", found=f"{ARM}={words}",
                         allowed="POINT=kill, POINT=stop, POINT=kill:3")
    if not Path(folder or "-").is_dir():
        raise UsageError("no folder to note a fault in", found=f"{FOLDER}={folder}")
    return Fault(point, action, int(count or 1), Path(folder) / point)


_armed = read(os.environ[ARM], os.environ.get(FOLDER, "")) if os.environ.get(ARM) else None


def at(point: str) -> None:
    """Die or stand still here, if this point is armed and it has not happened yet."""
    if _armed is not None and _armed.point == point:
        _armed.strike()


def around(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function with the points before and after it."""

    def wrap(call: Callable[P, R]) -> Callable[P, R]:
        if _armed is None:
            return call

        @functools.wraps(call)
        def pointed(*args: P.args, **named: P.kwargs) -> R:
            at(f"{name}.before")
            result = call(*args, **named)
            at(f"{name}.after")
            return result

        return pointed

    return wrap
