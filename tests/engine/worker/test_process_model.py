"""A real worker process with a real (tiny, random) model."""

import time

import numpy as np
import pytest
from process_doubles import FakeActor
from worker_doubles import canary_of, full_version, plain, plain_logps

from claw.engine import wire
from claw.engine.wire import Message
from claw.records import Version

CONFIG = {
    "worker": {"slots": 4, "queue": 8, "context": 500, "device": "cpu", "threads": 1},
    "rollout": {"max_tokens": 100}, "wire": {"heartbeat_s": 0.3},
}


@pytest.fixture(scope="module")
def actor(model_dir, tmp_path_factory):
    actor = FakeActor(tmp_path_factory.mktemp("wire"))
    actor.hello = actor.start(model_dir, CONFIG)
    yield actor
    actor.close()


def test_a_model_worker_streams_scores_and_swaps_without_dropping_a_request(
    actor, model_dir, other_dir, tmp_path
):
    assert actor.hello["vocab_size"] == 300 and actor.hello["context"] == 500
    prompts = {f"r{i}": list(range(3 + i, 20 + 3 * i)) for i in range(4)}
    for id, prompt in prompts.items():
        actor.generate(id, prompt, max_tokens=400, temperature=0.8, top_p=0.9, seed=1)
    started = time.monotonic()
    first = actor.wait("generate.chunk", "r0", start=0)
    actor.inbox.insert(0, first)
    first_s = time.monotonic() - started
    actor.announce(full_version(tmp_path / "v1", 1, other_dir, canary_of(plain(other_dir))))
    broken = Version("default", "default", 2, 1, "0" * 64, path=str(tmp_path / "v1"))
    loaded = actor.wait("version.loaded", number=1)
    assert loaded["mismatch_max"] < 1e-4
    actor.send(wire.record_message("version.load", broken))
    assert "announced" in actor.wait("version.refused", number=2)["why"]
    models, seen = {0: plain(model_dir), 1: plain(other_dir)}, set()
    for id, prompt in prompts.items():
        chunks, end = actor.reply(id)
        got = {n: np.concatenate([c.arrays[n] for c in chunks])
               for n in chunks[0].arrays}
        assert end["finish_reason"] == "length" and len(got["ids"]) == 400
        assert got["kept_counts"].sum() == len(got["kept_ids"])
        seen |= set(got["versions"].tolist())
        for number, model in models.items():
            truth = plain_logps(model, [*prompt, *got["ids"]], 0.8)[len(prompt) - 1 :]
            at = np.flatnonzero(got["versions"] == number)
            np.testing.assert_allclose(got["logps"][at], truth[at, got["ids"][at]], atol=1e-4)
    assert seen == {0, 1}
    assert first_s < (time.monotonic() - started) / 4, "the first chunk comes early"
    ids = np.arange(3, 60, dtype=np.int32)
    actor.send(Message("score", "s", {"owner": "default", "adapter": "default",
                                      "temperature": 1.0, "topk": 4}, {"ids": ids}))
    scored = actor.wait("score.done", "s")
    assert scored["version"] == 1 and scored.arrays["topk_ids"].shape == (56, 4)
    truth = plain_logps(models[1], ids)
    np.testing.assert_allclose(scored.arrays["logps"], truth[np.arange(56), ids[1:]], atol=1e-4)


def test_a_bad_request_never_reaches_the_model(actor):
    actor.generate("bad", [5, 300])
    assert actor.wait("generate.error", "bad")["code"] == "bad_request"
    actor.generate("good", [5, 299], max_tokens=3)
    assert len(actor.ids("good")) == 3


def test_heartbeats_and_stop_work_beside_the_model(actor):
    actor.generate("long", [5, 6], max_tokens=450)
    actor.wait("worker.beat", running=1)
    actor.send(Message("stop"))
    assert actor.process.wait(15) == 0
