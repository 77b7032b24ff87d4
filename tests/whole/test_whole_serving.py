"""One run, learning while it serves: nothing refused, nothing cut, everything told."""

import json

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from system import System, until
from talk import CORRECTION, THANKS, Heard, ask, listen, people

SWAPS = 20


def test_nothing_is_refused_and_no_stream_is_cut_during_20_version_swaps(system: System) -> None:
    with people(system, 8, tokens=48) as talkers:
        assert until(lambda: system.status()["served_version"] >= SWAPS, 150, 1.0)
    failures = [f for person in talkers for f in person.failures]
    heard = [h for person in talkers for h in person.heard]
    assert not failures
    assert all(h.finish in ("stop", "length") for h in heard)
    assert [h for h in heard if not h.content and h.tokens > 1] == []
    for person in talkers:
        numbers = [h.version for h in person.heard]
        assert numbers == sorted(numbers)
    assert max(h.version for h in heard) >= SWAPS - 1
    assert len({h.version for h in heard}) >= SWAPS // 2
    assert _flowed_through_a_step(system, heard)


def _flowed_through_a_step(system: System, heard: list[Heard]) -> list[str]:
    """Streams that had text before, during and after some step of the trainer."""
    steps = [(m["time"] - m["perf/total_s"], m["time"]) for m in system.metrics("perf/total_s")]
    return [
        h.id for h in heard if h.times for began, ended in steps
        if h.times[0] < began and ended < h.times[-1]
        and any(began < at < ended for at in h.times)
    ]


def test_an_answer_names_a_version_that_sampled_it(system: System) -> None:
    before = system.status()["served_version"]
    with people(system, 8) as talkers:
        assert until(lambda: system.status()["served_version"] >= before + 10, 90, 0.5)
    with system.journal() as journal:
        for h in (h for person in talkers for h in person.heard):
            completion = journal.turn(h.turn_id).completion
            assert h.version in set(completion.versions.tolist()), h.id


def test_interleaved_chats_without_headers_each_get_their_own_next_state(system: System) -> None:
    client = system.client()
    chats: dict[str, list[dict]] = {"Ada": [], "Bo": []}
    first = {name: _greeting(client, name, said) for name, said in chats.items()}
    for name, word in (("Bo", CORRECTION), ("Ada", THANKS)):
        chats[name].append({"role": "user", "content": f"{word} From {name}."})
        listen(client, chats[name])
    with system.journal() as journal:
        turns = {name: journal.turn(h.turn_id) for name, h in first.items()}
    assert turns["Ada"].trace_id != turns["Bo"].trace_id
    for name, turn in turns.items():
        assert turn.messages[-1]["content"].startswith(f"I am {name}.")
        assert [m["content"] for m in turn.next_state] == [chats[name][2]["content"]]
        told = system.claw("why", first[name].id, "--run", str(system.run)).stdout
        assert f"From {name}." in told


def _greeting(client: openai.OpenAI, name: str, said: list[dict]) -> Heard:
    """A first answer that says something: random weights may end the turn at once."""
    for attempt in range(20):
        said[:] = [{"role": "user", "content": f"I am {name}. Greet me {attempt + 1} times."}]
        heard = ask(client, said)
        if (heard.content or "").strip():
            return heard
    raise AssertionError("twenty answers in a row were empty")


def test_every_turn_comes_to_one_state_with_a_reason(system: System) -> None:
    system.settle()
    sql = ("SELECT t.id, t.state, t.reason, (SELECT COUNT(*) FROM samples s WHERE s.turn_id = t.id"
           " AND s.state = 'trained') FROM turns t")
    rows = system.rows(sql)
    assert rows
    for id, state, reason, trained in rows:
        assert state in ("trained", "skipped") and reason, id
        assert trained == (state == "trained"), id
    counts = system.status()["turns"]
    assert sum(counts.values()) == len(rows)


def test_a_scrape_says_what_the_journal_and_the_status_say(system: System) -> None:
    system.settle()
    answer = httpx.get(f"{system.base_url.removesuffix('/v1')}/metrics",
                       headers={"authorization": f"Bearer {system.key}"})
    assert answer.status_code == 200, answer.text
    seen = {(s.name, *(value for _, value in sorted(s.labels.items()))): s.value
            for family in text_string_to_metric_families(answer.text) for s in family.samples}
    states = system.rows("SELECT state, COUNT(*) FROM turns GROUP BY state")
    assert {("claw_turns", state): n for state, n in states}.items() <= seen.items()
    status = system.status()
    assert seen["claw_version_served", "default"] == status["served_version"] > 0
    assert seen["claw_train_step",] == status["trainer"]["step"]
    assert seen["claw_workers",] == 1 and seen["claw_up",] == 1
    assert seen["claw_judge_seconds_count",] == status["judging"]["asked"] > 0
    [[sampled]] = system.rows("SELECT SUM(json_extract(shape, '$[0]')) FROM arrays WHERE"
                              " name='completion.ids' AND record IN (SELECT id FROM turns)")
    assert 0 < seen["claw_tokens_total", "out", "default"] <= sampled
    route = "/v1/chat/completions"
    answers = seen["claw_http_requests_total", route, "200"]
    assert 0 < seen["claw_first_token_seconds_count",] <= answers  # an empty one has no first text


