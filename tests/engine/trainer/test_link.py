"""The trainer's end of the wire, without torch: who is there, who is gone."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainer_doubles import FakeActor

from claw.engine import wire
from claw.engine.trainer.link import Link, Refused, Stopped
from claw.errors import ClawError
from claw.records import Version, VersionStatus

CHILD = """
import sys
from claw.engine import wire
from claw.engine.trainer.link import Link, Stopped
link = Link(sys.argv[1], sys.argv[2], beat_s=0.1, dead_after_s=60.0)
try:
    while True:
        link.ask(wire.Message("lease", "a1", {"max_samples": 1}), wait_s=0.5)
except Stopped:
    link.close()
"""


@pytest.fixture
def actor() -> Iterator[FakeActor]:
    with tempfile.TemporaryDirectory(prefix="claw-") as folder:  # ipc paths must be short
        actor = FakeActor(Path(folder))
        yield actor
        actor.close()


@pytest.fixture
def link(actor: FakeActor) -> Iterator[Link]:
    link = Link(actor.address, actor.announcements, beat_s=0.05, dead_after_s=0.6)
    yield link
    link.close()


def test_a_silent_actor_is_an_error_after_the_allowed_silence(actor: FakeActor, link: Link) -> None:
    started = time.monotonic()
    with pytest.raises(ClawError, match="the actor is silent"):
        link.ask(wire.Message("lease", "a1", {}))
    assert 0.5 < time.monotonic() - started < 5
    actor.serve(0.3)
    assert len([m for m in actor.of("lease") if m.id == "a1"]) > 1, "asked once only"


def test_heartbeats_go_on_while_the_trainer_computes(actor: FakeActor, link: Link) -> None:
    link.state("training", 7)
    actor.until(lambda: len(actor.of("trainer.beat")) > 4, 5)
    beats = [m for m in actor.of("trainer.beat") if m["state"] == "training"]
    assert beats[-1]["step"] == 7 and beats[-1]["seconds"] > 0


def test_a_stop_message_ends_a_wait(actor: FakeActor, link: Link) -> None:
    actor.until(lambda: actor.trainer, 5)
    actor.send(wire.Message("stop"))
    with pytest.raises(Stopped):
        link.ask(wire.Message("lease", "a1", {}))


def test_a_rollback_waits_for_the_trainer_and_an_error_is_said(
    actor: FakeActor, link: Link
) -> None:
    actor.until(lambda: actor.trainer, 5)
    actor.send(wire.Message("rollback", "r1", {"owner": "o", "adapter": "a", "to": 1}))
    actor.send(wire.Message("error", "a1", {"error": "no such lease"}))
    with pytest.raises(Refused, match="no such lease"):
        link.ask(wire.Message("lease.ack", "a1", {}))
    assert link.requests.get(timeout=1)["to"] == 1


def test_garbage_from_the_actor_is_passed_over(actor: FakeActor, link: Link) -> None:
    actor.until(lambda: actor.trainer, 5)
    actor.router.send_multipart([actor.trainer, b"nonsense"])
    actor.send(wire.Message("lease.empty", "a1"))
    assert link.ask(wire.Message("lease", "a1", {})).type == "lease.empty"


def test_workers_hear_of_published_versions_only(actor: FakeActor, link: Link) -> None:
    actor.until(lambda: actor.trainer, 5)
    actor.serve(0.3)  # the subscription needs a moment
    bad = Version("default", "default", 1, 0, "x", VersionStatus.REFUSED)
    link.announce(bad)
    link.announce(Version("default", "default", 2, 0, "x"))
    actor.until(lambda: len(actor.of("version.published")) == 2 and actor.announced, 5)
    assert [v.number for v in actor.announced] == [2]


def test_the_process_ends_when_its_parent_is_gone(actor: FakeActor) -> None:
    spawn = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid); p.wait()"
    child = [sys.executable, "-c", CHILD, actor.address, actor.announcements]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", spawn, *child], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        actor.until(lambda: "lease" in actor.types())
        parent.kill()
        end = time.monotonic() + 15
        while _lives(pid) and time.monotonic() < end:
            actor.serve(0.1)
        assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"
