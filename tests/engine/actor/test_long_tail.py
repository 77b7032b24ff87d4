"""Conversations that are long, many, strange, cut or empty, against a whole actor process."""

import asyncio
from itertools import pairwise

import numpy as np
import pytest
from actor_doubles import (
    FakeRunner,
    FakeWorker,
    actor_process,
    addresses,
    make_model,
    run_config,
)

from claw.engine.actor.chat import Chat
from claw.engine.actor.journal import Journal
from claw.records import TurnState

TURNS = 200
SESSIONS = 100
WAIT_S = 80.0
STRANGE = {
    "emoji": "👩‍👩‍👧‍👦 🇩🇪 👍🏽", "right to left": "שלום עולם مرحبا \u202eabc\u202c",
    "a lone surrogate": "cut \ud83c here", "a split pair": "\ud83d\ude00",
    "control characters": "a\x00b\x1b[31mc\x07",
}


@pytest.fixture(scope="module")
def long_model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("long"), context=65_536)


@pytest.fixture
def play(long_model, tmp_path, sockets):
    """Return `play(function, reply=...)`: run it against a fresh actor with one worker."""
    run_dir, a = tmp_path / "run", addresses(sockets)

    def run(function, reply=lambda prompt: "Paris is big.", **changes):
        async def main():
            settings = {"worker__context": 65_536, "worker__slots": 64, "worker__queue": 64,
                        "judge__kind": "none"} | changes
            async with asyncio.timeout(180), actor_process(
                run_config(**settings), long_model, run_dir, sockets
            ):
                chat = Chat(long_model)
                worker = FakeWorker(a["workers"], chat, reply, name="worker-0", step=64, slots=64,
                                    queue=64, context=65_536)
                runner = FakeRunner(a["runners"])
                try:
                    await worker.hello()
                    while not (await runner.question("status")).get("workers"):
                        await asyncio.sleep(0.02)
                    return await function(runner)
                finally:
                    worker.close()
                    runner.close()
        return asyncio.run(main())

    run.dir = run_dir
    return run


def turns_of(run_dir):
    journal = Journal(run_dir, read_only=True)
    try:
        ids = [r[0] for r in journal.read("SELECT id FROM turns ORDER BY created")]
        return [journal.turn(id) for id in ids]
    finally:
        journal.close()


def user(text):
    return {"role": "user", "content": text}


def test_two_hundred_turns_stay_one_conversation_and_are_tokenised_once(play):
    async def talk(runner):
        messages = []
        for i in range(TURNS):
            messages.append(user(f"Question {i}?"))
            done = await runner.say(messages, seconds=WAIT_S)
            assert done.type == "turn.done", done.fields
            messages.append(done["message"])

    play(talk)
    turns = turns_of(play.dir)
    assert len(turns) == TURNS and len({t.trace_id for t in turns}) == 1
    assert [t.index for t in turns] == list(range(TURNS))
    for before, after in pairwise(turns):
        known = np.concatenate([before.prompt_ids, before.completion.ids])
        assert after.prompt_ids[: len(known)].tolist() == known.tolist()
        assert [m["content"] for m in before.next_state] == [f"Question {after.index}?"]


def test_a_hundred_unnamed_conversations_at_once_each_keep_their_own_next_state(play):
    async def talk(runner):
        async def one(i):
            messages = [user(f"I am number {i}.")]
            for words in (f"No, {i} is wrong.", f"Thanks from {i}."):
                done = await runner.say(messages, seconds=WAIT_S)
                assert done.type == "turn.done", done.fields
                messages += [done["message"], user(words)]
            return done.fields["trace_id"]

        traces = await asyncio.gather(*map(one, range(SESSIONS)))
        status = await runner.question("status")
        return traces, status

    traces, status = play(talk)
    assert len(set(traces)) == SESSIONS and status["sessions"]["open"] == SESSIONS
    assert status["sessions"]["named_by"] == {"content": 2 * SESSIONS}
    first = [t for t in turns_of(play.dir) if t.index == 0]
    for turn in first:
        number = turn.messages[0]["content"].removeprefix("I am number ").rstrip(".")
        assert [m["content"] for m in turn.next_state] == [f"No, {number} is wrong."]


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_strange_text_is_answered_echoed_and_found_again(play, text):
    async def talk(runner):
        messages = [user(text)]
        done = await runner.say(messages, seconds=WAIT_S)
        messages += [done["message"], user(f"again {text}")]
        return done, await runner.say(messages)

    first, second = play(talk, reply=lambda prompt: "שלום 👍🏽 \x1b[0m")
    assert first["message"]["content"] == "שלום 👍🏽 \x1b[0m"
    assert second.type == "turn.done" and second["trace_id"] == first["trace_id"]
    [turn, _] = turns_of(play.dir)
    # halves that belong together are one character from then on
    joined = text.replace("\ud83d\ude00", "\U0001f600")
    assert [m["content"] for m in turn.next_state] == [f"again {joined}"]


def test_a_cut_reply_says_length_and_an_empty_one_is_skipped_with_its_reason(play):
    async def talk(runner):
        cut = await runner.say([user("a")], sampling={"max_tokens": 4})
        return cut, await runner.say([user("say nothing")])

    cut, empty = play(talk, reply=lambda prompt: "" if "nothing" in prompt else "Paris is big.")
    assert (cut["finish_reason"], cut["usage"]["completion_tokens"]) == ("length", 4)
    assert empty["message"]["content"] == "" and empty["finish_reason"] == "stop"
    [_, turn] = turns_of(play.dir)
    assert (turn.state, turn.reason) == (TurnState.SKIPPED, "empty_reply")


def test_a_history_that_grows_beyond_the_context_is_refused_in_words_clients_look_for(play):
    async def talk(runner):
        return await runner.say([user("x" * 70_000)], seconds=WAIT_S)

    error = play(talk)
    assert (error["status"], error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 65536 tokens" in error["message"]


def test_ten_requests_of_which_none_can_be_trained_are_a_warning_that_names_the_cause(play):
    async def talk(runner):
        for i in range(10):
            await runner.say([user(f"title {i}")], kind="side")
        return (await runner.question("status"))["warnings"]

    [warning] = play(talk)
    assert warning.startswith("10 requests, none trainable") and "10 side by name" in warning


def test_thinking_reaches_the_asker_before_the_text_and_is_counted(play):
    async def talk(runner):
        id = await runner.ask([user("think")])
        done = await runner.until("turn.done", id=id)
        return runner.of("turn.text", id=id), done

    said, done = play(talk, reply=lambda prompt: "<think>\nTwo and two.\n</think>\n\nFour.")
    assert "".join(m["reasoning"] for m in said) == "Two and two."
    assert "".join(m["text"] for m in said) == "Four."
    assert done["message"]["reasoning_content"] == "Two and two."
    assert 0 < done["usage"]["reasoning_tokens"] < done["usage"]["completion_tokens"]
