"""Versions that lie on another host: real sockets, a real depot, and what can go wrong between."""

import hashlib
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
import zmq
from process_doubles import FakeActor
from safetensors.numpy import save_file
from worker_doubles import canary_of, full_version, lora_version, plain, plain_logps, plain_lora

from claw.engine import faults, versions, wire
from claw.engine.trainer.depot import Depot
from claw.engine.versions import VersionError
from claw.engine.worker import pull
from claw.engine.worker.cache import Cache
from claw.engine.worker.pull import Puller, Unreachable
from claw.records import Version

pytestmark = pytest.mark.timeout(120)
PIECE = 64 * 1024


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(pull, "PIECE", PIECE)


def make(root, number=1, size=500_000, seed=0):
    """A version of random bytes where a trainer would have it; its record names that place."""
    folder = root / "default" / "default" / str(number)
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed + number)
    save_file({"w": random.integers(0, 255, size).astype(np.uint8)}, folder / "model.safetensors")
    checksum = versions.write_manifest(folder, owner="default", adapter="default", number=number,
                                       parent=None, kind="full", step=number)
    return Version("default", "default", number, None, checksum, path=f"/elsewhere/{number}")


@pytest.fixture
def depot(tmp_path):
    made = Depot(tmp_path / "trainer", f"ipc://{tmp_path}/w")
    yield made
    made.close()


def puller(tmp_path, address="", keys=None, *, gb=1.0, patience_s=2.0):
    return Puller(address or f"ipc://{tmp_path}/w", keys, Cache(tmp_path / "cache", int(gb * 1e9)),
                  patience_s)


def same(tmp_path, version, folder):
    there = tmp_path / "trainer" / "default" / "default" / str(version.number)
    for file in there.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    return versions.check_version(folder, version.checksum)


def test_a_version_comes_in_bounded_pieces_and_is_the_same(tmp_path, depot):
    asked = []
    answer = depot.answer
    depot.answer = lambda m: asked.append((m["file"], m["offset"], m["size"])) or answer(m)
    version = make(depot.folder)
    got = puller(tmp_path)
    folder = got.fetch(version)
    same(tmp_path, version, folder)
    pieces = [a for a in asked if a[0] == "model.safetensors"]
    assert len(pieces) == 8 and {p[2] for p in pieces} == {PIECE}
    before = len(asked)
    assert got.fetch(version) == folder and len(asked) == before, "it is here: nothing is asked"


def test_over_tcp_it_needs_the_run_s_keys(tmp_path):
    wire.make_keys(tmp_path / "keys")
    wire.make_keys(tmp_path / "others")
    keys, others = (wire.read_keys(tmp_path / n) for n in ("keys", "others"))
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    address = f"tcp://127.0.0.1:{port}"
    depot = Depot(tmp_path / "trainer", address, keys)
    try:
        version = make(depot.folder)
        same(tmp_path, version, puller(tmp_path, address, keys).fetch(version))
        stranger = Puller(address, others, Cache(tmp_path / "c2", 10**9), 0.6)
        with pytest.raises(Unreachable, match="nothing for"):
            stranger.fetch(version)
    finally:
        depot.close()


class Between:
    """A relay between puller and depot that `spoil`s answers: returns the frames, or None."""

    def __init__(self, folder, spoil):
        self.context, self.spoil = zmq.Context(), spoil
        self.address = f"ipc://{folder}/between"
        self.front = wire.open_socket(self.context, zmq.ROUTER, self.address, bind=True)
        self.back = wire.open_socket(self.context, zmq.DEALER, f"ipc://{folder}/w", bind=False)
        self.num, self.stopping = 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        peer = b""
        while not self.stopping.is_set():
            if self.front.poll(5):
                peer, *frames = self.front.recv_multipart()
                self.back.send_multipart(frames)
            if self.back.poll(5):
                self.num += 1
                frames = self.spoil(self.num, self.back.recv_multipart())
                if frames is not None:
                    self.front.send_multipart([peer, *frames])

    def close(self):
        self.stopping.set()
        self.thread.join()
        self.context.destroy(0)


@contextmanager
def between(folder, spoil):
    made = Between(folder, spoil)
    try:
        yield made.address
    finally:
        made.close()


def flip(frames):
    return [*frames[:-1], bytes([frames[-1][0] ^ 1]) + frames[-1][1:]]


def test_a_piece_that_was_damaged_on_the_way_is_asked_for_again(tmp_path, depot):
    version = make(depot.folder)
    with between(tmp_path, lambda n, f: flip(f) if n in (1, 4, 5) else f) as address:
        same(tmp_path, version, puller(tmp_path, address).fetch(version))


