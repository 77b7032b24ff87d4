"""An engine in a process of its own: its requests, its versions, and its death."""

import os
import subprocess
import sys
import time
from pathlib import Path

import fake_engine
import numpy as np
import pytest
from fake_engine import VOCAB, make_fake, write_adapter, write_weights
from process_doubles import FakeActor
from worker_doubles import Driver, request, score_request

from claw import config as settings
from claw.engine import versions as disk
from claw.engine.versions import VersionError
from claw.engine.worker.backend import Busy, EngineLost
from claw.engine.worker.hosted import HostedBackend
from claw.engine.worker.loader import check
from claw.engine.worker.shelf import MAX_HELD
from claw.errors import ClawError, UsageError
from claw.records import FinishReason, Version

pytestmark = pytest.mark.timeout(60)

PROMPTS = [[5], [10, 11], [40], [60]]


def start(folder: Path, slots: int = 4, **sglang: object) -> HostedBackend:
    config = settings.parse({
        "worker": {"kind": "sglang", "slots": slots}, "lora": {"rank": 4},
        "sglang": {"python": sys.executable, "stall_s": 60.0, "start_s": 30.0} | sglang})
    return HostedBackend(config, folder, "fake_engine")


@pytest.fixture(autouse=True)
def the_engines_python_finds_the_fake(monkeypatch):
    here = str(Path(fake_engine.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


def test_a_worker_that_is_to_get_weights_through_a_group_must_know_the_trainer(tmp_path):
    config = settings.parse({"worker": {"kind": "sglang"}, "lora": {"rank": 0},
                             "sglang": {"weights": "group"}})
    with pytest.raises(UsageError, match="--weights"):
        HostedBackend(config, make_fake(tmp_path), "fake_engine")


@pytest.fixture
def engine(tmp_path):
    """Start engines and end them."""
    made = []

    def make(slots: int = 4, sglang: dict | None = None, **ways) -> Driver:
        folder = make_fake(tmp_path / f"model{len(made)}", **ways)
        made.append(start(folder, slots, **(sglang or {})))
        return Driver(made[-1])

    yield make
    for backend in made:
        backend.close()


def finish(driver, *requests, seconds=20.0):
    until = time.monotonic() + seconds
    while any(driver.got[r.id].end is None for r in requests):
        driver.step()
        assert time.monotonic() < until, [driver.got[r.id].end for r in requests]
    return [driver.got[r.id] for r in requests]


def run(driver, *requests):
    driver.submit(*requests)
    return finish(driver, *requests)


def begin(driver, *requests):
    """Submit, and wait until each has said something."""
    driver.submit(*requests)
    until = time.monotonic() + 20
    while not all(len(driver.got[r.id].ids) for r in requests):
        driver.step()
        assert time.monotonic() < until


def load(driver, version, seconds=20.0):
    """What the model's loop does: ask again while the backend is busy."""
    manifest, until = check(version), time.monotonic() + seconds
    while True:
        try:
            return driver.backend.load(version, manifest)
        except Busy:
            driver.step()
        assert time.monotonic() < until, "the version does not load"


def publish(folder, number, kind, canary=None):
    if canary is not None:
        disk.write_canary(folder, *canary)
    checksum = disk.write_manifest(folder, owner="default", adapter="default", number=number,
                                   parent=number - 1, kind=kind, step=number)
    return Version("default", "default", number, number - 1, checksum, kind=kind, path=str(folder))


def canary_of(w):
    ids = np.array([[3, 4, 5, 6], [9, 8, 7, 6]], np.int32)
    return ids, (-w - ids[:, 1:] / 1000).astype(np.float32)


def full(folder, number, w, canary=True):
    write_weights(folder, w, **{f"{fake_engine.LAYER}.weight": np.zeros((6, 5), np.float32)})
    return publish(folder, number, "full", canary_of(w) if canary else None)


def lora(folder, number, w, canary=True, **changes):
    write_adapter(folder, w, **changes)
    return publish(folder, number, "lora", canary_of(w) if canary else None)


def weights_of(got):
    """The number that each token's log-prob betrays."""
    return np.round(-got.logps - got.ids / 1000, 3).tolist()


# --- requests --------------------------------------------------------------------------------


def test_requests_run_together_and_come_back_in_order_with_all_arrays(engine):
    driver = engine()
    requests = [request(p, max_tokens=20, logprobs_k=2) for p in PROMPTS]
    for prompt, got in zip(PROMPTS, run(driver, *requests), strict=True):
        assert got.ids.tolist() == [prompt[-1] + i for i in range(1, 21)]
        assert got.topk_ids.shape == (20, 2) and got.versions.tolist() == [0] * 20
        assert got.end.finish_reason == FinishReason.LENGTH
        assert len(got.starts) < 20, "tokens are sent a few at a time"
        assert len(got.arrays["ids"][0]) == 1, "the first one alone, at once"
    assert driver.backend.status().tokens == 80 and driver.backend.status().running == 0


def test_stop_ids_and_the_context_end_a_reply(engine):
    driver = engine()
    stopped, longest = run(driver, request([5], ignore_eos=False, stop_ids=[9]),
                           request([7] * 250, max_tokens=50))
    assert stopped.ids.tolist() == [6, 7, 8, 9]
    assert stopped.end.finish_reason == FinishReason.STOP
    assert len(longest.ids) == 6 and longest.end.finish_reason == FinishReason.LENGTH


def test_a_cancel_and_a_deadline_end_requests_with_what_they_have(engine):
    driver = engine()
    doomed, late, other = (request([5], max_tokens=250), request(
        [6], max_tokens=250, seconds=0.3), request([7], max_tokens=100))
    begin(driver, doomed, late, other)
    driver.backend.cancel(doomed.id)
    driver.backend.cancel("nobody")
    got, missed, whole = finish(driver, doomed, late, other)
    assert got.end.finish_reason == FinishReason.CANCELLED and 0 < len(got.ids) < 250
    assert missed.end.code == "deadline" and 0 < len(missed.ids) < 250
    assert len(whole.ids) == 100


def test_an_answer_that_is_not_usable_ends_its_request_only(engine):
    driver = engine(gives_up_at=20)
    bad, good = run(driver, request([15], max_tokens=20), request([30], max_tokens=20))
    assert bad.end.code == "engine" and "nan" in bad.end.message
    assert bad.ids.tolist() == [16, 17, 18, 19] and len(good.ids) == 20


def test_requests_that_were_failed_together_are_heard_of_no_more(engine):
    driver = engine()
    begin(driver, *(request(p, max_tokens=200, id=f"all{i}") for i, p in enumerate(PROMPTS)))
    ended = driver.backend.fail_all("engine", "a reason")
    assert sorted(e.id for e in ended) == [f"all{i}" for i in range(4)]
    after = request([9], max_tokens=40)
    driver.submit(after)
    events, until = [], time.monotonic() + 20
    while after.id in driver.backend.waiting and time.monotonic() < until:
        events += driver.backend.step()
    assert {e.id for e in events} == {after.id}


def test_scores_are_served_at_temperature_one_and_refused_at_others(engine):
    driver = engine(w=2.0)
    scored, greedy, hot = run(driver, score_request([5, 6, 9], topk=3),
                              score_request([5, 6], temperature=0.0),
                              score_request([5, 6], temperature=0.5))
    np.testing.assert_allclose(scored.end.logps, [-2.006, -2.009], atol=1e-6)
    assert scored.end.topk_ids.shape == (2, 3) and len(greedy.end.logps) == 1
    assert hot.end.code == "bad_request" and "temperature is 0.5" in hot.end.message


# --- full weights ----------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [False, True], ids=["from the folder", "read before"])
def test_a_full_swap_happens_between_tokens_and_every_stamp_is_true(engine, tmp_path, reads):
    driver = engine(w=1.0, reads=reads)
    requests = [request(p, max_tokens=150) for p in PROMPTS]
    begin(driver, *requests)
    score = score_request([5, 6, 7])
    driver.submit(score)
    loaded = load(driver, full(tmp_path / "v1", 1, 2.0))
    assert (loaded.number, loaded.mismatch_max < 1e-6) == (1, True)
    assert driver.backend.status().versions == (("default", "default", 1),)
    for prompt, got in zip(PROMPTS, finish(driver, *requests), strict=True):
        assert got.ids.tolist() == [(prompt[-1] + i) % VOCAB for i in range(1, 151)]
        assert set(got.versions) == {0, 1} and (np.diff(got.versions) >= 0).all()
        assert weights_of(got) == [1.0 + v for v in got.versions]
    number = finish(driver, score)[0].end.version
    assert finish(driver, score)[0].end.logps[0] == np.float32(-1.006 - number)


def test_a_refused_version_leaves_no_token_and_the_old_weights(engine, tmp_path):
    driver = engine(w=1.0, refuses=7.0)
    r = request([5], max_tokens=200)
    begin(driver, r)
    wrong = publish(write_weights(tmp_path / "a", 2.0, **{
        f"{fake_engine.LAYER}.weight": np.zeros((6, 5), np.float32)}), 1, "full", canary_of(3.0))
    with pytest.raises(VersionError, match=r"canary.*\n.*nats"):
        load(driver, wrong)
    with pytest.raises(VersionError, match="its own words"):
        load(driver, full(tmp_path / "b", 2, 7.0))
    got, = finish(driver, r)
    assert set(got.versions) == {0} and set(weights_of(got)) == {1.0} and len(got.ids) == 200
    after, = run(driver, request([9]))
    assert set(weights_of(after)) == {1.0} and set(after.versions) == {0}


def test_an_engine_that_does_not_hold_what_it_loaded_is_caught_by_the_tensor(engine, tmp_path):
    """Also when the canary would not see it."""
    driver = engine(w=1.0, tells=True, off_by={"2.0": 1e-3})
    with pytest.raises(VersionError, match=r"does not hold(?s:.)*w: checksum"):
        load(driver, full(tmp_path / "a", 1, 2.0))
    got, = run(driver, request([9]))
    assert set(weights_of(got)) == {1.0} and set(got.versions) == {0}
    load(driver, full(tmp_path / "b", 2, 3.0))
    with pytest.raises(VersionError, match=r"nats apart; every tensor is the trainer's own"):
        load(driver, publish(write_weights(tmp_path / "c", 4.0, **{
            f"{fake_engine.LAYER}.weight": np.zeros((6, 5), np.float32)}), 3, "full",
            canary_of(5.0)))
    got, = run(driver, request([9]))
    assert set(weights_of(got)) == {3.0} and set(got.versions) == {2}


def test_an_engine_whose_old_weights_do_not_come_back_serves_no_more(engine, tmp_path):
    driver = engine(w=1.0, tells=True, off_by={"2.0": 1.0, "1.0": 0.5})
    with pytest.raises(EngineLost, match=r"did not come back(?s:.)*w: checksum"):
        load(driver, full(tmp_path / "a", 1, 2.0))


def test_the_first_weights_come_back(engine, tmp_path):
    driver = engine(w=1.0)
    load(driver, full(tmp_path / "v1", 1, 2.0))
    load(driver, Version("default", "default", 0, None, ""))
    got, = run(driver, request([9]))
    assert set(weights_of(got)) == {1.0} and set(got.versions) == {0}


def test_a_cancel_in_the_middle_of_a_swap_is_not_lost(engine, tmp_path):
    driver = engine(load_s=0.5)
    r = request([5], max_tokens=200)
    begin(driver, r)
    version = full(tmp_path / "v1", 1, 2.0)
    with pytest.raises(Busy):
        driver.backend.load(version, check(version))
    time.sleep(0.2)
    driver.backend.cancel(r.id)
    got, = finish(driver, r)
    assert got.end.finish_reason == FinishReason.CANCELLED and set(got.versions) == {0}
    load(driver, version)


def test_a_cancel_while_a_swap_takes_its_request_out_is_not_lost(engine, tmp_path):
    driver = engine(pace_s=0.3)
    r = request([5], max_tokens=200)
    begin(driver, r)
    version = full(tmp_path / "v1", 1, 2.0)
    with pytest.raises(Busy):
        driver.backend.load(version, check(version))
    driver.backend.cancel(r.id)  # heard before the engine's next token
    got, = finish(driver, r)
    assert got.end.finish_reason == FinishReason.CANCELLED and set(got.versions) == {0}


def test_weights_of_another_architecture_are_refused_by_the_tensor(engine, tmp_path):
    driver = engine()
    folder = write_weights(tmp_path / "a", 2.0, strange=np.zeros(3, np.float32))
    with pytest.raises(VersionError, match="strange"):
        load(driver, publish(folder, 1, "full"))
    folder = write_weights(tmp_path / "b", 2.0)
    with pytest.raises(VersionError, match=r"missing\n.*q_proj"):
        load(driver, publish(folder, 1, "full"))


# --- adapters --------------------------------------------------------------------------------


def test_new_requests_use_the_new_adapter_and_running_ones_finish_on_theirs(engine, tmp_path):
    driver = engine(w=1.0, slots=6)
    requests = []
    for number in range(3):
        if number:
            load(driver, lora(tmp_path / f"v{number}", number, 1.0 + number))
        requests.append(request([5 + number], max_tokens=120))
        begin(driver, requests[-1])
    for number, got in enumerate(finish(driver, *requests)):
        assert set(got.versions) == {number} and set(weights_of(got)) == {1.0 + number}
    load(driver, Version("default", "default", 0, None, "", kind="lora"))
    got, = run(driver, request([9]))
    assert set(weights_of(got)) == {1.0}, "back to the base"


def test_many_swaps_leave_one_adapter_in_the_engine(engine, tmp_path):
    driver = engine(most_adapters=3)  # the one in use, the newest, and the one that comes in
    long = request([5], max_tokens=200)
    for number in range(1, 13):
        load(driver, lora(tmp_path / f"v{number}", number, 1.0 + number))
        if number == 1:
            begin(driver, long)
        got, = run(driver, request([9], max_tokens=3))
        assert set(weights_of(got)) == {1.0 + number}
    got, = finish(driver, long)
    assert set(got.versions) == {1} and set(weights_of(got)) == {2.0}


def test_a_version_waits_while_too_many_older_ones_are_in_use(engine, tmp_path):
    driver = engine(slots=MAX_HELD + 1, pace_s=0.01)
    versions = [lora(tmp_path / f"v{n}", n, 1.0 + n) for n in range(1, MAX_HELD + 2)]
    requests = [request([5], max_tokens=60 + 40 * n) for n in range(MAX_HELD)]
    for version, r in zip(versions, requests, strict=False):
        load(driver, version)
        begin(driver, r)
    with pytest.raises(Busy):
        driver.backend.load(versions[-1], check(versions[-1]))
    assert driver.got[requests[0].id].end is None
    load(driver, versions[-1])
    assert driver.got[requests[0].id].end is not None, "it waited for the first to end"
    finish(driver, *requests)


@pytest.mark.parametrize(("changes", "words"), [
    (dict(layer="model.layers.7.q_proj"), "no such layer"),
    (dict(rank=8), "rank is larger"),
    (dict(use_dora=True), "use_dora"),
    (dict(use_rslora=True), "use_rslora"),
    (dict(alpha_pattern={"q_proj": 4}), "alpha_pattern"),
    (dict(peft_type="IA3"), "not a LoRA"),
])
def test_adapters_that_cannot_be_served_are_refused_by_name(engine, tmp_path, changes, words):
    driver = engine(w=1.0)
    with pytest.raises(VersionError, match=words):
        load(driver, lora(tmp_path / "v", 1, 2.0, **changes))
    got, = run(driver, request([9]))
    assert set(weights_of(got)) == {1.0} and set(got.versions) == {0}


def test_the_canary_refuses_an_adapter_whose_update_was_lost(engine, tmp_path):
    driver = engine(w=1.0)
    write_adapter(tmp_path / "v", 1.0)
    with pytest.raises(VersionError, match="canary"):
        load(driver, publish(tmp_path / "v", 1, "lora", canary_of(2.0)))
    got, = run(driver, request([9]))
    assert set(weights_of(got)) == {1.0}


# --- the engine's death ----------------------------------------------------------------------


def gone(folder, words, **sglang):
    with pytest.raises(ClawError) as caught:
        start(folder, **sglang)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_an_engine_that_dies_at_its_start_says_why_in_its_own_words(tmp_path):
    folder = make_fake(tmp_path / "m", dies_at_start="no kernel for this device")
    gone(folder, ["died at its start", "exit code 7", "RuntimeError: no kernel for this device"])


def test_an_engine_that_does_not_come_up_is_not_waited_for(tmp_path):
    gone(make_fake(tmp_path / "m", starts_in_s=30), ["did not come up", "start_s"], start_s=1.0)


def test_a_python_that_is_not_there_is_named(tmp_path):
    folder = make_fake(tmp_path / "m")
    gone(folder, ["/nowhere/python", "sglang.python"], python="/nowhere/python")


def test_another_claw_in_the_engines_environment_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("claw.engine.process.__version__", "9.9")
    gone(make_fake(tmp_path / "m"), ["another claw", "9.9"])


def test_an_engine_that_dies_later_ends_every_request_with_its_own_words(engine):
    driver = engine(dies_after=30)
    requests = [request(p, max_tokens=100) for p in PROMPTS]
    driver.submit(*requests)
    with pytest.raises(EngineLost, match="out of memory in the scheduler") as caught:
        finish(driver, *requests)
    ended = driver.backend.fail_all("engine", str(caught.value))
    assert {e.id for e in ended} == {r.id for r in requests}
    assert {e.code for e in ended} == {"engine"} and not driver.backend.waiting


def test_an_engine_that_stops_answering_is_given_up(engine):
    driver = engine(hangs_after=10, sglang={"stall_s": 1.5})
    r = request([5], max_tokens=100)
    driver.submit(r)
    with pytest.raises(EngineLost, match="stopped answering"):
        finish(driver, r)


def test_a_process_that_freezes_is_given_up(engine, monkeypatch):
    monkeypatch.setattr("claw.engine.worker.hosted.SILENT_S", 2.0)
    driver = engine(freezes_after=10)
    r = request([5], max_tokens=100)
    driver.submit(r)
    with pytest.raises(EngineLost, match="silent"):
        finish(driver, r)


def test_no_engine_outlives_its_backend(engine):
    driver = engine()
    begin(driver, request([5], max_tokens=200))
    pid = driver.backend.child.popen.pid
    driver.backend.close()
    assert driver.backend.child.has_died()
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


# --- in a worker process ---------------------------------------------------------------------


def fake_python(folder: Path) -> str:
    """A "python" that runs the fake engine whatever module it is asked to run."""
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m fake_engine "$3" "$4"\n')
    script.chmod(0o755)
    return str(script)


def worker_config(folder: Path) -> dict:
    return {"worker": {"kind": "sglang", "slots": 4}, "sglang": {"python": fake_python(folder)},
            "wire": {"heartbeat_s": 0.3}}


def test_a_worker_whose_engine_dies_says_so_and_ends(tmp_path):
    actor = FakeActor(tmp_path)
    actor.start(make_fake(tmp_path / "m", dies_after=40), worker_config(tmp_path))
    for id in ("a", "b"):
        actor.generate(id, [5], max_tokens=200)
    ends, until = {}, time.monotonic() + 20
    while len(ends) < 2 and time.monotonic() < until:
        actor.receive(0.2)
        ends = {m.id: m for m in actor.inbox if m.type == "generate.error"}
    assert actor.process.wait(10) == 1
    assert {m["code"] for m in ends.values()} == {"engine"} and len(ends) == 2
    assert all("out of memory in the scheduler" in m["message"] for m in ends.values())
    assert "out of memory in the scheduler" in actor.log
    assert "failed (1 in a row)" not in actor.log, "it does not try again"
    actor.close()


def test_an_engine_ends_with_its_worker_even_when_that_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    actor = FakeActor(tmp_path)
    actor.start(make_fake(tmp_path / "m"), worker_config(tmp_path))
    children = Path(f"/proc/{actor.process.pid}/task").glob("*/children")
    pids = [int(pid) for file in children for pid in file.read_text().split()]
    assert pids
    actor.process.kill()
    until = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(is_alive(pid) for pid in pids)
    left, = tmp_path.glob("claw-engine-*")
    actor.start(tmp_path / "m", worker_config(tmp_path), name="next")
    assert not left.exists() and len(list(tmp_path.glob("claw-engine-*"))) == 1
    actor.process.terminate()
    assert actor.process.wait(15) == 0
    assert not list(tmp_path.glob("claw-*")), "a polite end leaves nothing"
    actor.close()


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_the_command_line_joins_with_an_engine_of_another_environment(tmp_path):
    actor, model = FakeActor(tmp_path), make_fake(tmp_path / "m")
    (model / "tokenizer.json").write_text("{}")
    actor.process = subprocess.Popen(
        [sys.executable, "-m", "claw", "worker", "sglang", "--connect", actor.addresses["actor"],
         "--model", str(model), "--name", "one-more", f"sglang.python={fake_python(tmp_path)}"],
        stderr=(tmp_path / "log").open("ab"))
    hello = actor.wait("worker.hello")
    assert (hello["kind"], actor.worker) == ("sglang", b"one-more")
    assert hello["device"] == "cpu"
    actor.generate("a", [5], max_tokens=3)
    assert actor.ids("a") == [6, 7, 8]
    actor.close()
