"""A real worker process with the scripted backend: the protocol, whatever the model is."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from process_doubles import FakeActor

from claw.engine import wire
from claw.engine.wire import Message
from claw.records import Version, VersionStatus

pytestmark = pytest.mark.timeout(60)

CONFIG = {
    "worker": {"kind": "scripted", "slots": 2, "queue": 2, "context": 600, "deadline_s": 60},
    "rollout": {"max_tokens": 100}, "wire": {"heartbeat_s": 0.3, "dead_after_s": 1.5},
}


def start(folder):
    """A worker that says a token each 20 ms."""
    (folder / "script.json").write_text(json.dumps({"pace_s": 0.02}))
    actor = FakeActor(folder)
    actor.hello = actor.start(folder, CONFIG)
    return actor


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Shared by the tests that leave it alive."""
    actor = start(tmp_path_factory.mktemp("shared"))
    yield actor
    actor.close()


@pytest.fixture
def ending(tmp_path):
    """For tests that end the worker or the actor."""
    actor = start(tmp_path)
    yield actor
    actor.close()


def test_a_worker_says_hello_beats_and_answers(slow):
    hello = slow.hello.fields
    assert hello | {"pid": 0} == {
        "kind": "scripted", "model": "smollm2-135m", "vocab_size": 257, "context": 600,
        "slots": 2, "queue": 2, "device": "", "pid": 0, "versions": [["default", "default", 0]],
    }
    assert hello["pid"] == slow.process.pid
    slow.generate("a0", b"hello", temperature=0, ignore_eos=False, logprobs_k=3)
    chunks, end = slow.reply("a0")
    arrays = {n: np.concatenate([c.arrays[n] for c in chunks]) for n in chunks[0].arrays}
    assert bytes(arrays["ids"][:-1].tolist()) == b"hello" and end["finish_reason"] == "stop"
    assert arrays["topk_ids"].shape == (6, 3) and arrays["versions"].tolist() == [0] * 6
    assert [c["start"] for c in chunks] == list(range(6))
    np.testing.assert_allclose(np.exp(arrays["logps"]), 0.9, atol=1e-6)
    slow.generate("b0", b"hello", max_tokens=40)
    slow.wait("worker.beat", running=1)
    slow.reply("b0")


def test_a_request_id_runs_once_also_when_it_has_ended(slow):
    for _ in range(3):
        slow.generate("a1", b"xy", max_tokens=10)
    chunks, _ = slow.reply("a1")
    assert len(chunks) == 10
    slow.generate("a1", b"xy", max_tokens=10)
    slow.generate("b1", b"xy", max_tokens=20)
    slow.reply("b1")
    assert not [m for m in slow.inbox if m.id == "a1"]


def test_a_cancel_is_heard_at_once(slow):
    slow.generate("a2", b"xy", max_tokens=500)
    slow.wait("generate.chunk", "a2")
    slow.send(Message("cancel", "a2"))
    assert slow.wait("generate.done", "a2", timeout_s=2)["finish_reason"] == "cancelled"
    slow.send(Message("cancel", "a2"))
    slow.send(Message("cancel", "nobody"))
    slow.generate("b2", b"xy", max_tokens=2)
    slow.reply("b2")


def test_more_than_slots_and_queue_are_overloaded_and_the_rest_goes_on(slow):
    for i in range(6):
        slow.generate(f"r3.{i}", b"xy", max_tokens=30)
    for i in (4, 5):
        assert slow.wait("generate.error", f"r3.{i}")["code"] == "overloaded"
    for i in range(4):
        slow.reply(f"r3.{i}")
    slow.generate("r3.4", b"xy", max_tokens=2)
    slow.reply("r3.4")  # a refused id may be tried again


def test_a_deadline_ends_a_request_with_what_it_has(slow):
    slow.generate("a4", b"xy", max_tokens=500, deadline_s=0.5)
    chunks, end = slow.reply("a4", "generate.error")
    assert end["code"] == "deadline" and 3 < len(chunks) < 100


BAD = {
    "empty prompt": ({}, []), "id beyond the vocabulary": ({}, [1, 257]),
    "negative id": ({}, [-1]), "longer than the context": ({}, [1] * 600),
    "nan temperature": ({"temperature": float("nan")}, [1]),
    "negative temperature": ({"temperature": -1.0}, [1]),
    "infinite temperature": ({"temperature": float("inf")}, [1]),
    "temperature in words": ({"temperature": "hot"}, [1]),
    "top_p 0": ({"top_p": 0.0}, [1]), "top_p 2": ({"top_p": 2.0}, [1]),
    "negative top_k": ({"top_k": -1}, [1]), "top_k beyond the vocabulary": ({"top_k": 258}, [1]),
    "k beyond the vocabulary": ({"logprobs_k": 258}, [1]),
    "no tokens": ({"max_tokens": 0}, [1]), "half a token": ({"max_tokens": 1.5}, [1]),
    "huge seed": ({"seed": 2**63}, [1]), "unknown setting": ({"min_p": 0.1}, [1]),
}