def test_a_piece_that_is_wrong_each_time_refuses_the_version_by_name(tmp_path, depot):
    version = make(depot.folder)

    def spoil(n, frames):
        message = wire.decode(frames)
        return flip(frames) if message["offset"] == 2 * PIECE else frames

    with between(tmp_path, spoil) as address, pytest.raises(
        VersionError, match=rf"model.safetensors is wrong(?s:.)*byte {2 * PIECE}: checksum"
    ):
        puller(tmp_path, address).fetch(version)


def test_a_piece_that_is_another_one_is_refused_by_name(tmp_path, depot):
    version = make(depot.folder)

    def spoil(n, frames):
        m = wire.decode(frames)
        wrong = m.fields | {"offset": m["offset"] + 1}
        return wire.encode(wire.Message(m.type, m.id, wrong, m.arrays))

    with between(tmp_path, spoil) as address, pytest.raises(VersionError, match="it is that of"):
        puller(tmp_path, address).fetch(version)


def test_a_lost_piece_is_asked_for_again(tmp_path, depot, monkeypatch):
    monkeypatch.setattr(pull, "AGAIN_S", 0.3)
    version = make(depot.folder)
    with between(tmp_path, lambda n, f: None if n in (1, 5) else f) as address:
        same(tmp_path, version, puller(tmp_path, address).fetch(version))


def test_a_broken_transfer_goes_on_where_it_was(tmp_path, depot):
    version = make(depot.folder)
    with between(tmp_path, lambda n, f: f if n < 6 else None) as address, pytest.raises(
        Unreachable
    ):
        puller(tmp_path, address, patience_s=0.5).fetch(version)
    part = tmp_path / "cache" / version.checksum / "model.safetensors.part"
    have = part.stat().st_size
    assert have >= 3 * PIECE
    got = puller(tmp_path)
    same(tmp_path, version, got.fetch(version))
    manifest = (depot.folder / "default/default/1/manifest.json").stat().st_size
    whole = (depot.folder / "default/default/1/model.safetensors").stat().st_size
    assert got.num_bytes == manifest + whole - have, "only what was missing came"


def test_a_part_that_went_bad_on_the_disk_is_fetched_once_more(tmp_path, depot):
    version = make(depot.folder)
    folder = tmp_path / "cache" / version.checksum
    folder.mkdir(parents=True)
    (folder / "model.safetensors.part").write_bytes(b"x" * 3 * PIECE)
    same(tmp_path, version, puller(tmp_path).fetch(version))


def test_a_file_that_is_not_what_its_manifest_says_is_refused_by_name(tmp_path, depot):
    version = make(depot.folder)
    file = depot.folder / "default/default/1/model.safetensors"
    file.write_bytes(b"y" * file.stat().st_size)
    with pytest.raises(VersionError, match=r"model.safetensors is corrupt"):
        puller(tmp_path).fetch(version)
    (depot.folder / "default/default/1/manifest.json").write_text("{}")
    with pytest.raises(VersionError, match="not the announced one"):
        puller(tmp_path).fetch(version)


def test_a_version_that_the_trainer_has_no_more_is_no_refusal(tmp_path, depot):
    with pytest.raises(Unreachable, match=r"manifest\.json"):
        puller(tmp_path).fetch(Version("default", "default", 9, None, "0" * 64, path="/x"))


def test_the_cache_is_bounded_and_keeps_what_was_used_last(tmp_path, depot):
    made = [make(depot.folder, n) for n in range(1, 7)]
    got = puller(tmp_path, gb=0.0016)  # three of half a megabyte
    for version in made:
        got.fetch(version)
    kept = {f.name for f in (tmp_path / "cache").iterdir() if f.is_dir()}
    assert kept == {v.checksum for v in made[-3:]}
    with pytest.raises(VersionError, match="cache_gb"):
        got.fetch(make(depot.folder, 7, size=2_000_000))


@pytest.mark.parametrize("fields", [
    {"file": "../../../secret"}, {"file": "/etc/passwd"}, {"file": "other.txt"}, {"owner": ".."},
    {"number": "../.."}, {"offset": -1}, {"size": 0}, {"size": 1 << 40}, {"adapter": None},
], ids=str)
def test_the_depot_gives_out_nothing_but_files_of_versions(tmp_path, depot, fields):
    make(depot.folder)
    (tmp_path / "secret").write_text("secret")
    (depot.folder / "default/default/1/other.txt").write_text("not in the manifest")
    good = {"owner": "default", "adapter": "default", "number": 1, "file": "model.safetensors",
            "offset": 0, "size": PIECE}
    context = zmq.Context()
    socket = wire.open_socket(context, zmq.DEALER, f"ipc://{tmp_path}/w", bind=False)
    for asked, type in ((good | fields, "error"), (good, "piece")):
        socket.send_multipart(wire.encode(wire.Message("piece", "q", asked)))
        assert socket.poll(3000)
        answer = wire.decode(socket.recv_multipart())
        assert (answer.type, answer.id) == (type, "q")
    socket.send_multipart([b"garbage"])
    assert socket.poll(3000)
    context.destroy(0)


