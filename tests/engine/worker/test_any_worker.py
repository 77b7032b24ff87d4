"""Every engine behind a worker shows the same: a real process, real messages, a real model.

The transformers backend serves a tiny random model, SGLang the real small one. One engine of each
for the whole session; a test that changes weights puts the first ones back.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from process_doubles import FakeActor
from safetensors.torch import load_file, save_file
from worker_doubles import (
    canary_of,
    full_version,
    lora_version,
    other_weights_of,
    plain,
    plain_logps,
    plain_lora,
    publish,
)

from claw import config as settings
from claw.engine import wire
from claw.engine.wire import Message
from claw.engine.worker import hosted
from claw.engine.worker.backend import EngineLost
from claw.records import Version

pytestmark = pytest.mark.timeout(600)  # the first test waits for the engine
SGLANG = pytest.param("sglang", marks=[pytest.mark.sglang, pytest.mark.real, pytest.mark.slow])
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(3, 290, n).tolist() for n in (5, 33, 1, 17)]
FIRST = Version("default", "default", 0, None, "")
TOLERANCE = 1e-4
"""nats between the worker and transformers' plain forward, float32"""


@dataclass
class Served:
    """A running worker and what it serves."""

    kind: str
    folder: Path
    actor: FakeActor
    hello: Message
    model: Any
    """the same weights in plain transformers"""

    def back_to_the_first(self, kind: str = "full") -> None:
        version = Version("default", "default", 0, None, "", kind=kind)
        self.actor.send(wire.record_message("version.load", version))
        self.actor.wait("version.loaded", number=0, timeout_s=60)


@pytest.fixture(scope="session", params=["transformers", SGLANG])
def served(request, tmp_path_factory):
    scratch = tmp_path_factory.mktemp(request.param)
    config = {"worker": {"kind": request.param, "slots": 6, "queue": 6, "context": 300,
                         "device": "cpu", "dtype": "float32", "threads": 1},
              "lora": {"rank": 8}, "rollout": {"max_tokens": 64}, "wire": {"heartbeat_s": 0.3}}
    if request.param == "sglang":
        folder = request.getfixturevalue("smollm2_dir")
        python = request.getfixturevalue("sglang_python")
        config["sglang"] = {"python": faulty(scratch, python)}
    else:
        folder = request.getfixturevalue("model_dir")
    actor = FakeActor(scratch)
    hello = actor.start(folder, config, timeout_s=280)
    yield Served(request.param, folder, actor, hello, plain(folder))
    actor.close()


def faulty(scratch: Path, python: str) -> str:
    """A "python" that runs SGLang with faults to order, whatever module it is asked to run."""
    script, here = scratch / "python", Path(__file__).parent
    script.write_text("#!/bin/sh\n"
                      f"export CLAW_SPOILT={scratch}/fault PYTHONPATH={here}:{here.parents[2]}\n"
                      f'exec {python} -m faulty_sglang "$3" "$4"\n')
    script.chmod(0o755)
    return str(script)


def truth_of(model, prompt, got, temperature=1.0):
    """Log-probs [R, V] of each sampled position, by one plain forward."""
    return plain_logps(model, [*prompt, *got["ids"]], temperature)[len(prompt) - 1 :]


def check_numbers(model, prompt, got, temperature=1.0, at=slice(None)):
    """Sampled log-probs and top-k are those of a plain forward over the same tokens."""
    truth, ids = truth_of(model, prompt, got, temperature)[at], got["ids"][at]
    np.testing.assert_allclose(got["logps"][at], truth[np.arange(len(ids)), ids], atol=TOLERANCE)
    k = got["topk_ids"].shape[1]
    best = -np.sort(-truth, axis=1)[:, :k]
    np.testing.assert_allclose(got["topk_logps"][at], best, atol=TOLERANCE)
    own = np.take_along_axis(truth, got["topk_ids"][at].astype(np.int64), 1)
    np.testing.assert_allclose(own, best, atol=TOLERANCE)


