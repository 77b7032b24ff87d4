"""What the real OpenClaw sends, recorded: sessions, next states, side turns.

Each request goes the way of a real one: the plugin reads it, the resolver places it.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from claw_env_personal.requests import chat_request

from claw.engine.actor import speech
from claw.engine.actor.kind import Kinds
from claw.engine.actor.names import Names
from claw.engine.actor.session import Sessions
from claw.records import TurnKind

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "openclaw_session.json").read_text())
MODEL = "claw-policy"
STAMP = "[Mon 2026-11-30 14:40 UTC] "


def read(number, *, headers=None, last=None, **fields):
    """Return the Ask of one recorded request; `last` replaces the person's newest words."""
    recorded = RECORDED["requests"][number]
    messages = [{"role": "system", "content": RECORDED["system"]}, *recorded["messages"]]
    if last is not None:
        messages[-2] = {"role": "user", "content": last}
    body = recorded["fields"] | {"messages": messages, "tools": RECORDED["tools"]} | fields
    given = recorded["headers"] if headers is None else headers
    return chat_request(body, given, [MODEL]).ask


def reply(number):
    said = RECORDED["answers"][number]
    plain = {"role": "assistant", "content": None}
    return plain | ({"content": said} if isinstance(said, str) else said)


@pytest.fixture
def played():
    """All four requests, each answered as it was: their places and turns."""
    sessions, places, now = Sessions(idle_s=100), [], 1000.0
    for number in range(4):
        ask, now = read(number), now + 5
        place = sessions.find(ask.messages, session=ask.session, extra=[ask.tools], now=now)
        trace = place.trace_id or "trace"
        if not place.trace_id:
            sessions.open_trace(trace, "default", ask.session, now=now)
        node = sessions.add(place, turn_id=f"turn{number}", trace_id=trace, kind=TurnKind.MAIN,
                            owner="default", session=ask.session, now=now)
        sessions.answer(node, reply(number), str(reply(number)["content"]), now=now)
        places.append(place)
    return SimpleNamespace(places=places, sessions=sessions)


def test_a_request_of_an_agent_is_large_and_brings_twelve_tools():
    ask = read(0)
    assert len(json.dumps([ask.messages, ask.tools])) > 35_000
    assert sorted(t["function"]["name"] for t in ask.tools) == [
        "apply_patch", "edit", "exec", "ls", "openclaw", "process", "read", "sessions_yield",
        "tool_call", "tool_describe", "tool_search", "write"]


def test_the_last_message_is_internal_context_and_never_the_persons_reply(played):
    assert all(speech.is_internal(read(n).messages[-1]) for n in range(4))
    [said] = played.places[1].next_state
    assert said == {"role": "user", "content": "[Mon 2026-11-30 14:37 UTC] use tool please"}
    [thanks] = played.places[3].next_state
    assert thanks["content"].endswith("third message")


def test_no_next_state_and_no_word_for_a_judge_holds_internal_context(played):
    shown = json.dumps([p.next_state for p in played.places])
    shown += json.dumps([speech.words(read(n).messages) for n in range(4)])
    assert "OPENCLAW_INTERNAL" not in shown and "Active Subagents" not in shown


def test_requests_are_no_pure_appends_and_continue_the_turn_all_the_same(played):
    first, second = read(0).messages, read(1).messages
    assert second[: len(first)] != first
    assert [p.parent.turn_id if p.parent else "" for p in played.places] == [
        "", "turn0", "turn1", "turn2"]
    assert [p.answered.turn_id if p.answered else "" for p in played.places] == [
        "", "turn0", "turn1", "turn2"]


def test_a_history_that_is_no_append_is_rendered_anew_and_keeps_no_foreign_ids(chat):
    first, second = read(0), read(1)
    prompt = chat.prompt(first.messages, first.tools)
    sampled = chat.encode("Answer 2.<|im_end|>")
    known = chat.known(prompt.ids, prompt.chars, prompt.digest, sampled)
    again = chat.prompt(second.messages, second.tools, known, {2: "Answer 2."})
    assert again.rule.startswith("whole: the template changes the history")
    assert again.ids.tolist() == chat.prompt(second.messages, second.tools).ids.tolist()


def test_rewritten_ids_of_calls_are_the_same_calls(played):
    ours, theirs = reply(1)["tool_calls"][0]["id"], read(2).messages[-3]["tool_calls"][0]["id"]
    assert ours != theirs
    place = played.places[2]
    assert place.answered.turn_id == "turn1"
    assert [m["role"] for m in place.next_state] == ["tool"]
    assert "File not found" in place.next_state[0]["content"]


def test_each_of_the_three_marks_names_the_same_session():
    affinity, cache_key = read(0), read(0, headers={})
    line = read(0, headers={}, prompt_cache_key=None)
    own = read(0, headers={"x-session-id": affinity.session})
    assert len({a.session for a in (affinity, cache_key, line, own)}) == 1
    assert [a.named_by for a in (own, affinity, cache_key, line)] == [
        "name", "affinity", "affinity", "runtime line"]
    names = Names()
    names.count(line)
    assert names.warning() == ""


def test_without_any_mark_the_session_is_found_by_content_and_that_is_said():
    ask = read(0, headers={}, prompt_cache_key=None, last="hello")
    names = Names()
    names.count(ask)
    assert ask.session == "" and "named no session" in names.warning()


@pytest.mark.parametrize(("words", "rule"), [
    ("[OpenClaw heartbeat poll] Read HEARTBEAT.md if it exists. If nothing needs attention, "
     "reply HEARTBEAT_OK.", "heartbeat"),
    ("[cron:8c1d weather] Send me the weather.", "cron"),
    ("Pre-compaction memory flush. Store durable memories only in memory/2026-11-30.md.",
     "memory flush"),
    ("[Subagent Context] You are running as a subagent (depth 1/1).\n[Subagent Task] Look it up.",
     "subagent"),
])
@pytest.mark.parametrize("stamp", ["", STAMP])
@pytest.mark.parametrize("number", [0, 3])
def test_calls_that_no_person_made_are_side_turns_and_say_why(words, rule, stamp, number):
    ask = read(number, last=stamp + words)
    assert Kinds().decide("", ask.messages, ask.tools, 8192) == (
        TurnKind.SIDE, f"side by text: {rule}")


def test_what_the_person_says_is_a_main_turn():
    for number in range(4):
        ask = read(number)
        assert Kinds().decide("", ask.messages, ask.tools, 8192)[0] is TurnKind.MAIN


def test_the_probe_of_the_first_set_up_is_no_persons_turn():
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16}
    ask = chat_request(body, {"user-agent": "OpenAI/JS 7.15.0"}, [MODEL]).ask
    assert Kinds().decide("", ask.messages, ask.tools, 16) == (TurnKind.SIDE, "side: probe")
