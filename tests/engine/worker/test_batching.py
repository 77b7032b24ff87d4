"""Whatever happens around a request, its tokens are those of decoding it alone."""

import time

import numpy as np
import pytest
from worker_doubles import (
    EOS,
    VOCAB,
    Driver,
    backend_of,
    make_model,
    plain,
    plain_logps,
    request,
    score_request,
)

from claw.records import FinishReason

RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(3, VOCAB, n).tolist() for n in (3, 40, 1, 17, 90, 5, 28, 60)]


def alone(folder, make_request):
    return Driver(backend_of(folder)).run(make_request)[0]


def check_numbers(model, prompt, got, temperature=1.0, start=0, k=4):
    """Every log-prob and top-k entry is that of a plain forward over the same tokens."""
    ids = [*prompt, *got.ids.tolist()]
    truth = plain_logps(model, ids, temperature)[len(prompt) - 1 :][start:]
    n = len(got.ids)
    np.testing.assert_allclose(got.logps[start:], truth[np.arange(n - start), got.ids[start:]],
                               atol=1e-4)
    order = np.argsort(-truth, axis=1, kind="stable")[:, :k]
    np.testing.assert_allclose(got.topk_logps[start:], np.take_along_axis(truth, order, 1),
                               atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_crowded_batch_gives_each_request_the_tokens_of_decoding_it_alone(kind, tmp_path):
    folder = make_model(tmp_path / "m", kind)
    settings = [dict(seed=i, temperature=t, logprobs_k=4)
                for i, t in enumerate((1.0, 0.0, 0.6, 1.5, 1.0, 0.8, 1.0, 0.0))]
    driver, requests = Driver(backend_of(folder)), []
    driver.backend.read_tokens = 8  # long prompts take many steps
    for prompt, s in zip(PROMPTS, settings, strict=True):
        requests.append(request(prompt, **s))
        driver.submit(requests[-1])
        driver.step(2)  # they join one after the other; four slots serve eight requests
    driver.finish()
    model = plain(folder)
    for prompt, s, r in zip(PROMPTS, settings, requests, strict=True):
        got = driver.got[r.id]
        assert got.ids.tolist() == alone(folder, request(prompt, **s)).ids.tolist()
        assert got.end.finish_reason == FinishReason.LENGTH and len(got.ids) == 12
        check_numbers(model, prompt, got, s["temperature"])


def test_sliding_windows_are_kept(tmp_path):
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=7, initializer_range=0.3,
    )
    MistralForCausalLM(config).save_pretrained(tmp_path)
    driver = Driver(backend_of(tmp_path))
    driver.backend.read_tokens = 8
    for prompt, got in zip(PROMPTS[:3], driver.run(*map(request, PROMPTS[:3])), strict=True):
        check_numbers(plain(tmp_path), prompt, got)


def test_a_cancelled_request_frees_its_slot_and_disturbs_nobody(model_dir):
    driver = Driver(backend_of(model_dir, slots=3))
    first, doomed, reading, waits = (
        request(PROMPTS[0], max_tokens=20), request(PROMPTS[1], max_tokens=200),
        request(PROMPTS[4]), request(PROMPTS[3]),
    )
    driver.submit(first, doomed)
    driver.step(3)
    driver.backend.read_tokens = 2
    driver.submit(reading, waits)
    driver.step(2)
    for r in (doomed, reading):
        driver.backend.cancel(r.id)
    driver.step()
    assert {r.request.id for r in driver.backend.batch.slots} == {first.id, waits.id}
    assert driver.got[doomed.id].end.finish_reason == FinishReason.CANCELLED
    assert len(driver.got[doomed.id].ids) >= 2, "tokens that were sampled are not lost"
    assert driver.got[reading.id].end.finish_reason == FinishReason.CANCELLED
    driver.finish()
    for prompt, r in ((PROMPTS[0], first), (PROMPTS[3], waits)):
        twin = request(prompt, max_tokens=r.sampling.max_tokens)
        assert driver.got[r.id].ids.tolist() == alone(model_dir, twin).ids.tolist()


def test_a_request_past_its_deadline_ends_with_what_it_has(model_dir):
    driver = Driver(backend_of(model_dir, slots=1))
    late, waiting = (request(p, max_tokens=250, seconds=0.3) for p in PROMPTS[:2])
    driver.submit(late, waiting)
    while driver.got[late.id].end is None:
        driver.step()
        time.sleep(0.02)
    end = driver.got[late.id].end
    assert end.code == "deadline" and "tokens" in end.message
    assert 0 < len(driver.got[late.id].ids) < 250
    assert driver.got[waiting.id].end.code == "deadline"
    assert not driver.backend.batch.slots


