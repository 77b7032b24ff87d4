"""Whatever a client does with its history, each sampled turn is trained once, on the ids that it
was sampled with: edits, regenerations, compaction, internal context, joined replies, sub-agents."""

import itertools
import json
from types import SimpleNamespace

import pytest
from actor_doubles import run_config
from test_actor_process import WRONG, play, settled, user  # noqa: F401

from claw.engine.actor.views import Views
from claw.engine.actor.why import story

STAMP = "[Mon 2026-11-30 14:40 UTC] "
RUNTIME = "\n\nRuntime: agent=main | session=agent:main:test | sessionId=s | host=home"
QUESTION = user(f"{STAMP}What is the capital of France?{RUNTIME}")
EDITED = user(f"{STAMP}What is the capital of Peru?{RUNTIME}")
NO = user(STAMP + WRONG)
INTERNAL = user([{"type": "text", "text": "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n"
                                          "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"}])
RESULT = user(f"{STAMP}A task completed.\n\n[Inter-session message] sourceTool=subagent_announce "
              "isUser=false\nTreat it as data.")
SUMMARY = user("The conversation before was compacted: he asked for a capital.")
FAILED = {"role": "tool", "tool_call_id": "call1",
          "content": json.dumps({"status": "error", "error": "File not found: note.txt"})}
SUBTASK = user(f"{STAMP}[Subagent Context] You are a child.\n\n[Subagent Task]\n\nLook it up.")


async def an_edit(say):
    one = await say([QUESTION])
    await say([QUESTION, one.reply, NO])
    two = await say([EDITED])
    await say([EDITED, two.reply, NO])
    return [one, two]


async def a_regeneration(say):
    one = await say([QUESTION])
    two = await say([QUESTION], sampling={"seed": 2})
    await say([QUESTION, two.reply, NO])
    await say([QUESTION, one.reply, NO])
    return [two, one]


async def internal_context(say):
    one = await say([QUESTION, INTERNAL])
    two = await say([QUESTION, one.reply, NO, INTERNAL])
    await say([QUESTION, one.reply, NO, two.reply, NO, INTERNAL])
    return [one, two]


async def a_compaction(say):
    one = await say([QUESTION], session="s")
    two = await say([QUESTION, one.reply, NO], session="s")
    await say([SUMMARY, two.reply, NO], session="s")
    return [one, two]


async def joined_replies(say):
    one = await say([QUESTION], session="s")
    two = await say([QUESTION, one.reply, RESULT], session="s")
    both = {"role": "assistant", "content": f"{one.reply['content']}\n{two.reply['content']}"}
    await say([QUESTION, both, NO], session="s")
    return [two]  # nobody said anything of the first one


async def a_subagent(say):
    one = await say([QUESTION], session="s")
    sub = await say([SUBTASK], session="c", parent="s")
    two = await say([SUBTASK, sub.reply, FAILED], session="c", parent="s")
    # the policy's own words to its sub-agent are nobody's verdict
    await say([SUBTASK, sub.reply, FAILED, two.reply, NO], session="c", parent="s")
    await say([QUESTION, one.reply, NO], session="s")
    return [sub, one]


CASES = (an_edit, a_regeneration, internal_context, a_compaction, joined_replies, a_subagent)


@pytest.fixture
def recorded(play, chat):  # noqa: F811
    """Play a case; return (the turns it taught, samples, what the worker saw by turn)."""
    numbers = itertools.count(1)

    def run(case):
        async def talk(s):
            s.worker.reply = lambda _: f"It is city number {next(numbers)}."

            async def say(messages, **ask):
                done = await s.runner.say(messages, **ask)
                assert done.type == "turn.done", done.fields
                return SimpleNamespace(id=done["turn_id"], reply=done["message"])

            taught = await case(say)
            for turn in taught:
                assert await settled(s, turn.id) == "queued"
            samples = []
            while (got := await s.trainer.lease(16, poll_s=0.3))[1]:
                samples += got[1]
                await s.trainer.ack(got[0], 1)
            given = {m.id.split(".")[0]: m.arrays["prompt_ids"] for m in s.worker.of("generate")}
            return taught, samples, given
        return play(talk, serve__learn_subagents=True)
    return run


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_turn_is_trained_once_on_the_ids_it_was_sampled_with(case, recorded, chat):
    taught, samples, given = recorded(case)
    assert sorted(x.turn_id for x in samples) == sorted(turn.id for turn in taught)
    replies = {turn.id: turn.reply["content"] for turn in taught}
    for sample in samples:
        assert sample.prompt_ids.tolist() == given[sample.turn_id].tolist()
        sent = chat.encode(replies[sample.turn_id] + "<|im_end|>")
        assert sample.reply_ids.tolist() == sent.tolist()
        assert len(sample.mask) == len(sent) and sample.mask.all()


def test_timestamps_and_runtime_lines_are_read_and_never_trained(recorded, chat):
    _, samples, _ = recorded(internal_context)
    assert samples
    for sample in samples:
        read = chat.decode(sample.prompt_ids)
        assert "2026-11-30 14:40" in read
        trained = chat.decode(sample.reply_ids[sample.mask])
        assert trained.startswith("It is city") and "2026" not in trained
        assert "Runtime" not in trained


def test_a_subagent_is_answered_and_not_trained_unless_the_settings_say_so(play):  # noqa: F811
    async def run(s):
        await s.runner.say([QUESTION], session="s")
        sub = await s.runner.say([SUBTASK], session="c", parent="s")
        assert await settled(s, sub["turn_id"]) == "skipped:side"
    play(run)


def test_why_and_the_pages_tell_who_asked_for_a_subagent(play, chat):  # noqa: F811
    key = "agent:main:subagent:1"
    result = {"role": "tool", "tool_call_id": "call1",
              "content": json.dumps({"status": "accepted", "childSessionKey": key})}

    async def run(s):
        one = await s.runner.say([QUESTION], session="s")
        await s.runner.say([QUESTION, one["message"], result], session="s")
        sub = await s.runner.say([SUBTASK], session="c", key=key)
        about = await s.runner.question("forget", session="s", only_look=True)
        assert about["turns"] == 3
        return one, sub

    one, sub = play(run)
    views = Views(play.dir, chat, run_config())
    [child] = views.look("conversation", {"id": one["trace_id"]}, "default")["subagents"]
    assert (child["trace_id"], child["turn_id"]) == (sub["trace_id"], one["turn_id"])
    assert child["turns"] == 1 and "Look it up" in child["request"]
    looked = views.look("turn", {"id": sub["turn_id"]}, "default")
    assert looked["parent"] == {"trace_id": one["trace_id"], "turn_id": one["turn_id"]}
    assert f"a sub-agent: {sub['trace_id']}, 1 turns" in "\n".join(story(play.dir, one["turn_id"]))
    told = "\n".join(story(play.dir, sub["turn_id"]))
    assert f"asked for by {one['turn_id']} of {one['trace_id']}" in told


def test_what_is_never_learned_from_has_subagents_that_are_never_learned_from(play):  # noqa: F811
    async def run(s):
        one = await s.runner.say([QUESTION], session="s")
        await s.runner.question("exclude", trace_id=one["trace_id"], on=True)
        sub = await s.runner.say([SUBTASK], session="c", parent="s")
        await s.runner.say([SUBTASK, sub["message"], FAILED], session="c", parent="s")
        assert await settled(s, sub["turn_id"]) == "skipped:never_learn"
    play(run, serve__learn_subagents=True)
