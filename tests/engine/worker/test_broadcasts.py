"""Broadcasts: a real depot, a real sender, and rank 1 of a real gloo group in this process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import faulty_sender
import numpy as np
import pytest
import torch
import torch.distributed as dist
import zmq
from safetensors.torch import save_file
from torch.distributed.distributed_c10d import (
    Backend,
    PrefixStore,
    _new_process_group_helper,
    _world,
    rendezvous,
)

from claw.engine import buckets, versions, wire
from claw.engine.trainer import sender
from claw.engine.trainer.broadcasts import Broadcasts
from claw.engine.trainer.depot import Depot
from claw.engine.versions import VersionError
from claw.engine.wire import Message
from claw.engine.worker import group as worker_group
from claw.engine.worker.engine import Offer
from claw.engine.worker.group import Group, check_offer
from claw.records import Version

pytestmark = [pytest.mark.timeout(240), pytest.mark.slow]


def make(root: Path, tensors: dict, number: int = 1) -> str:
    """A version where a trainer has it; returns its checksum."""
    folder = root / "default" / "default" / str(number)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    return versions.write_manifest(folder, owner="default", adapter="default", number=number,
                                   parent=None, kind="full", step=number)


TENSORS = {f"layers.{n}.w": torch.arange(60.0).reshape(12, 5) + n for n in range(12)} | {
    "half": torch.arange(7).to(torch.bfloat16), "last": torch.full((3,), 9.0)}


class Asker:
    """What a worker does, step by step."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = wire.open_socket(self.context, zmq.DEALER, address, bind=False)

    def say(self, type: str, id: str = "broadcast-1", **fields) -> None:
        self.socket.send_multipart(wire.encode(Message(type, id, fields)))

    def ask(self, checksum: str, id: str = "broadcast-1", patience_s: float = 20.0, **more) -> None:
        self.say("broadcast", id, **{
            "owner": "default", "adapter": "default", "number": 1, "checksum": checksum,
            "world": 2, "backend": "gloo", "patience_s": patience_s} | more)

    def hear(self, timeout_s: float = 60.0) -> Message:
        assert self.socket.poll(timeout_s * 1000), "no answer"
        return wire.decode(self.socket.recv_multipart())

    def close(self) -> None:
        self.context.destroy(linger=0)


def join(port: int, name: str = "broadcast-1", host: str = "127.0.0.1"):
    """What SGLang does: `init_custom_process_group`, in its own words."""
    timeout = timedelta(seconds=20)
    store, rank, _ = next(rendezvous(f"tcp://{host}:{port}", 1, 2, timeout=timeout))
    store.set_timeout(timeout)
    group, _ = _new_process_group_helper(2, rank, [], Backend("gloo"), PrefixStore(name, store),
                                         group_name=name, timeout=timeout)
    _world.pg_group_ranks[group] = {0: 0, 1: 1}
    return group


def receive(group, bucket) -> dict[str, torch.Tensor]:
    sizes = [int(np.prod(shape)) * getattr(torch, dtype).itemsize for _, dtype, shape in bucket]
    flat = torch.empty(sum(sizes), dtype=torch.uint8)
    dist.broadcast(flat, src=0, group=group)
    return {name: part.view(getattr(torch, dtype)).reshape(shape) for (name, dtype, shape), part in
            zip(bucket, flat.split(sizes), strict=True)}