def test_it_says_what_it_is_and_beats(served):
    hello = served.hello.fields
    assert hello["device"] == ("" if served.kind == "scripted" else "cpu")
    assert (hello["kind"], hello["context"], hello["slots"]) == (served.kind, 300, 6)
    assert hello["vocab_size"] == served.model.config.vocab_size
    assert hello["pid"] == served.actor.process.pid
    assert hello["versions"] == [["default", "default", 0]]
    served.actor.wait("worker.beat", running=0)


def test_log_probs_are_those_of_plain_transformers_at_the_turns_own_temperature(served):
    temperatures = (1.0, 0.0, 0.6, 1.5)
    for i, (prompt, t) in enumerate(zip(PROMPTS, temperatures, strict=True)):
        served.actor.generate(f"n{i}", prompt, temperature=t, logprobs_k=20)
    for i, (prompt, t) in enumerate(zip(PROMPTS, temperatures, strict=True)):
        got, end = served.actor.arrays(f"n{i}")
        assert len(got["ids"]) == 12 and end["finish_reason"] == "length"
        assert got["topk_ids"].shape == (12, 20) and set(got["versions"]) == {0}
        check_numbers(served.model, prompt, got, t)
        if t == 0:
            assert got["ids"].tolist() == got["topk_ids"][:, 0].tolist()


@pytest.mark.parametrize("cut", [dict(top_p=0.8), dict(top_k=3), dict(top_k=1),
                                 dict(top_k=4, top_p=0.7)], ids=str)
def test_truncated_replies_say_what_was_kept_and_with_which_log_prob(served, cut):
    id = f"cut{cut}"
    served.actor.generate(id, PROMPTS[1], temperature=0.7, logprobs_k=2, max_tokens=6, **cut)
    got, _ = served.actor.arrays(id)
    check_numbers(served.model, PROMPTS[1], got, 0.7)
    truth = truth_of(served.model, PROMPTS[1], got, 0.7)
    kept = np.split(got["kept_ids"], np.cumsum(got["kept_counts"])[:-1])
    for row, ids, id, logp in zip(truth, kept, got["ids"], got["sampling_logps"], strict=True):
        assert id in ids and len(ids) <= cut.get("top_k", len(row))
        assert np.exp(row[ids]).sum() > cut.get("top_p", 0) - 1e-3 or "top_k" in cut
        mass = np.log(np.exp(row[ids].astype(np.float64)).sum())
        assert abs(row[id] - mass - logp) < TOLERANCE


def test_scores_are_those_of_a_plain_forward(served):
    ids = np.array([*PROMPTS[1], *PROMPTS[3]], np.int32)
    served.actor.send(Message("score", "s", {"topk": 4}, {"ids": ids}))
    scored = served.actor.wait("score.done", "s")
    truth = plain_logps(served.model, ids)
    np.testing.assert_allclose(
        scored.arrays["logps"], truth[np.arange(len(ids) - 1), ids[1:]], atol=TOLERANCE)
    np.testing.assert_allclose(
        scored.arrays["topk_logps"], -np.sort(-truth, axis=1)[:, :4], atol=TOLERANCE)
    served.actor.send(Message("score", "hot", {"temperature": 0.5}, {"ids": ids}))
    if served.kind == "sglang":  # its log-probs of given tokens are of temperature 1, always
        assert served.actor.wait("generate.error", "hot")["code"] == "bad_request"
    else:
        truth = plain_logps(served.model, ids, 0.5)
        np.testing.assert_allclose(served.actor.wait("score.done", "hot").arrays["logps"],
                                   truth[np.arange(len(ids) - 1), ids[1:]], atol=TOLERANCE)


def test_tokens_stream_and_stop_ids_end_a_reply(served):
    served.actor.generate("whole", PROMPTS[0], temperature=0, max_tokens=24)
    first = served.actor.wait("generate.chunk", "whole", start=0)
    assert not [m for m in served.actor.inbox if m.type == "generate.done"]
    served.actor.inbox.insert(0, first)
    whole = served.actor.ids("whole")
    assert len(whole) == 24 and len(first.arrays["ids"]) <= 4
    stop = whole[5]
    served.actor.generate("cut", PROMPTS[0], temperature=0, max_tokens=24, stop_ids=[stop],
                          ignore_eos=False)
    got, end = served.actor.arrays("cut")
    assert got["ids"].tolist() == whole[: whole.index(stop) + 1]
    assert end["finish_reason"] == "stop"
    served.actor.generate("on", PROMPTS[0], temperature=0, max_tokens=24, stop_ids=[stop])
    assert served.actor.ids("on") == whole, "ignore_eos ignores them"


