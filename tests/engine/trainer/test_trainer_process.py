"""The whole trainer process against a small actor over ipc."""

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from some_samples import batch
from trainer_doubles import FakeActor, Process

from claw.engine import wire
from claw.records import Version

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="claw-") as folder:  # ipc paths must be short
        yield Path(folder)


@pytest.fixture
def actor(sockets: Path) -> Iterator[FakeActor]:
    actor = FakeActor(sockets)
    yield actor
    actor.close()


@pytest.fixture
def trainer(actor: FakeActor, tiny_llama_dir: Path, tmp_path: Path) -> Iterator[Process]:
    process = Process(actor, tiny_llama_dir, tmp_path)
    yield process
    if process.popen is not None and process.popen.poll() is None:
        process.popen.kill()
        process.popen.wait(10)


def test_it_trains_announces_goes_back_and_ends_at_max_steps(
    actor: FakeActor, trainer: Process
) -> None:
    trainer.spec["config"]["train"]["max_steps"] = 3
    trainer.start()
    actor.until(lambda: "lease" in actor.types())
    actor.waiting = batch(8)
    actor.until(lambda: len(actor.acks) == 2)
    updates = [update for update, _, _ in actor.acks.values()]
    assert [(u.step, u.version) for u in updates] == [(1, 1), (2, 2)]
    assert all(u.grad_norm > 0 for u in updates)
    actor.until(lambda: [v.number for v in actor.announced] == [1, 2])
    assert [v.number for v in map(_record, actor.of("version.published"))] == [1, 2]
    assert "training" in {m["state"] for m in actor.of("trainer.beat")}
    # going back is a new version with the weights of the old one
    asked = {"owner": "default", "adapter": "default", "to": 1}
    actor.send(wire.Message("rollback", "r1", asked))
    actor.send(wire.Message("rollback", "r2", asked | {"to": 7}))
    actor.until(lambda: len(actor.of("rollback.done")) == 2)
    done, refused = actor.of("rollback.done")
    version = wire.unpack(Version, done["version"], {})
    assert (version.number, version.parent) == (3, 1) and "v1" in version.note
    old = trainer.run_dir / "versions/default/default/1/adapter_model.safetensors"
    assert (Path(version.path) / old.name).read_bytes() == old.read_bytes()
    assert "v7" in refused["error"]
    actor.until(lambda: actor.announced[-1].number == 3)
    # the last step
    actor.waiting = batch(4, seed=200)
    actor.until(lambda: trainer.popen.poll() is not None)
    assert trainer.popen.returncode == 0, trainer.log
    actor.serve(0.1)
    (update, version, why) = list(actor.acks.values())[-1]
    assert (update.step, version.number, version.parent, why) == (3, 4, 3, "")
    lines = [json.loads(x) for x in (trainer.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines if "train/loss" in x] == [1, 2, 3]
    assert lines[0]["rollout/actor_dropped_degenerate"] == 1


def test_killed_between_durable_and_ack_it_reports_the_lease_and_trains_nothing_twice(
    actor: FakeActor, trainer: Process
) -> None:
    actor.acknowledges = False
    actor.waiting = batch(4)
    trainer.start()
    actor.until(lambda: "lease.ack" in actor.types())
    trainer.kill()
    (first,) = actor.leases
    actor.acknowledges, actor.heard = True, []
    trainer.start(resume=True)
    actor.until(lambda: "lease" in actor.types())
    said = actor.of("trainer.hello")[0]
    (hello,) = said["learners"]
    assert (hello["last_lease"], hello["step"], said["step"]) == (first, 1, 1)
    assert [v["number"] for v in hello["versions"]] == [0, 1]
    assert hello["last_update"]["lease_id"] == first
    assert (hello["why"], hello["left_out"]) == ("", {})
    assert not actor.leases and not actor.waiting
    actor.until(lambda: actor.announced and actor.announced[-1].number == 1)
    # asked to end: exit code 0
    trainer.popen.send_signal(signal.SIGTERM)
    actor.until(lambda: trainer.popen.poll() is not None)
    assert trainer.popen.returncode == 0, trainer.log
    assert not actor.acks


@pytest.mark.slow
def test_what_no_worker_serves_is_gone_back_from_and_what_is_refused_again_holds_the_trainer(
    actor: FakeActor, trainer: Process
) -> None:
    """So that what is trained is what samples."""
    def refuse(number: int, good: int) -> None:
        actor.send(wire.Message("version.refused", "", {
            "owner": "default", "adapter": "default", "number": number, "good": good,
            "why": "worker-0 refuses it: the canary"}))

    trainer.start()
    actor.waiting = batch(8)
    actor.until(lambda: [v.number for v in actor.announced] == [1, 2])
    refuse(2, good=1)
    actor.until(lambda: actor.announced[-1].number == 3)
    back = actor.announced[-1]
    assert (back.parent, back.note) == (1, "back to v1: workers refuse v2")
    file = "adapter_model.safetensors"
    old = trainer.run_dir / "versions/default/default/1" / file
    assert (Path(back.path) / file).read_bytes() == old.read_bytes()
    # it goes on from there
    actor.waiting = batch(4, seed=200)
    actor.until(lambda: actor.announced[-1].number == 4)
    assert actor.announced[-1].parent == 3
    # an older one is no reason to go back
    refuse(3, good=1)
    actor.waiting = batch(4, seed=300)
    actor.until(lambda: actor.announced[-1].number == 5)
    # what it goes back to is refused as well: it waits for a person, also after a restart
    refuse(5, good=1)
    actor.until(lambda: actor.announced[-1].number == 6)
    refuse(6, good=1)
    actor.until(lambda: "held" in {m["state"] for m in actor.of("trainer.beat")})
    trainer.kill()
    actor.heard, actor.waiting, count = [], batch(4, seed=400), len(actor.announced)
    trainer.start(resume=True)
    actor.until(lambda: "held" in {m["state"] for m in actor.of("trainer.beat")})
    (hello,) = actor.of("trainer.hello")[0]["learners"]
    assert {v["number"]: v["status"] for v in hello["versions"]} == {
        0: "published", 1: "published", 2: "refused", 3: "refused", 4: "published",
        5: "refused", 6: "refused"}
    assert len(actor.waiting) == 4 and len(actor.announced) == count
    actor.send(wire.Message("rollback", "r", {"owner": "default", "adapter": "default", "to": 1}))
    actor.until(lambda: not actor.waiting)


def _record(message: wire.Message) -> Version:
    return wire.read_record(message, Version)