@pytest.fixture
def depot(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAW_SENDER", str(tmp_path / "fault"))
    here = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.setattr(Broadcasts, "module", faulty_sender.__name__)
    made = Depot(tmp_path / "versions", f"ipc://{tmp_path}/w")
    yield made
    made.close()


@pytest.fixture
def asker(depot, tmp_path):
    made = Asker(f"ipc://{tmp_path}/w")
    yield made
    made.close()


def wait_until(what, timeout_s: float = 30.0) -> None:
    until = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as asked:
        return asked.connect_ex((host, port)) != 0


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_arrives_is_what_the_folder_holds_and_nothing_is_left(depot, asker):
    asker.ask(make(depot.folder, TENSORS))
    ready = asker.hear()
    assert ready.type == "broadcast.ready", ready
    group = join(ready["port"])
    got = {}
    for index, bucket in enumerate(ready["buckets"]):
        asker.say("broadcast.bucket", index=index)
        assert asker.hear().fields == {"index": index}
        got |= receive(group, bucket)
    assert set(got) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert got[name].dtype == tensor.dtype and torch.equal(got[name], tensor), name
    pid = depot.broadcasts.running["broadcast-1"].popen.pid
    asker.say("broadcast.end")
    wait_until(lambda: not depot.broadcasts.running)
    assert not exists(pid) and is_free(ready["port"])
    dist.destroy_process_group(group)


def test_buckets_are_bounded_and_of_one_dtype(monkeypatch):
    monkeypatch.setattr(buckets, "BUCKET", 500)
    found = buckets.plan(TENSORS)
    assert [len(b) for b in found] == [1, 3, 2, 2, 2, 2, 2]
    assert [name for b in found for name, _, _ in b][1:5] == [
        "last", "layers.0.w", "layers.1.w", "layers.2.w"]
    for bucket in found:
        assert len({dtype for _, dtype, _ in bucket}) == 1


def test_questions_that_cannot_be_met_are_answered_with_a_reason(depot, asker):
    checksum = make(depot.folder, TENSORS)
    for words, more in (("manifest is not the announced", {"checksum": "0" * 64}),
                        ("has no manifest", {"number": 7}), ("backend", {"backend": "mpi"}),
                        ("world 1", {"world": 1}), ("no such version", {"owner": "../x"}),
                        ("patience_s", {"patience_s": 1e9})):
        asker.ask(more.pop("checksum", checksum), **more)
        answer = asker.hear()
        assert answer.type == "error" and words in answer["error"], answer
    asker.say("broadcast.bucket", "broadcast-2", index=0)
    assert "has ended" in asker.hear()["error"]
    assert not depot.broadcasts.running


def test_a_version_that_is_removed_or_spoilt_is_not_sent(depot, asker):
    checksum = make(depot.folder, TENSORS)
    file = depot.folder / "default/default/1/model.safetensors"
    raw = file.read_bytes()
    file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    asker.ask(checksum)
    assert "model.safetensors is corrupt" in asker.hear()["error"]
    file.unlink()
    asker.ask(checksum, "broadcast-2")
    assert "a file is missing" in asker.hear()["error"]
    wait_until(lambda: not depot.broadcasts.running)


def test_nccl_needs_a_gpu_of_the_trainer():
    with pytest.raises(RuntimeError, match="the trainer has none"):
        sender.device("nccl", "cpu")
    assert sender.device("gloo", "auto") == "cpu"


@pytest.mark.parametrize("when", ["joining", "0"])
def test_the_worker_hears_at_once_that_its_sender_died(depot, asker, tmp_path, when):
    (tmp_path / "fault").write_text(f"die {when}")
    asker.ask(make(depot.folder, TENSORS))
    ready = asker.hear()
    if when == "0":
        group = join(ready["port"])
        asker.say("broadcast.bucket", index=0)
        assert asker.hear().type == "broadcast.sending"
        with pytest.raises(RuntimeError):
            receive(group, ready["buckets"][0])
    answer = asker.hear()
    assert "died with exit code -9" in answer["error"]
    assert not depot.broadcasts.running and is_free(ready["port"])


def test_a_sender_whose_worker_never_joins_ends_by_itself_and_says_why(depot, asker):
    asker.ask(make(depot.folder, TENSORS), patience_s=1.0)
    port = asker.hear()["port"]
    assert asker.hear()["error"].startswith("Dist")
    wait_until(lambda: not depot.broadcasts.running)
    assert is_free(port)


def test_a_frozen_sender_is_killed(depot, asker, tmp_path, monkeypatch):
    monkeypatch.setattr("claw.engine.trainer.broadcasts.START_S", 0.0)
    (tmp_path / "fault").write_text("freeze joining")
    asker.ask(make(depot.folder, TENSORS))
    assert asker.hear().type == "broadcast.ready"
    pid = depot.broadcasts.running["broadcast-1"].popen.pid
    depot.broadcasts.running["broadcast-1"].heard -= 120  # so long it may be silent
    assert "nothing was heard" in asker.hear()["error"]
    assert not exists(pid)


class Rank1:
    """Stands for an engine: joins the group that it is offered."""

    backend, num_ranks = "gloo", 1

    async def join(self, offer) -> None:
        self.group = await asyncio.to_thread(join, offer.port, offer.name, offer.host)


def meet(address: str, version: Version, shapes: versions.Shapes, patience_s: float = 20.0):
    """What a worker does with a version: (the engine, what was sent of bucket 0)."""
    async def main():
        engine = Rank1()
        broadcast = await Group(address, None, patience_s).meet(engine, version, shapes)
        await broadcast.send(0)
        got = await asyncio.to_thread(receive, engine.group, broadcast.offer.buckets[0])
        broadcast.close()
        dist.destroy_process_group(engine.group)
        return got
    return asyncio.run(main())


SHAPES = {name: tuple(tensor.shape) for name, tensor in TENSORS.items()}


def test_a_worker_meets_its_sender_and_lets_it_go(depot, tmp_path):
    version = Version("default", "default", 1, None, make(depot.folder, TENSORS))
    got = meet(f"ipc://{tmp_path}/w", version, SHAPES)
    assert torch.equal(got["half"], TENSORS["half"])
    wait_until(lambda: not depot.broadcasts.running)


def test_a_worker_refuses_an_offer_that_is_not_the_version_s_tensors(depot, tmp_path):
    version = Version("default", "default", 1, None, make(depot.folder, TENSORS))
    (tmp_path / "fault").write_text("lack layers.10.w")
    with pytest.raises(VersionError, match=r"layers.10.w: is missing(?s:.)*\(12, 5\)"):
        meet(f"ipc://{tmp_path}/w", version, SHAPES)
    wait_until(lambda: not depot.broadcasts.running)
    offer = Offer("x", "h", 1, 2, ([("a", "float32", [2])], [("b", "float32", [3])]))
    check_offer(offer, {"a": (2,), "b": (3,)})
    for wanted, words in (({"a": (2,)}, "b: .*(?s:.)*not in the version"),
                          ({"a": (2,), "b": (4,)}, r"b: \(3,\)")):
        with pytest.raises(VersionError, match=words):
            check_offer(offer, wanted)


def test_a_trainer_that_is_silent_is_waited_for_within_the_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_group, "START_S", 0.1)
    version = Version("default", "default", 1, None, "0" * 64)
    with pytest.raises(VersionError, match=r"silent(?s:.)*no broadcast.ready for 0.3 s"):
        meet(f"ipc://{tmp_path}/nobody", version, SHAPES, 0.2)


TRAINER = """
import sys, time
from pathlib import Path
from claw.engine.trainer.depot import Depot
Depot(Path(sys.argv[1]), sys.argv[2])
time.sleep(600)
"""


def test_a_sender_ends_with_a_trainer_that_is_killed(tmp_path):
    checksum = make(tmp_path / "versions", TENSORS)
    address = f"ipc://{tmp_path}/w"
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, tmp_path / "versions", address])
    asker = Asker(address)
    try:
        asker.ask(checksum)
        port = asker.hear()["port"]
        tasks = Path(f"/proc/{trainer.pid}/task").glob("*/children")
        (sent_by,) = [pid for file in tasks for pid in file.read_text().split()]
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
        wait_until(lambda: not exists(int(sent_by)))
        assert is_free(port)
    finally:
        trainer.kill()
        asker.close()


def test_it_listens_where_the_wire_does_and_nowhere_else(depot, asker):
    asker.ask(make(depot.folder, TENSORS))
    port = asker.hear()["port"]
    assert is_free(port, "127.0.0.2") and not is_free(port)
    assert sender.interface("127.0.0.1") == "lo"
    assert sender.interface("nowhere") == ""
