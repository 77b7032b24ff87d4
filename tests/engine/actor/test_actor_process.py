"""A whole actor process, with a fake worker, runner and trainer on real sockets."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import zmq
from actor_doubles import (
    FakeRunner,
    FakeTrainer,
    FakeWorker,
    actor_process,
    addresses,
    run_config,
    until_known,
    version,
)

from claw.engine.actor.journal import Journal
from claw.engine.actor.why import story, turns, versions
from claw.records import Task

WRONG = "No, that is wrong. Please answer in one word next time."


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def play(model_dir, chat, tmp_path, sockets):
    """Return `play(function, **settings)`: run it against a fresh actor process."""
    run_dir, a = tmp_path / "run", addresses(sockets)

    @asynccontextmanager
    async def stage(config, resume):
        async with actor_process(config, model_dir, run_dir, sockets, resume=resume) as process:
            worker = FakeWorker(a["workers"], chat, lambda _: "Paris is big.", name="worker-0")
            s = SimpleNamespace(
                process=process, worker=worker, runner=FakeRunner(a["runners"]),
                trainer=FakeTrainer(a["trainer"]), run_dir=run_dir, addresses=a,
            )
            try:
                await worker.hello()
                await until_known(a["runners"])
                await s.trainer.hello()
                yield s
            finally:
                for peer in (worker, s.runner, s.trainer):
                    peer.close()

    def run(function, *, resume=False, **changes):
        async def main():
            async with asyncio.timeout(40), stage(run_config(**changes), resume) as s:
                return await function(s)
        return asyncio.run(main())

    run.dir = run_dir
    return run


def state(run_dir, turn_id):
    journal = Journal(run_dir, read_only=True)
    try:
        return journal.turn(turn_id).status
    finally:
        journal.close()


async def settled(s, turn_id, *, not_in=("open", "waiting", "judging")):
    """Wait until the journal has the turn in another state; return it."""
    async with asyncio.timeout(10):
        while (now := state(s.run_dir, turn_id)) in not_in:
            await asyncio.sleep(0.02)
    return now


async def wrong(s, question="What is the capital of France?"):
    """Ask, and say that the answer was wrong; return the first turn.done."""
    first = await s.runner.say([user(question)])
    assert first.type == "turn.done", first.fields
    await s.runner.say([user(question), first["message"], user(WRONG)])
    return first


def test_a_turn_goes_from_ask_to_trained_and_why_tells_it(play, chat, tmp_path):
    async def run(s):
        s.worker.pace_s = 0.02
        first = await s.runner.say([user("What is the capital of France?")],
                                   sampling={"logprobs_k": 1})
        assert first["message"] == {"role": "assistant", "content": "Paris is big."}
        assert first["finish_reason"] == "stop" and first["usage"]["completion_tokens"] == 14
        texts = [m["text"] for m in s.runner.of("turn.text")]
        assert "".join(texts) == "Paris is big." and len(texts) > 1
        tokens = [t for m in s.runner.of("turn.text") for t in m["tokens"]]
        assert len(tokens) == 14 and tokens[0]["token"] == "P" and tokens[0]["logprob"] == -0.5
        second = await s.runner.say(
            [user("What is the capital of France?"), first["message"], user(WRONG)])
        assert second["trace_id"] == first["trace_id"]
        assert not any(m["tokens"] for m in s.runner.of("turn.text", id=second.id))
        lease, samples, _ = await s.trainer.lease()
        assert [x.turn_id for x in samples] == [first["turn_id"]]
        assert samples[0].advantages[0] == -1.0 and samples[0].mask.all()
        assert chat.decode(samples[0].reply_ids) == "Paris is big.<|im_end|>"
        await s.trainer.ack(lease, 1, path=str(tmp_path))
        await s.trainer.ack(lease, 1, path=str(tmp_path))
        await s.worker.until("version.load")
        status = await s.runner.question("status")
        assert status["turns"] == {"trained": 1, "waiting": 1}
        assert status["version"] == 1 and status["trainer"]["step"] == 1
        return first["turn_id"]

    turn_id = play(run)
    told = "\n".join(story(play.dir, f"chatcmpl-{turn_id}"))
    for part in ("trained:v1", "capital of France", "Paris is big.", "in one word", "rules: -1",
                 "lease_", "advantage -1.000", "made v1", "finish stop"):
        assert part in told, f"{part!r} is not in the story:\n{told}"
    assert [v.number for v in versions(play.dir)] == [1]
    assert turns(play.dir, 1)[0]["status"] == "waiting"


def test_the_known_ids_of_a_turn_start_the_next_prompt(play, chat):
    async def run(s):
        await wrong(s)
        one, two = s.worker.of("generate")
        known = [*one.arrays["prompt_ids"], *chat.encode("Paris is big.<|im_end|>")]
        assert two.arrays["prompt_ids"][: len(known)].tolist() == known
    play(run)


def test_a_retry_gets_the_same_turn_and_is_not_sampled_twice(play):
    async def run(s):
        s.worker.hold.clear()
        ids = [await s.runner.ask([user("hello")]) for _ in range(3)]
        await s.worker.until("generate")
        await asyncio.sleep(0.2)
        s.worker.hold.set()
        done = [await s.runner.until("turn.done", id=id) for id in ids]
        assert len({m["turn_id"] for m in done}) == 1 and len(s.worker.of("generate")) == 1
        for id in ids:
            assert "".join(m["text"] for m in s.runner.of("turn.text", id=id)) == "Paris is big."
    play(run)


CALLS = ('I look. <tool_call>{"name": "ls", "arguments": {"p": "a.txt"}}</tool_call>\n'
         '<tool_call>{"name": "ls", "arguments": {"p": "b')


@pytest.mark.parametrize("tells_calls", [True, False])
def test_a_reply_that_may_call_once_ends_with_its_first_call(play, tells_calls):
    one = '<tool_call>\n{"name": "ls", "arguments": {"p": "%s"}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]

    async def run(s):
        said = f"I look.\n{one % 'a'}\n{one % 'b'}\nThen more and more."
        s.worker.reply, s.worker.step, s.worker.pace_s = lambda _: said, 1, 0.005
        asked = {"tools": tools, "sampling": {"max_tokens": 300}, "tells_calls": tells_calls}
        done = await s.runner.say([user("look")], one_call=True, **asked)
        [call] = done["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"p": "a"}
        assert done["message"]["content"].strip() == "I look."
        assert done["finish_reason"] == "tool_calls"
        await s.worker.until("cancel")
        journal = Journal(s.run_dir, read_only=True)
        sampled = s.worker.chat.decode(journal.turn(done["turn_id"]).completion.ids)
        journal.close()
        assert said.startswith(sampled) and '"a"' in sampled and "more" not in sampled
        both = await s.runner.say([user("look at both")], **asked)
        assert len(both["message"]["tool_calls"]) == 2
    play(run)


def test_one_call_is_refused_where_only_the_end_of_a_reply_ends_a_call(play):
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]

    async def run(s):
        s.worker.reply = lambda _: "Nothing."
        refused = await s.runner.say([user("look")], tools=tools, one_call=True)
        assert (refused["status"], refused["param"]) == (400, "parallel_tool_calls")
        assert (await s.runner.say([user("look")], tools=tools)).type == "turn.done"
        assert (await s.runner.say([user("hm")], one_call=True)).type == "turn.done"
    play(run, serve={"tool_calls": "mistral"})


@pytest.mark.parametrize("step", [1, 4])
def test_calls_are_told_while_they_are_made_and_recorded_as_they_were_told(play, step):
    tools = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]

    async def run(s):
        s.worker.reply, s.worker.step, s.worker.pace_s = lambda _: CALLS, step, 0.01
        asked = {"tools": tools, "sampling": {"max_tokens": 300}}
        done = await s.runner.say([user("look")], tells_calls=True, **asked)
        said = s.runner.of("turn.text")
        parts = [p for m in said for p in m.get("calls") or ()]
        assert len(parts) > 6 and parts[0] | {"id": ""} == {
            "index": 0, "id": "", "name": "ls", "arguments": ""}
        assert "".join(m["text"] for m in said) == "I look. "
        calls = done["message"]["tool_calls"]
        for i, arguments in enumerate(['{"p": "a.txt"}', '{"p": "b']):
            mine = [p for p in parts if p["index"] == i]
            assert "".join(p["arguments"] for p in mine) == arguments
            assert calls[i]["function"] == {"name": "ls", "arguments": arguments}
            assert calls[i]["id"] == mine[0]["id"]
        journal = Journal(s.run_dir, read_only=True)
        try:
            turn = journal.turn(done["turn_id"])
            assert turn.reply == done["message"]
            assert s.worker.chat.decode(turn.completion.ids) == CALLS + "<|im_end|>"
        finally:
            journal.close()
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "no"} for c in calls]
        s.worker.reply = lambda _: "Done."
        after = await s.runner.say([user("look"), done["message"], *results],
                                   tells_calls=True, **asked)
        assert after["trace_id"] == done["trace_id"]
        s.worker.reply = lambda _: CALLS
        plain = await s.runner.say([user("look again")], **asked)
        assert len(plain["message"]["tool_calls"]) == 1, "what breaks off unseen stays text"
        assert "calls" not in s.runner.of("turn.text", id=plain.id)[0].fields
    play(run)




LS = [{"type": "function", "function": {"name": "ls", "parameters": {}}}]
ONE_CALL = '<tool_call>{"name": "ls", "arguments": {"p": "a"}}</tool_call>'


@pytest.mark.parametrize("is_told", [True, False])
def test_each_sampled_token_has_its_log_prob_though_it_is_part_of_a_call(play, chat, is_told):
    async def run(s):
        s.worker.reply, s.worker.step, s.worker.pace_s = lambda _: f"So {ONE_CALL}", 3, 0.005
        done = await s.runner.say([user("look")], tools=LS, tells_calls=is_told,
                                  sampling={"max_tokens": 200, "logprobs_k": 2})
        tokens = [t for m in s.runner.of("turn.text") for t in m["tokens"]]
        ids = chat.encode(f"So {ONE_CALL}<|im_end|>").tolist()
        assert [t["id"] for t in tokens] == ids, "markers and the end of the turn too"
        assert {t["logprob"] for t in tokens} == {-0.5}
        assert min(len(t["top"]) for t in tokens) >= 2
        assert done["usage"]["completion_tokens"] == len(ids)
        journal = Journal(s.run_dir, read_only=True)
        try:
            assert journal.turn(done["turn_id"]).completion.ids.tolist() == ids
        finally:
            journal.close()
    play(run)


def test_two_tool_results_follow_the_sampled_ids_with_nothing_between_them(play, chat):
    async def run(s):
        s.worker.reply = lambda _: ONE_CALL + ONE_CALL
        asked = {"tools": LS, "sampling": {"max_tokens": 200}}
        done = await s.runner.say([user("look")], **asked)
        calls = done["message"]["tool_calls"]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": f"result {i}"}
                   for i, c in enumerate(calls)]
        s.worker.reply = lambda _: "Done."
        after = await s.runner.say([user("look"), done["message"], *results], **asked)
        first, second = s.worker.of("generate")
        known = [*first.arrays["prompt_ids"], *chat.encode(f"{ONE_CALL}{ONE_CALL}<|im_end|>")]
        ids = second.arrays["prompt_ids"].tolist()
        assert ids[: len(known)] == known and after["trace_id"] == done["trace_id"]
        assert chat.decode(ids[len(known) :]) == (
            "\n<|im_start|>tool\nresult 0<|im_end|>\n<|im_start|>tool\nresult 1<|im_end|>\n"
            "<|im_start|>assistant\n")
    play(run)


def test_a_tool_output_that_does_not_fit_is_refused_and_the_conversation_goes_on(play):
    async def run(s):
        s.worker.reply = lambda _: ONE_CALL
        asked = {"tools": LS, "sampling": {"max_tokens": 100}}
        done = await s.runner.say([user("look")], **asked)
        [call] = done["message"]["tool_calls"]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "x " * 100_000}
        begun = [user("look"), done["message"]]
        long = await s.runner.say([*begun, result], **asked)
        assert (long.type, long["code"]) == ("turn.error", "context_length_exceeded")
        assert "maximum context length is 1024 tokens" in long["message"]
        assert len(s.worker.of("generate")) == 1, "nothing was sampled for it"
        s.worker.reply = lambda _: "Two files."
        short = await s.runner.say([*begun, result | {"content": "a b"}], **asked)
        assert short["message"]["content"] == "Two files."
        assert short["trace_id"] == done["trace_id"]
    play(run)


def test_side_turns_and_episodes_of_nobody_are_answered_but_not_trained(play):
    async def run(s):
        done = await s.runner.say([user("make a title")], kind="side")
        assert state(s.run_dir, done["turn_id"]) == "skipped:side"
        missing = await s.runner.say([user("x")], trace_id="trace_none")
        assert missing.type == "turn.error" and missing["status"] == 404
    play(run)


def test_requests_that_cannot_be_answered_are_refused_in_words(play):
    async def run(s):
        async def refused(messages, **ask):
            error = await s.runner.say(messages, **ask)
            assert error.type == "turn.error" and error["status"] == 400, error.fields
            return error
        await refused([])
        assert "wizard" in (await refused([{"role": "wizard", "content": "x"}]))["message"]
        await refused([user("x")], sampling={"temperature": float("nan")})
        await refused([user("x")], sampling={"max_tokens": 0})
        await refused([user("x")], sampling={"best_of": 2})
        await refused([user([{"type": "image_url", "image_url": {"url": "data:"}}])])
        await refused(["no message"])
        long = await refused([user("x" * 200_000)])
        assert long["code"] == "context_length_exceeded"
        assert "maximum context length is 1024 tokens" in long["message"]
        fits = await s.runner.say([user("x" * 900)], sampling={"max_tokens": 100_000})
        assert fits.type == "turn.done"
        assert s.worker.of("generate")[0]["sampling"]["max_tokens"] < 200
        assert (await s.runner.say([user("\ud83c \udc9d \x00")])).type == "turn.done"
    play(run)


def test_a_cancelled_turn_is_cancelled_at_the_worker_and_skipped(play):
    async def run(s):
        s.worker.pace_s = 0.2
        id = await s.runner.ask([user("hello")])
        start = await s.runner.until("turn.start", id=id)
        await s.runner.until("turn.text", id=id)
        await s.runner.send("turn.cancel", id)
        await s.worker.until("cancel")
        assert await settled(s, start["turn_id"]) == "skipped:cancelled"
        s.worker.pace_s = 0.0
        again = await s.runner.say([user("hello")])
        assert again["turn_id"] != start["turn_id"]
    play(run)


def test_stop_strings_cut_the_text_keep_the_ids_and_cancel_the_rest(play):
    async def run(s):
        s.worker.pace_s, s.worker.step = 0.05, 1
        done = await s.runner.say([user("hello")], sampling={"stop": ["is b"]})
        assert done["message"]["content"] == "Paris " and done["finish_reason"] == "stop"
        assert "".join(m["text"] for m in s.runner.of("turn.text")) == "Paris "
        assert done["usage"]["completion_tokens"] == len("Paris is b")
        await s.worker.until("cancel")
    play(run)


def test_log_probs_that_are_no_numbers_are_served_and_never_trained(play):
    async def run(s):
        s.worker.spoil = lambda a: a | {"logps": a["logps"] * math.nan}
        first = await wrong(s)
        assert first["message"]["content"] == "Paris is big."
        assert state(s.run_dir, first["turn_id"]).startswith("skipped:bad_logprobs")
    play(run)


def test_a_full_run_says_429_and_no_worker_says_503(play):
    async def run(s):
        s.worker.hold.clear()
        ids = [await s.runner.ask([user(f"hello {n}")]) for n in range(8)]
        error = await s.runner.until("turn.error")
        assert (error["status"], error["code"]) == (429, "rate_limit_exceeded")
        assert error["retry_after_s"] > 0
        s.worker.hold.set()
        over = [await s.runner.until("turn.done", "turn.error", id=id) for id in ids]
        assert [m.type for m in over].count("turn.done") == 6
        s.worker.close()
        none = await s.runner.say([user("anybody?")], deadline_s=0.5)
        assert none["status"] in (503, 504)
    play(run, worker__slots=2, worker__queue=2)


def test_feedback_outranks_the_judge_and_can_be_taken_back_until_it_is_trained(play):
    async def run(s):
        first = await s.runner.say([user("hello")])
        target = f"chatcmpl-{first['turn_id']}"
        up = await s.runner.question("feedback", target=target, value=1, text="")
        assert up == {"turn_id": first["turn_id"], "status": "queued"}
        down = await s.runner.question("feedback", target=target, value=-1,
                                       text="Please answer in French.")
        assert down["status"] == "queued"
        lease, samples, _ = await s.trainer.lease()
        assert len(samples) == 1 and samples[0].advantages[0] == -1.0
        assert len(samples[0].hints) == 1
        late = await s.runner.question("feedback", target=target, value=1, text="")
        assert "too late" in late["status"]
        nobody = await s.runner.question("feedback", target="turn_none", value=1, text="")
        assert nobody["status"] == 404 and "turn_none" in nobody["error"]
        assert "error" in await s.runner.question("feedback", target=target, value=5, text="")
        await s.trainer.ack(lease, 1)
    play(run)


def test_a_session_that_ends_or_is_idle_skips_its_last_turn(play):
    async def run(s):
        named = await s.runner.say([user("hello")], session="s1")
        ended = await s.runner.question("session.end", session="s1")
        assert ended["ended"] == named["trace_id"]
        assert state(s.run_dir, named["turn_id"]) == "skipped:no_next_state"
        silent = await s.runner.say([user("somebody else")])
        assert await settled(s, silent["turn_id"]) == "skipped:no_next_state"
        assert (await s.runner.question("status"))["sessions"]["open"] == 0
        await s.runner.say([user("somebody else"), silent["message"], user(WRONG)])
        assert await settled(s, silent["turn_id"],
                             not_in=("skipped:no_next_state", "judging")) == "queued"
    play(run, serve__session_idle_s=1.0)


def test_a_wish_said_late_teaches_the_first_turn_when_the_conversation_has_ended(play, chat):
    async def run(s):
        said, turns = [], []
        for words in ("What is the capital of France?", "Thanks! And what is that of Spain?",
                      "Answer in one short sentence, please."):
            said.append(user(words))
            done = await s.runner.say(said, session="s1")
            said.append(done["message"])
            turns.append(done["turn_id"])
        first, second, last = turns
        for id in (first, second):
            assert await settled(s, id) == "queued"
        await s.runner.question("session.end", session="s1")
        assert await settled(s, last, not_in=("waiting", "skipped:no_next_state")) == "queued"
        _, samples, _ = await s.trainer.lease(max_samples=3)
        by_turn = {x.turn_id: x for x in samples}
        assert set(by_turn) == set(turns)
        for x in samples:
            [hint] = x.hints
            assert "Answer in one short sentence." in chat.decode(hint)
        assert by_turn[first].advantages[0] == 1.0 and by_turn[second].advantages[0] == -1.0
        assert not by_turn[last].has_advantage
        return turns

    first, second, last = play(run, judge__hindsight=True)
    for id, judges in ((first, ["rules", "hindsight"]), (second, ["rules"]), (last, ["hindsight"])):
        journal = Journal(play.dir, read_only=True)
        assert [s.judge for s in journal.signals(id)] == judges
        journal.close()
    assert "hindsight: gives a hint" in "\n".join(story(play.dir, first))


def test_kill_9_loses_no_accepted_turn_and_trains_none_twice(play):
    async def before(s):
        old = await wrong(s, "And of Spain?")
        await settled(s, old["turn_id"])
        lease, _, _ = await s.trainer.lease()
        await s.trainer.ack(lease, 1)
        first = await wrong(s)
        await settled(s, first["turn_id"])
        other = await wrong(s, "And of Italy?")
        await settled(s, other["turn_id"])
        lease, _, _ = await s.trainer.lease(max_samples=1)
        waiting = await s.runner.say([user("a third")])
        s.worker.hold.clear()
        id = await s.runner.ask([user("a fourth")])
        open_turn = await s.runner.until("turn.start", id=id)
        s.process.send_signal(signal.SIGKILL)
        await s.process.wait()
        return lease, first, other, waiting, open_turn

    lease, first, other, waiting, open_turn = play(before)

    # the stage says hello without a last lease: the leased sample is put back, not lost
    async def after(s):
        welcome = s.trainer.of("trainer.welcome")[0]
        assert welcome["released"] == [lease]
        _, samples, _ = await s.trainer.lease(max_samples=8)
        got = [sample.turn_id for sample in samples]  # the trained one is not among them
        assert sorted(got) == sorted([first["turn_id"], other["turn_id"]])
        assert state(s.run_dir, open_turn["turn_id"]) == "skipped:interrupted"
        third = await s.runner.say([user("a third"), waiting["message"], user("thanks!")])
        assert third["trace_id"] == waiting["trace_id"]
        assert await settled(s, waiting["turn_id"]) == "queued"

    play(after, resume=True)


def test_a_lease_of_a_durable_step_counts_as_acknowledged(play):
    async def run(s):
        first = await wrong(s)
        lease, samples, _ = await s.trainer.lease()
        welcome = await s.trainer.hello(step=4, last_lease=lease, versions=[version(4)])
        assert welcome["released"] == [] and len(samples) == 1
        assert state(s.run_dir, first["turn_id"]) == "trained:v4"
        assert (await s.trainer.lease(poll_s=0.2))[1] == []
    play(run)


def test_a_lease_whose_answer_was_lost_is_given_again_and_no_other_beside_it(play):
    async def run(s):
        first, other = await wrong(s), await wrong(s, "And of Italy?")
        for turn in (first, other):
            await settled(s, turn["turn_id"])
        lease, samples, _ = await s.trainer.lease(max_samples=1)
        again, same, _ = await s.trainer.lease(max_samples=1)  # another request, no new hello
        assert again == lease and [x.id for x in same] == [x.id for x in samples]
        await s.trainer.ack(lease, 1)
        assert state(s.run_dir, first["turn_id"]) == "trained:v1"
        _, rest, _ = await s.trainer.lease(max_samples=1)
        assert [x.turn_id for x in rest] == [other["turn_id"]]
    play(run)


def test_a_sample_without_a_part_in_a_good_step_is_not_called_trained(play):
    async def run(s):
        asked = ("What is the capital of France?", "And of Italy?")
        turns = [(await wrong(s, question))["turn_id"] for question in asked]
        lease, samples, _ = await s.trainer.lease(max_samples=2)
        out = next(x for x in samples if x.turn_id == turns[1])
        await s.trainer.ack(lease, 1, left_out={out.id: "nothing_to_train"})
        assert state(s.run_dir, turns[0]) == "trained:v1"
        assert state(s.run_dir, turns[1]) == "skipped:nothing_to_train"
    play(run)


@pytest.mark.parametrize("is_told_by", ["ack", "hello"])
def test_the_samples_of_a_refused_step_are_not_called_trained(play, is_told_by):
    async def run(s):
        first = await wrong(s)
        lease, _, _ = await s.trainer.lease()
        if is_told_by == "ack":
            await s.trainer.ack(lease, 1, why="held-out text got worse")
        else:  # the trainer died between the checkpoint and the acknowledgement
            welcome = await s.trainer.hello(step=1, last_lease=lease, versions=[version(1)],
                                            why="held-out text got worse")
            assert welcome["released"] == []
        assert state(s.run_dir, first["turn_id"]) == "skipped:step_refused"
        assert (await s.trainer.lease(poll_s=0.2))[1] == []
    play(run)


def test_garbage_from_any_peer_is_counted_and_nobodys_crash(play):
    async def run(s):
        context = zmq.Context()
        for address in s.addresses.values():
            socket = context.socket(zmq.DEALER)
            socket.connect(address)
            for frames in ([b""], [b"\xff\x00garbage"], [b"\x80"], [b"a"] * 40):
                socket.send_multipart(frames)
        for peer in (s.worker, s.runner, s.trainer):
            await peer.send("no.such.type", "x1")
            await peer.send("worker.hello", slots="many")
            await peer.send("turn.ask", "x2", record={"messages": 3, "color": 1})
            await peer.send("lease", "x3", max_samples=[], max_wait_s="soon")
            await peer.send("trace.next", "x4", turn_id=None, messages=7)
            await peer.send("generate.chunk", "x5", start="a")
            assert (await peer.until("error")).id in ("x1", "")
        assert (await s.runner.say([user("still there?")])).type == "turn.done"
        garbage = (await s.runner.question("status"))["garbage"]
        assert set(garbage) == {"workers", "runners", "trainer"} and garbage["workers"] >= 6
        context.destroy(linger=0)
    play(run)


def test_a_refused_version_does_not_serve_and_a_rollback_is_passed_on(play, tmp_path):
    async def run(s):
        for n in (1, 2):
            v = version(n, str(tmp_path))
            await s.trainer.send("version.published", "", record=_fields(v))
        await s.worker.until("version.load")
        async with asyncio.timeout(5):
            while (await s.runner.question("status"))["version"] != 2:
                await asyncio.sleep(0.02)
        await s.worker.send("version.refused", owner="default", adapter="default", number=2,
                            why="mismatch 3.0", mismatch_max=3.0, mismatch_mean=0.5)
        told = await s.trainer.until("version.refused")
        assert (told["number"], told["good"]) == (2, 1) and "worker-0 refuses it: mismatch" in (
            told["why"])
        asked = asyncio.create_task(s.runner.question("rollback", owner="default",
                                                      adapter="default", to=1))
        rollback = await s.trainer.until("rollback")
        assert rollback["to"] == 1
        assert (await s.runner.question("status"))["version"] == 1
        await s.trainer.send("rollback.done", rollback.id, version=_fields(version(3)))
        assert await asked == {"number": 3}
        assert (await s.runner.question("status"))["version"] == 3
    play(run)
    assert {v.number: str(v.status) for v in versions(play.dir)} == {
        1: "published", 2: "refused", 3: "published"}
    lines = [json.loads(x) for x in (play.dir / "metrics.jsonl").read_text().splitlines()]
    seen = next(x for x in lines if "mismatch/refused" in x)
    assert (seen["mismatch/canary_max"], seen["mismatch/canary_mean"]) == (3.0, 0.5)
    assert seen["rollout/worker"] == "worker-0"


def test_a_version_that_one_of_two_workers_serves_stays_and_the_other_keeps_the_older(
    play, chat, tmp_path
):
    async def run(s):
        for n in (1, 2):
            await s.trainer.send("version.published", "", record=_fields(version(n, str(tmp_path))))
        other = FakeWorker(s.addresses["workers"], chat, lambda _: "Rome.", name="worker-1", pid=2)
        await other.hello()
        async with asyncio.timeout(8):  # a refusal by the only worker there is would be everyone's
            while len((await s.runner.question("status"))["workers"]) < 2:
                await asyncio.sleep(0.05)
        names = {"owner": "default", "adapter": "default", "number": 2}
        s.worker.version = 1
        await s.worker.send("version.refused", **names, why="canary")
        await other.send("version.loaded", **names, mismatch_max=0.01, mismatch_mean=0.001)
        other.version = 2
        async with asyncio.timeout(8):  # both workers' words have come, and a beat of each since
            while not (note := _note(status := await s.runner.question("status"), 2)) or (
                status["version"] != 2
            ) or sorted(v[2] for w in status["workers"] for v in w["versions"]) != [1, 2]:
                await asyncio.sleep(0.05)
        assert note == "worker-0 refuses it: canary"
        assert not s.trainer.of("version.refused")
        # new requests go to the worker that is up to date
        for i in range(3):
            done = await s.runner.say([user(f"hello {i}")])
            assert done["message"]["content"] == "Rome."
        # that one refuses it as well: it serves nowhere, and the trainer hears of it
        await other.send("version.refused", **names, why="canary")
        told = await s.trainer.until("version.refused")
        assert "worker-0 refuses it" in told["why"] and "worker-1 refuses it" in told["why"]
        assert (await s.runner.question("status"))["version"] == 1
        other.close()
    play(run)


def test_a_trainer_that_did_not_hear_of_a_refusal_is_told_again(play, tmp_path):
    async def run(s):
        for n in (1, 2):
            await s.trainer.send("version.published", "", record=_fields(version(n, str(tmp_path))))
        await s.worker.send("version.refused", owner="default", adapter="default", number=2,
                            why="canary")
        await s.trainer.until("version.refused")
        await s.trainer.hello(versions=[version(n, str(tmp_path)) for n in (1, 2)])
        told = await s.trainer.until("version.refused", count=2)
        assert (told["number"], told["good"]) == (2, 1)
        assert (await s.runner.question("status"))["version"] == 1, "it stays refused"
    play(run)


def test_a_look_that_is_sent_again_is_made_anew_and_a_change_is_answered_as_before(play):
    async def run(s):
        async def ask(type, **fields):
            id = f"q-same-{type}"
            count = len(s.runner.of("reply", id=id)) + 1
            await s.runner.send(type, id, **fields)
            return (await s.runner.until("reply", id=id, count=count)).fields

        start = await s.runner.say([user("hello")])
        assert (await ask("status"))["sessions"]["open"] == 1
        first = await ask("session.end", session=start["trace_id"])
        assert first["ended"] == start["trace_id"]
        assert (await ask("status"))["sessions"]["open"] == 0
        assert await ask("session.end", session=start["trace_id"]) == first
    play(run)


def _note(status, number):
    return next((v["note"] for v in status["versions"] if v["number"] == number), "")


def _fields(record):
    from claw.engine import wire

    return wire.pack(record)[0]


def test_episodes_of_a_group_are_credited_together(play):
    async def run(s):
        opened = []
        for n in range(2):
            reply = await s.runner.question("trace.open", record=_fields(Task("t1", ())),
                                            group="g1")
            trace_id = reply["trace_id"]
            one = await s.runner.say([user("do it")], trace_id=trace_id, sampling={"seed": n})
            await s.runner.question(
                "trace.next", turn_id=one["turn_id"], messages=[user("exit status 1")],
                signals=[{"judge": "tests", "vote": -1, "reason": "failed"}])
            history = [user("do it"), one["message"], user("exit status 1")]
            two = await s.runner.say(history, trace_id=trace_id)
            opened.append((trace_id, one["turn_id"], two["turn_id"]))
            await s.runner.question("trace.end", trace_id=trace_id, end="done", outcome=1.0 - n)
            if n == 0:  # the group's other trace is not even open yet
                assert state(s.run_dir, one["turn_id"]) == "judging"
        lease, samples, _ = await s.trainer.lease(max_samples=4)
        by_turn = {x.turn_id: x for x in samples}
        for (_, one, two), sign in zip(opened, (1, -1), strict=True):
            assert by_turn[one].advantages[0] == pytest.approx(sign, abs=1e-4)
            assert by_turn[two].advantages[0] == pytest.approx(sign, abs=1e-4)
            assert by_turn[one].outcome == (sign + 1) / 2
        await s.trainer.ack(lease, 1)
    play(run, credit__kind="outcome", rollout__n=2, judge__kind="none")


def test_a_runner_that_dies_costs_its_own_episodes_only(play):
    async def run(s):
        doomed = FakeRunner(s.addresses["runners"])
        await doomed.send("runner.hello", plugin="p", pid=1, address="")
        opened = await doomed.question("trace.open", record=_fields(Task("t1", ())), group="")
        one = await doomed.say([user("do it")], trace_id=opened["trace_id"])
        other = await s.runner.say([user("hello")])
        doomed.close()
        assert await settled(s, one["turn_id"]) == "skipped:no_next_state"
        assert state(s.run_dir, other["turn_id"]) == "waiting"
    play(run, wire__dead_after_s=1.0)


def test_forgetting_a_session_leaves_nothing_of_it(play):
    async def run(s):
        first = await s.runner.say([user("the word is swordfish")], session="s1")
        await s.runner.question("feedback", target=first["turn_id"], value=1, text="")
        assert (await s.runner.question("forget", session="s1")) == {
            "forgotten": 1, "learned": [], "carried": [], "back_to": None, "in_step": 0}
        status = await s.runner.question("status")
        assert status["turns"] == {"forgotten": 1} and status["samples"]["waiting"] == 0
        assert (await s.trainer.lease(poll_s=0.2))[1] == []
        return first["turn_id"]
    turn_id = play(run)
    assert "forgotten" in story(play.dir, turn_id)[0]
    assert not any(b"swordfish" in f.read_bytes() for f in play.dir.glob("journal*"))


def test_the_model_judge_may_ask_our_own_workers(play, chat):
    async def run(s):
        s.worker.reply = lambda prompt: (
            "\\boxed{-1}" if "You grade one reply" in prompt else "Paris is big.")
        first = await wrong(s)
        assert await settled(s, first["turn_id"]) == "queued"
        _, samples, _ = await s.trainer.lease()
        assert samples[0].advantages[0] == -1.0
    play(run, judge__kind="model", judge__votes=1, judge__max_hints=0, worker__context=2048,
         worker__slots=8)


def test_sigterm_ends_it_and_tells_the_peers(play):
    async def run(s):
        s.worker.hold.clear()
        id = await s.runner.ask([user("hello")])
        start = await s.runner.until("turn.start", id=id)
        s.process.terminate()
        assert await asyncio.wait_for(s.process.wait(), 10) == 0
        await s.worker.until("stop")
        assert (await s.runner.until("turn.error", id=id))["status"] == 503
        return start["turn_id"]
    turn_id = play(run)
    assert state(play.dir, turn_id).startswith("skipped:")


def test_it_ends_when_its_parent_dies(model_dir, tmp_path, sockets):
    code = f"""
import asyncio, os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from pathlib import Path
from actor_doubles import actor_process, run_config
async def main():
    async with actor_process(run_config(), Path({str(model_dir)!r}), Path({str(tmp_path)!r}),
                             Path({str(sockets)!r})) as process:
        print(process.pid, flush=True)
        await asyncio.sleep(3)
        os._exit(1)
asyncio.run(main())
"""
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            timeout=30)
    pid = int(parent.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        with open(f"/proc/{pid}/stat") as stat:  # a zombie has ended too
            if stat.read().split()[2] == "Z":
                return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the actor outlived its parent")