def test_a_conversation_reuses_what_its_last_turn_computed(served):
    served.actor.generate("turn1", PROMPTS[1], session="s", temperature=0)
    said = served.actor.ids("turn1")
    prompt = [*PROMPTS[1], *said, 9, 8, 7]
    served.actor.generate("turn2", prompt, session="s", temperature=0)
    got, end = served.actor.arrays("turn2")
    assert len(PROMPTS[1]) + len(said) - 2 <= end["cached_tokens"] < len(prompt)
    check_numbers(served.model, prompt, got)


def test_cancels_and_deadlines_end_requests_with_what_they_have(served):
    served.actor.generate("doomed", PROMPTS[0], max_tokens=290)
    served.actor.generate("other", PROMPTS[3], max_tokens=30)
    served.actor.inbox.insert(0, served.actor.wait("generate.chunk", "doomed"))
    served.actor.send(Message("cancel", "doomed"))
    got, end = served.actor.arrays("doomed", timeout_s=5)
    assert end["finish_reason"] == "cancelled" and 0 < len(got["ids"]) < 290
    assert len(served.actor.ids("other")) == 30
    served.actor.generate("late", PROMPTS[0], max_tokens=290, deadline_s=0.05)
    got, end = served.actor.arrays("late", "generate.error")
    assert end["code"] == "deadline" and len(got.get("ids", ())) < 290


def test_what_would_kill_an_engine_never_reaches_it(served):
    vocab = served.hello["vocab_size"]
    served.actor.generate("good", PROMPTS[0], max_tokens=20)
    bad = {"too large": ([5, vocab], {}), "negative": ([-1], {}), "empty": ([], {}),
           "long": ([5] * 300, {}), "k": ([5], {"logprobs_k": vocab + 1}),
           "top_k": ([5], {"top_k": vocab + 1}), "hot": ([5], {"temperature": float("nan")})}
    bad = {f"bad {name}": request for name, request in bad.items()}
    for name, (prompt, sampling) in bad.items():
        served.actor.generate(name, prompt, **sampling)
    for name in bad:
        assert served.actor.wait("generate.error", name)["code"] == "bad_request", name
    assert len(served.actor.ids("good")) == 20


def test_a_reply_ends_at_the_context_and_the_longest_prompt_is_served(served):
    served.actor.generate("longest", [5] * 299, max_tokens=50)
    assert len(served.actor.ids("longest")) == 1
    ids = np.array([5, 6] * 150, np.int32)
    served.actor.send(Message("score", "longest score", {}, {"ids": ids}))
    assert len(served.actor.wait("score.done", "longest score").arrays["logps"]) == 299


def test_more_requests_than_slots_are_queued_and_then_refused(served):
    for i in range(14):
        served.actor.generate(f"q{i}", [5 + i], max_tokens=8)
    for i in (12, 13):
        assert served.actor.wait("generate.error", f"q{i}")["code"] == "overloaded"
    for i in range(12):
        assert len(served.actor.ids(f"q{i}")) == 8


# --- versions --------------------------------------------------------------------------------