# --- a worker process ------------------------------------------------------------------------


def lies_at_the_trainer(root, version):
    """The record as another host sees it: the path is there, not here."""
    here = root / "default/default" / str(version.number)
    assert here.is_dir()
    return Version(version.owner, version.adapter, version.number, version.parent,
                   version.checksum, kind=version.kind, path=f"/elsewhere/{version.number}")


def test_a_worker_on_another_host_serves_what_it_pulled_and_catches_up(
    model_dir, other_dir, tmp_path
):
    root = tmp_path / "trainer"
    places = [root / "default/default" / str(n) for n in (1, 2, 3)]
    lora = [lora_version(p, n, model_dir) for n, p in enumerate(places[:2], 1)]
    full = full_version(places[2], 3, other_dir, canary_of(plain(other_dir), 32))
    actor = FakeActor(tmp_path)
    actor.addresses["weights"] = f"ipc://{tmp_path}/w"
    config = {"worker": {"slots": 2, "context": 200, "threads": 1, "cache": str(tmp_path / "c")},
              "rollout": {"max_tokens": 16}, "wire": {"heartbeat_s": 0.3, "dead_after_s": 1.0}}
    actor.start(model_dir, config)
    try:
        # nobody gives it out yet: that is no refusal, and serving goes on
        actor.announce(lies_at_the_trainer(root, lora[0]))
        actor.generate("before", [5, 6], max_tokens=4, temperature=0)
        assert len(actor.ids("before")) == 4
        until_log(actor, "is not here yet")
        assert not [m for m in actor.inbox if m.type == "version.refused"]
        depot = Depot(root, actor.addresses["weights"])
        # it was away for version 1: it is told of the newest
        actor.send(wire.record_message("version.load", lies_at_the_trainer(root, lora[1])))
        assert actor.wait("version.loaded", number=2)["mismatch_max"] < 1e-4
        served(actor, "two", plain_lora(model_dir, lora[1]), 2)
        back = Version("default", "default", 0, None, "", kind="lora")
        actor.send(wire.record_message("version.load", back))
        actor.wait("version.loaded", number=0)
        actor.announce(lies_at_the_trainer(root, full))
        assert actor.wait("version.loaded", number=3)["mismatch_max"] < 1e-4
        served(actor, "three", plain(other_dir), 3)
        depot.close()
    finally:
        actor.close()
    pulled = tmp_path / "c" / full.checksum / "model.safetensors"
    assert hashlib.sha256(pulled.read_bytes()).digest() == hashlib.sha256(
        (places[2] / "model.safetensors").read_bytes()).digest()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_is_killed_at_a_pull_serves_the_version_once_it_is_back(
    model_dir, tmp_path, monkeypatch, when
):
    version = lora_version(tmp_path / "t/default/default/1", 1, model_dir)
    point = f"worker.pull.{when}"
    monkeypatch.setenv(faults.ARM, f"{point}=kill")
    monkeypatch.setenv(faults.FOLDER, str(tmp_path))
    actor = FakeActor(tmp_path)
    actor.addresses["weights"] = f"ipc://{tmp_path}/w"
    config = {"worker": {"slots": 2, "context": 200, "threads": 1, "cache": str(tmp_path / "c")},
              "rollout": {"max_tokens": 16}, "wire": {"heartbeat_s": 0.3, "dead_after_s": 2.0}}
    depot = Depot(tmp_path / "t", actor.addresses["weights"])
    told = wire.record_message("version.load", lies_at_the_trainer(tmp_path / "t", version))
    try:
        actor.start(model_dir, config)
        actor.send(told)
        assert actor.process.wait(60) == -signal.SIGKILL and (tmp_path / point).exists()
        actor.start(model_dir, config)
        actor.send(told)
        assert actor.wait("version.loaded", number=1)["mismatch_max"] < 1e-4
    finally:
        depot.close()
        actor.close()


def until_log(actor, words):
    for _ in range(100):
        if words in actor.log:
            return
        actor.receive(0.1)
    raise AssertionError(actor.log)


def served(actor, id, model, number):
    actor.generate(id, [5, 6, 7], max_tokens=6)
    got, _ = actor.arrays(id)
    assert set(got["versions"]) == {number}
    truth = plain_logps(model, [5, 6, 7, *got["ids"]])[2:]
    np.testing.assert_allclose(got["logps"], truth[np.arange(6), got["ids"]], atol=1e-4)