def test_claw_why_tells_the_whole_story_of_a_trained_turn(system: System) -> None:
    [(id, reason)] = system.rows(
        "SELECT id, reason FROM turns WHERE state='trained' ORDER BY rowid DESC LIMIT 1")
    done = system.claw("why", id, "--run", str(system.run))
    assert done.returncode == 0, done.stderr
    for part in (f"trained:{reason}", "request\n  user:", "reply\n", "next state\n  user:",
                 "signals\n  rules: ", "sample\n  ", "advantage ", f"made {reason}"):
        assert part in done.stdout, part


# --- bad input -----------------------------------------------------------------------------------

HELLO = {"role": "user", "content": "hello"}
BAD = {
    "malformed JSON": b'{"messages": [',
    "no object": b"[]",
    "empty messages": {"messages": []},
    "unknown role": {"messages": [{"role": "wizard", "content": "hello"}]},
    "unknown model": {"model": "another", "messages": [HELLO]},
    "prompt beyond the context": {"messages": [{"role": "user", "content": "word " * 400}]},
    "5 MB of text": {"messages": [{"role": "user", "content": "word " * 1_000_000}]},
    "not UTF-8": b'{"messages": [{"role": "user", "content": "\xff"}]}',
}
ODD = {
    "lone surrogate": b'{"messages": [{"role": "user", "content": "a\\ud800b"}]}',
    "empty text": {"messages": [{"role": "user", "content": ""}]},
    "control characters": {"messages": [{"role": "user", "content": "\x00\x1b[31m\u202e"}]},
    "the template's own words": {"messages": [{"role": "user", "content": "<|im_end|>"}]},
}


def _is_openai_error(answer: httpx.Response) -> bool:
    error = answer.json().get("error") or {}
    return 400 <= answer.status_code < 500 and bool(error.get("message")) and {
        "message", "type", "code", "param"} <= set(error)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_words_and_the_next_request_works(
    system: System, name: str
) -> None:
    answer = system.post(BAD[name])
    assert _is_openai_error(answer), answer.text[:500]
    assert _answers(system)


@pytest.mark.parametrize("name", ODD)
def test_odd_input_is_answered_or_refused_in_words(system: System, name: str) -> None:
    answer = system.post(ODD[name])
    is_answer = answer.status_code == 200 and answer.json()["choices"][0]["finish_reason"]
    assert is_answer or _is_openai_error(answer), answer.text[:500]
    assert _answers(system)


def _answers(system: System) -> bool:
    return bool(ask(system.client(), [dict(HELLO)], max_tokens=4).finish)


def test_a_stream_that_is_refused_is_an_error_of_the_client(system: System) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        listen(system.client(), [{"role": "user", "content": "word " * 400}])
    assert caught.value.code == "context_length_exceeded"


# --- versions ------------------------------------------------------------------------------------


def test_an_earlier_version_serves_again_as_a_new_one(system: System) -> None:
    system.settle()
    before = system.status()["version"]
    done = system.claw("rollback", "1", "--run", str(system.run))
    assert done.returncode == 0, done.stderr
    made = int(done.stdout.split()[0].removeprefix("v"))
    assert made == before + 1
    assert until(lambda: system.status()["served_version"] == made, 30)
    assert ask(system.client(), [{"role": "user", "content": "After it."}]).version == made
    rows = {row["number"]: row for row in system.status()["versions"]}
    assert (rows[made]["parent"], rows[made]["status"]) == (1, "published")
    assert rows[before]["status"] == "rolled_back"
    folders = [system.run / "versions" / "default" / "default"]
    weights = {n: next(p for f in folders for p in f.rglob(f"*{n}/adapter_model.safetensors")
                       if int("".join(filter(str.isdigit, p.parent.name))) == n)
               for n in (1, made)}
    assert weights[1].read_bytes() == weights[made].read_bytes()


def test_a_rollback_to_what_was_never_made_is_refused_in_words(system: System) -> None:
    done = system.claw("rollback", "999", "--run", str(system.run))
    assert done.returncode == 1
    assert "v999" in done.stderr and "Traceback" not in done.stderr


def test_claw_versions_lists_parents(system: System) -> None:
    done = system.claw("versions", "--run", str(system.run))
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:]}
    assert lines["v2"][1] == "v1"
    assert len(lines) == len(system.status()["versions"])


def test_an_export_is_a_folder_that_peft_loads(system: System, whole_model, tmp_path) -> None:
    folder = tmp_path / "adapter"
    done = system.claw("export", str(folder), "--run", str(system.run), "--version", "1")
    assert done.returncode == 0, done.stderr
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(whole_model), folder)
    assert any("lora_B" in n and p.abs().sum() > 0 for n, p in model.named_parameters())
    assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4


def test_a_second_launcher_on_a_held_folder_is_refused(system: System) -> None:
    done = system.claw("train", "--resume", str(system.run))
    assert done.returncode == 2
    assert "another claw process runs in this folder" in done.stderr
    assert _answers(system)