def test_adapters_load_beside_running_requests_and_each_finishes_on_its_own(served, tmp_path):
    v1, v2 = (lora_version(tmp_path / f"v{n}", n, served.folder) for n in (1, 2))
    models = [served.model, plain_lora(served.folder, v1), plain_lora(served.folder, v2)]
    for number in range(3):
        if number:
            served.actor.announce((v1, v2)[number - 1])
            loaded = served.actor.wait("version.loaded", number=number)
            assert loaded["mismatch_max"] < TOLERANCE
        served.actor.generate(f"a{number}", PROMPTS[number], max_tokens=24)
        first = served.actor.wait("generate.chunk", f"a{number}")
        served.actor.inbox.insert(0, first)
    for number, prompt in enumerate(PROMPTS[:3]):
        got, _ = served.actor.arrays(f"a{number}")
        assert set(got["versions"]) == {number} and len(got["ids"]) == 24
        check_numbers(models[number], prompt, got)
    served.actor.wait("worker.beat", versions=[["default", "default", 2]])
    served.back_to_the_first("lora")
    served.actor.generate("base", PROMPTS[1])
    check_numbers(served.model, PROMPTS[1], served.actor.arrays("base")[0])


def test_an_adapter_whose_update_was_lost_is_refused_and_serving_goes_on(served, tmp_path):
    lora_version(tmp_path / "v", 1, served.folder)
    (tmp_path / "v" / "manifest.json").unlink()
    file = tmp_path / "v" / "adapter_model.safetensors"
    save_file({n: t * 0 if "lora_B" in n else t for n, t in load_file(file).items()}, file)
    served.actor.announce(publish(tmp_path / "v", 1, "lora"))
    assert "canary" in served.actor.wait("version.refused", number=1)["why"]
    served.actor.generate("after", PROMPTS[0])
    got, _ = served.actor.arrays("after")
    assert set(got["versions"]) == {0}
    check_numbers(served.model, PROMPTS[0], got)


@pytest.fixture
def other_weights(served, tmp_path):
    """A model of the same architecture with other weights, as a folder."""
    other_weights_of(served.folder, tmp_path / "other")
    return tmp_path / "other"


def swap_while_it_runs(served: Served, version: Version, model: Any, max_tokens: int = 40) -> None:
    """Requests run across the swap to `model`; each token is of the weights of its stamp."""
    names = [f"swap {version.number} {i}" for i in range(len(PROMPTS))]
    for name, prompt in zip(names, PROMPTS, strict=True):
        served.actor.generate(name, prompt, max_tokens=max_tokens, deadline_s=400)
    for name in names:
        served.actor.inbox.insert(0, served.actor.wait("generate.chunk", name))
    served.actor.announce(version)
    loaded = served.actor.wait("version.loaded", number=version.number, timeout_s=240)
    assert loaded["mismatch_max"] < TOLERANCE
    both = 0
    for name, prompt in zip(names, PROMPTS, strict=True):
        got, end = served.actor.arrays(name, timeout_s=240)
        assert end["finish_reason"] == "length" and (np.diff(got["versions"]) >= 0).all()
        for number, weights in ((0, served.model), (version.number, model)):
            check_numbers(weights, prompt, got, at=np.flatnonzero(got["versions"] == number))
        both += len(set(got["versions"])) == 2
    assert both, "requests ran across the swap"


def test_full_weights_change_between_tokens_and_every_stamp_is_exact(
    served, other_weights, tmp_path
):
    other = plain(other_weights)
    version = full_version(tmp_path / "v1", 1, other_weights, canary_of(other))
    swap_while_it_runs(served, version, other, 40 if served.kind == "sglang" else 250)
    # what the old weights computed of a prompt is not used again
    served.actor.generate("again", PROMPTS[1])
    got, _ = served.actor.arrays("again")
    assert set(got["versions"]) == {1}
    check_numbers(other, PROMPTS[1], got)
    served.back_to_the_first()
    served.actor.generate("back", PROMPTS[1])
    check_numbers(served.model, PROMPTS[1], served.actor.arrays("back")[0])


def spoil_last_byte(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)


def test_damaged_and_foreign_weights_are_refused_by_name(served, other_weights, tmp_path):
    version = full_version(tmp_path / "v", 5, other_weights, canary_of(served.model))
    file = tmp_path / "v" / "model.safetensors"
    for spoil, words in ((lambda f: None, "canary"), (spoil_last_byte, "corrupt"),
                         (Path.unlink, "missing")):
        spoil(file)
        served.actor.announce(version)
        assert words in served.actor.wait("version.refused", number=5, timeout_s=60)["why"]
    (tmp_path / "foreign").mkdir()
    save_file({"model.embed_tokens.weight": torch.zeros(3, 4)},
              tmp_path / "foreign" / "model.safetensors")
    served.actor.announce(publish(tmp_path / "foreign", 7, "full"))
    assert "another architecture" in served.actor.wait("version.refused", number=7)["why"]
    served.actor.generate("still", PROMPTS[0])
    got, _ = served.actor.arrays("still")
    assert set(got["versions"]) == {0}
    check_numbers(served.model, PROMPTS[0], got)