def test_bad_requests_get_bad_request_and_others_go_on(slow):
    slow.generate("good5", b"xy", max_tokens=100)
    sampling, _ = wire.pack(wire.records.Sampling())
    for name, (change, prompt) in BAD.items():
        slow.send(Message("generate", name, {"sampling": sampling | change},
                          {"prompt_ids": np.array(prompt, np.int32)}))
    one = np.array([1, 2], np.int32)
    others = {
        "no prompt": Message("generate", "no prompt", {"sampling": sampling}),
        "no sampling": Message("generate", "no sampling", {}, {"prompt_ids": one}),
        "floats": Message("generate", "floats", {"sampling": sampling},
                          {"prompt_ids": np.ones(3, np.float32)}),
        "a table": Message("generate", "a table", {"sampling": sampling},
                           {"prompt_ids": np.ones((1, 3), np.int32)}),
        "stop id": Message("generate", "stop id", {"sampling": sampling, "stop_ids": [999]},
                           {"prompt_ids": one}),
        "owner": Message("generate", "owner", {"sampling": sampling, "owner": 3},
                         {"prompt_ids": one}),
        "score of one": Message("score", "score of one", {}, {"ids": one[:1]}),
        "score topk": Message("score", "score topk", {"topk": 300}, {"ids": one}),
        "score nan": Message("score", "score nan", {"temperature": float("nan")}, {"ids": one}),
    }
    for message in others.values():
        slow.send(message)
    for name in [*BAD, *others]:
        error = slow.wait("generate.error", name)
        assert error["code"] == "bad_request" and error["message"], name
    assert len(slow.ids("good5")) == 100


def test_garbage_is_answered_logged_and_survived(slow):
    slow.generate("good6", b"xy", max_tokens=50)
    header = wire.encode(Message("generate", "g", {}, {"prompt_ids": np.ones(3, np.int32)}))
    for frames in ([b""], [b"\xff\xff"], [b"hello", b"world"], [bytes(header[0])],
                   [bytes(header[0]), b"abc"], [bytes(header[0]), *[b"x"] * 5],
                   wire.encode(Message("make.coffee")), wire.encode(Message("generate")),
                   wire.encode(Message("version.load")),
                   wire.encode(Message("version.load", "", {"record": {"owner": 1}})),
                   wire.encode(Message("version.load", "", {"record": 5})),
                   wire.encode(Message("generate", "sur\ud83crogate", {"sampling": "\udc9d"}))):
        slow.send_raw(*frames)
    for _ in range(11):
        assert slow.wait("error")["text"]
    assert slow.wait("generate.error", "sur\ud83crogate")["code"] == "bad_request"
    slow.pub.send_multipart([b"version", b"junk"])
    slow.pub.send_multipart([b"version"])
    slow.pub.send_multipart([b"version", *wire.encode(Message("version.announce"))])
    assert len(slow.ids("good6")) == 50
    assert "garbage" in slow.log


def test_versions_are_loaded_stamped_and_refused_by_name(slow, tmp_path):
    version = Version("default", "default", 1, 0, "", path=str(tmp_path / "nowhere"))
    slow.announce(version)
    refused = slow.wait("version.refused", number=1)
    assert "manifest.json" in refused["why"]
    rolled = Version("default", "default", 2, 0, "", status=VersionStatus.ROLLED_BACK)
    slow.send(wire.record_message("version.load", rolled))
    slow.send(wire.record_message("version.load", Version("default", "default", 0, None, "")))
    assert slow.wait("version.loaded")["number"] == 0
    assert not [m for m in slow.inbox if m.get("number") == 2]


def test_a_worker_ends_by_itself_when_the_actor_is_gone(ending):
    time.sleep(2.0)  # longer than dead_after_s: an actor with nothing to say is not gone
    assert ending.process.poll() is None
    ending.generate("a", b"xy", max_tokens=500)
    ending.wait("generate.chunk", "a")
    ending.stop_listening()
    assert ending.process.wait(15) == 1
    assert "the actor has been gone" in ending.log


def test_a_worker_finds_an_actor_that_came_back(ending):
    ending.stop_listening()
    time.sleep(0.5)
    again = FakeActor(ending.folder)
    again.process = ending.process
    assert again.wait("worker.hello")["pid"] == ending.process.pid
    again.generate("b", b"xy", max_tokens=3)
    again.reply("b")
    again.close()


def test_sigterm_ends_cleanly_and_says_what_was_running(ending):
    ending.generate("a", b"xy", max_tokens=500)
    ending.wait("generate.chunk", "a")
    ending.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + 10
    while time.monotonic() < until and not [m for m in ending.inbox if m.type == "generate.error"]:
        ending.receive(0.2)
    assert "stops" in next(m for m in ending.inbox if m.type == "generate.error")["message"]
    assert ending.process.wait(10) == 0


def test_no_orphan_stays_when_the_parent_dies(tmp_path):
    actor = FakeActor(tmp_path)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"config": CONFIG, "model_dir": str(tmp_path), "name": "w",
                                **actor.addresses}))
    parent = subprocess.Popen([sys.executable, "-c", (
        "import subprocess,sys,time;"
        f"subprocess.Popen([sys.executable,'-m','claw.engine.worker','--spec',{str(spec)!r}]);"
        "time.sleep(60)")], stderr=subprocess.DEVNULL)
    (tmp_path / "log").touch()
    pid = actor.wait("worker.hello")["pid"]
    parent.kill()
    parent.wait()
    until = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.1)
    is_zombie = os.path.exists(f"/proc/{pid}") and " Z " in Path(f"/proc/{pid}/stat").read_text()
    assert is_zombie or not os.path.exists(f"/proc/{pid}"), "the worker outlived its parent"
    actor.close()


def test_a_model_that_cannot_be_loaded_ends_the_process_with_the_reason(tmp_path):
    (tmp_path / "script.json").write_text('{"rule": "replies"}')
    actor = FakeActor(tmp_path)
    with pytest.raises(AssertionError):
        actor.start(tmp_path, CONFIG)
    assert actor.process.wait(10) == 1 and "replies" in actor.log
    actor.close()