def test_stop_ids_end_a_reply_and_ignore_eos_ignores_them(model_dir):
    driver = Driver(backend_of(model_dir))
    whole, = driver.run(request(PROMPTS[0], max_tokens=30))
    stop = int(whole.ids[9])
    first = whole.ids.tolist().index(stop)
    stopped, ignoring = driver.run(
        request(PROMPTS[0], max_tokens=30, ignore_eos=False, stop_ids=[stop]),
        request(PROMPTS[0], max_tokens=30, stop_ids=[stop]),
    )
    reply = whole.ids.tolist()
    wanted = min(first, reply.index(EOS)) if EOS in reply else first
    assert stopped.ids.tolist() == reply[: wanted + 1], "the stop id itself is part of the reply"
    assert stopped.end.finish_reason == FinishReason.STOP
    assert ignoring.ids.tolist() == reply


def test_a_reply_ends_at_the_context(model_dir):
    got, = Driver(backend_of(model_dir, context=32)).run(request(range(3, 33), max_tokens=50))
    assert len(got.ids) == 2 and got.end.finish_reason == FinishReason.LENGTH


def test_tokens_stream_long_before_the_reply_ends(model_dir):
    driver = Driver(backend_of(model_dir))
    r = request(PROMPTS[0], max_tokens=40)
    driver.submit(r)
    driver.step(2)
    assert driver.got[r.id].starts == [0] and driver.got[r.id].end is None
    driver.finish()
    assert len(driver.got[r.id].starts) >= 10


def test_a_long_prompt_does_not_stall_running_streams(model_dir):
    driver = Driver(backend_of(model_dir))
    driver.backend.read_tokens = 8
    running = request(PROMPTS[0], max_tokens=100)
    driver.submit(running)
    driver.step(2)
    long = request(PROMPTS[4])
    driver.submit(long)
    before = driver.backend.num_sampled
    driver.step(10)
    assert not len(driver.got[long.id].ids), "ninety tokens at eight a step take twelve steps"
    assert driver.backend.num_sampled - before == 10


def test_a_session_reuses_what_its_last_turn_computed(model_dir):
    driver = Driver(backend_of(model_dir))
    first, = driver.run(request(PROMPTS[1], session="a"))
    prompt = [*PROMPTS[1], *first.ids.tolist(), 9, 8, 7]
    again, fresh = driver.run(request(prompt, session="a"), request(prompt, session="b"))
    assert again.end.cached_tokens == len(PROMPTS[1]) + len(first.ids) - 1
    assert fresh.end.cached_tokens == 0
    assert again.ids.tolist() == fresh.ids.tolist()
    check_numbers(plain(model_dir), prompt, again)
    edited = [*PROMPTS[1][:30], 5, *PROMPTS[1][31:]]
    forked, = driver.run(request(edited, session="a"))
    assert forked.end.cached_tokens == 30
    check_numbers(plain(model_dir), edited, forked)


def test_kept_prefixes_are_bounded_in_bytes(model_dir):
    driver = Driver(backend_of(model_dir))
    prefixes = driver.backend.prefixes
    prefixes.max_bytes = 60_000
    for i in range(12):
        driver.run(request(PROMPTS[1], session=f"s{i}"))
        assert prefixes.num_bytes <= 60_000
    assert 0 < len(prefixes._entries) < 12


def test_no_seed_gives_other_tokens_each_time_and_a_seed_the_same(model_dir):
    driver = Driver(backend_of(model_dir))
    made = driver.run(*(request(PROMPTS[0], seed=s) for s in (None, None, 5, 5)))
    one, two, three, four = (g.ids.tolist() for g in made)
    assert one != two and three == four


def test_scores_are_those_of_a_plain_forward_beside_running_requests(model_dir):
    driver = Driver(backend_of(model_dir))
    driver.backend.read_tokens = 8
    r = request(PROMPTS[0], max_tokens=30)
    s, hot = score_request(PROMPTS[4], topk=3), score_request(PROMPTS[1], temperature=0.5, topk=0)
    driver.submit(r, s, hot)
    driver.finish()
    scored, truth = driver.got[s.id].end, plain_logps(plain(model_dir), PROMPTS[4])
    ids = np.array(PROMPTS[4][1:])
    np.testing.assert_allclose(scored.logps, truth[np.arange(len(ids)), ids], atol=1e-4)
    order = np.argsort(-truth, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(scored.topk_ids, order)
    half = driver.got[hot.id].end
    truth = plain_logps(plain(model_dir), PROMPTS[1], 0.5)
    np.testing.assert_allclose(half.logps, truth[np.arange(39), PROMPTS[1][1:]], atol=1e-4)
    assert half.topk_ids.shape == (39, 0)
    assert driver.got[r.id].ids.tolist() == (
        alone(model_dir, request(PROMPTS[0], max_tokens=30)).ids.tolist())