LAYERS = [f"model.layers.{n}.mlp.down_proj.weight" for n in (0, 1)]


@pytest.mark.parametrize("served", [SGLANG], indirect=True)
@pytest.mark.parametrize(("fault", "words"), [
    (f"swap {LAYERS[1]} {LAYERS[0]}", (LAYERS[0], "instead of")),
    (f"skip {LAYERS[1]}", (LAYERS[1], "instead of")),
    ("keep_cache", ("canary disagrees", "sequence 0", "kept of older weights")),
], ids=["swapped layers", "skipped tensor", "stale cache"])
def test_what_a_swap_of_sglang_does_wrong_without_a_word_is_caught_and_named(
    served, other_weights, tmp_path, fault, words
):
    """The same faults of the transformers worker: test_canary.py."""
    file = served.actor.folder / "fault"
    version = full_version(tmp_path / "v9", 9, other_weights, canary_of(plain(other_weights), 32))
    file.write_text(fault)
    served.actor.announce(version)
    why = served.actor.wait("version.refused", number=9, timeout_s=60)["why"]
    for word in words:
        assert word in why, why
    served.actor.generate(f"after {fault}", PROMPTS[1])
    got, _ = served.actor.arrays(f"after {fault}")
    assert set(got["versions"]) == {0}
    check_numbers(served.model, PROMPTS[1], got)


@pytest.mark.parametrize("served", [SGLANG], indirect=True)
def test_an_adapter_of_which_sglang_binds_nothing_is_caught_and_told(served, tmp_path):
    file = served.actor.folder / "fault"
    file.write_text("bind_nothing")
    served.actor.announce(lora_version(tmp_path / "v1", 1, served.folder))
    refused = served.actor.wait("version.refused", number=1, timeout_s=60)
    assert "it binds no layer" in refused["why"]
    assert refused["mismatch_max"] > 0.05 > 0


@pytest.mark.sglang
@pytest.mark.real
@pytest.mark.slow
def test_a_real_engine_that_cannot_start_says_why_in_its_own_words(
    sglang_python, smollm2_dir, tmp_path
):
    config = settings.parse({
        "worker": {"kind": "sglang", "device": "cpu"}, "lora": {"rank": 0},
        "sglang": {"python": faulty(tmp_path, sglang_python),
                   "arguments": {"no_such_argument": 1}}})
    with pytest.raises(EngineLost) as caught:
        hosted.make(config, smollm2_dir)
    assert "died at its start" in str(caught.value) and "no_such_argument" in str(caught.value)


# --- the end ---------------------------------------------------------------------------------


def descendants(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in file.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def has_died(pid: int) -> bool:
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("served", [SGLANG], indirect=True)
def test_an_engine_that_is_killed_ends_its_worker_with_a_clear_error(served):
    """The last test of this engine."""
    served.actor.generate("lost", PROMPTS[0], max_tokens=200)
    served.actor.wait("generate.chunk", "lost")
    pids = descendants(served.actor.process.pid)
    scheduler = next(p for p in pids if b"scheduler" in Path(f"/proc/{p}/cmdline").read_bytes())
    os.kill(scheduler, signal.SIGKILL)
    errors, until = [], time.monotonic() + 30
    while not errors and time.monotonic() < until:
        served.actor.receive(0.2)
        errors = [m for m in served.actor.inbox if m.type == "generate.error" and m.id == "lost"]
    assert errors and errors[0]["code"] == "engine" and "the engine died" in errors[0]["message"]
    assert served.actor.process.wait(30) == 1
    assert all(has_died(p) for p in pids)
