"""A process dies or stands still at a named point, with clients talking throughout.

Afterwards the run is as it would have been: see `kept`. Every point is nightly; some are slow.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from kept import left, lost, serves_the_newest_good_version, trained_nothing_twice, trained_twice
from system import System, until
from talk import Person, longest_gap_s, people

from claw.engine import faults, report
from claw.errors import ClawError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DEAD_AFTER_S = 4.0
STILL_S = 3 * DEAD_AFTER_S
"""longer than any peer waits for a process that says nothing"""
SETTINGS = (f"wire.dead_after_s={DEAD_AFTER_S}", "serve.session_idle_s=2.0", "train.max_wait_s=1.0",
            "worker.slots=4", "rollout.max_tokens=12")
LATER = {"trainer.publish": 2, "trainer.weights": 2, "trainer.manifest": 2, "trainer.checkpoint": 2,
         "trainer.tensors": 2, "trainer.complete": 2, "trainer.prune": 2, "trainer.announce": 2,
         "journal.commit": 40, "journal.state": 9, "journal.version": 2, "worker.chunk": 30,
         "launcher.start": 3}
"""the time that is meant where the first is before anybody talks"""
ELSEWHERE = ("worker.pull",)
"""reached by a worker on another host only: tests/engine/worker/test_pull.py"""
SOME = ("journal.completion.before=kill", "trainer.complete.before=kill", "worker.swap.before=stop",
        "launcher.addresses.before=kill")
"""those that are not nightly"""


def _faults() -> Iterator[object]:
    for point in faults.POINTS:
        name, _, when = point.rpartition(".")
        for action in ("kill", "stop") if when == "before" else ("kill",):
            if name not in ELSEWHERE:
                words = f"{point}={action}"
                marks = () if words in SOME else (pytest.mark.nightly,)
                yield pytest.param(words, marks=marks, id=words)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder for temporary files of one run; short, as sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="cf-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("fault", list(_faults()))
def test_nothing_is_lost_at(
    fault: str, whole_model: Path, tmp_path: Path, temporary: Path,
    record_property: Callable[[str, object], None],
) -> None:
    point, _, action = fault.partition("=")
    marks = tmp_path / "marks"
    marks.mkdir()
    system = System(tmp_path, whole_model, *SETTINGS)
    count = LATER.get(point.rpartition(".")[0], 1)
    system.extra = {faults.ARM: f"{fault}:{count}", faults.FOLDER: str(marks),
                    "TMPDIR": str(temporary)}
    struck = Struck(system, marks / point, action)
    try:
        struck.start()
        with people(system, 2, tokens=12) as talkers:
            struck.happens()
            struck.recovers(talkers)
        system.settle()
        answered = [h.turn_id for person in talkers for h in person.heard]
        away = lost(system, [id for id in answered if id not in struck.forgotten])
        twice = trained_twice(system)
        for name, figure in (("answered", len(answered)), ("lost", len(away)),
                             ("twice", len(twice)), ("gap_s", longest_gap_s(talkers))):
            record_property(name, figure)  # for `make trust`
        assert not away and not twice
        trained_nothing_twice(system)
        serves_the_newest_good_version(system)
        assert system.rows("PRAGMA integrity_check") == [("ok",)]
    finally:
        system.stop()
    remains = left(system, temporary)
    record_property("left", len(remains))
    assert not remains


class Struck:
    """One run with a fault armed: it comes up, the fault happens, it recovers."""

    def __init__(self, system: System, marker: Path, action: str) -> None:
        self.system, self.marker, self.action = system, marker, action
        self.cause = CAUSES.get(marker.name.rpartition(".")[0])
        self.forgotten: set[str] = set()
        self._is_over = False

    @property
    def has_struck(self) -> bool:
        return self.marker.exists() and bool(self.marker.read_text())

    def start(self) -> None:
        """Come up; a fault at the start is dealt with on the way."""
        system = self.system
        system.launch(*system.words)
        assert until(lambda: self.has_struck or "base URL" in system.said(), 150, 0.1), (
            system.said())
        if self.has_struck:
            self._deal()
        system.wait_ready()

    def happens(self) -> None:
        """Wait for the fault, and bring about what it needs."""
        if self._is_over:
            return
        if self.cause is not None:
            assert until(lambda: self.system.steps() >= 2, 60), "nobody taught anything"
            Thread(target=self.cause, args=(self,), daemon=True).start()
        assert until(lambda: self.has_struck, 90, 0.1), f"{self.marker.name} was not reached"
        self._deal()

    def _deal(self) -> None:
        """Do what a person or the system does then: go on with a process, or resume the run."""
        self._is_over = True
        pid, launcher = int(self.marker.read_text()), self.system.launcher
        assert launcher is not None
        if self.action == "stop":
            time.sleep(STILL_S)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if self.action == "stop" and pid != launcher.pid:
            return
        if pid == launcher.pid and (self.action == "kill" or self.cause is interrupt):
            assert launcher.wait(60) == (-signal.SIGKILL if self.action == "kill" else 130)
            self.system.resume()

    def recovers(self, talkers: list[Person]) -> None:
        """People are answered again, and the policy learns on."""
        steps, since = self.system.steps(), {p: len(p.heard) for p in talkers}
        assert until(lambda: all(len(p.heard) > since[p] + 2 for p in talkers), 90, 0.5), [
            p.failures[-2:] for p in talkers]
        assert until(lambda: self.system.steps() > steps, 60, 0.5), "no step after it"


# --- what brings a fault about that talking does not -------------------------------------------


def kill_a_worker(struck: Struck) -> None:
    struck.system.kill("worker-0")


def interrupt(struck: Struck) -> None:
    launcher = struck.system.launcher
    assert launcher is not None
    launcher.send_signal(signal.SIGINT)


def roll_back(struck: Struck) -> None:
    _ask(struck, "rollback", {"owner": "default", "adapter": "default", "to": 1})


def pause_nothing(struck: Struck) -> None:
    _ask(struck, "pause", {"owner": "default", "seconds": 0})


def forget(struck: Struck) -> None:
    rows = struck.system.rows("SELECT id, trace_id FROM turns WHERE state='trained' LIMIT 1")
    id, trace = rows[0]
    struck.forgotten |= {t for (t,) in struck.system.rows(
        "SELECT id FROM turns WHERE trace_id=?", trace)}
    _ask(struck, "forget", {"owner": "default", "session": id, "only_look": False})


def _ask(struck: Struck, type: str, fields: dict[str, object]) -> None:
    with contextlib.suppress(ClawError):  # the one that is asked may be the one that is struck
        report.ask_run(struck.system.run, type, fields, timeout_s=30.0)


CAUSES: dict[str, Callable[[Struck], None]] = {
    "launcher.restart": kill_a_worker, "launcher.stop": interrupt, "launcher.release": interrupt,
    "trainer.rollback": roll_back, "journal.meta": pause_nothing, "journal.forget": forget,
}
