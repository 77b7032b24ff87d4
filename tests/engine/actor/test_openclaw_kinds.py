"""What the real OpenClaw sends beside a person's own words, recorded: sub-agents, heartbeats,
cron, titles, probes, compaction. Each request goes the way of a real one."""

import json
from pathlib import Path

import pytest
from claw_env_personal.requests import chat_request

from claw.engine.actor.journal import Journal
from claw.engine.actor.kin import Kin
from claw.engine.actor.kind import Kinds
from claw.engine.actor.place import Place
from claw.engine.actor.session import Sessions
from claw.records import TurnKind

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "openclaw_kinds.json").read_text())
MODEL = "claw-policy"
PARENT = ("hello", "spawn", "spawned", "announced", "after")


def read(name, *, headers=None):
    """Return the Ask of a recorded request."""
    found = RECORDED["requests"][name]
    tools = [{"type": "function", "function": {"name": tool}} for tool in found["tools"]]
    body = found["fields"] | {"messages": found["messages"], "tools": tools}
    return chat_request(body, found["headers"] if headers is None else headers, [MODEL]).ask


def decided(name, *, kind="", **settings):
    ask = read(name)
    return Kinds(**settings).decide(kind, ask.messages, ask.tools, 8192)


def reply(name):
    said = RECORDED["answers"][name]
    plain = {"role": "assistant", "content": None}
    return plain | ({"content": said} if isinstance(said, str) else said)


def played(*names):
    """Place each request and answer it as it was answered; return their places by name."""
    sessions, places, now = Sessions(idle_s=100), {}, 1000.0
    for name in names:
        ask, now = read(name), now + 5
        place = sessions.find(ask.messages, session=ask.session, extra=[ask.tools], now=now)
        trace = place.trace_id or f"trace of {name}"
        if not place.trace_id:
            sessions.open_trace(trace, "default", ask.session, now=now)
        node = sessions.add(place, turn_id=name, trace_id=trace, kind=decided(name)[0],
                            owner="default", session=ask.session, now=now)
        sessions.answer(node, reply(name), str(reply(name)["content"]), now=now)
        places[name] = place
    return places


# --- whose turn it was ---------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rule"), [
    ("heartbeat", "side by text: heartbeat"), ("second_heartbeat", "side by text: heartbeat"),
    ("cron", "side by text: cron"), ("child", "side by text: subagent"),
    ("child_read", "side by text: subagent"), ("title", "side by text: title or summary"),
    ("summary", "side by text: title or summary"), ("probe", "side: probe"),
])
def test_a_recorded_call_that_no_person_made_is_a_side_turn(name, rule):
    assert decided(name) == (TurnKind.SIDE, rule)


@pytest.mark.parametrize("name", ["hello", "spawn", "spawned", "after", "compacted"])
def test_what_the_person_asked_for_is_a_main_turn(name):
    assert decided(name) == (TurnKind.MAIN, "main by default")


def test_a_subagents_result_asks_for_an_answer_that_the_person_reads():
    assert decided("announced") == (TurnKind.MAIN, "main by text: a sub-agent's result")


@pytest.mark.parametrize("helper", ["heartbeat", "cron", "memory", "subagent", "title"])
def test_a_client_may_say_what_a_helper_call_is(helper):
    assert decided("hello", kind=helper) == (TurnKind.SIDE, f"side by name: {helper}")


@pytest.mark.parametrize("kind", ["", "subagent"])
def test_subagents_are_main_turns_where_the_settings_say_so(kind):
    assert decided("child", kind=kind, learns_subagents=True) == (
        TurnKind.MAIN, "main by setting: subagent")
    assert decided("heartbeat", learns_subagents=True)[0] is TurnKind.SIDE


# --- what followed a turn ------------------------------------------------------------------------


def test_a_subagents_result_is_nobodys_word_on_the_reply_before_it():
    place = played(*PARENT)["announced"]
    assert place.parent.turn_id == "spawned" and place.next_state == ()


def test_two_replies_that_come_back_as_one_message_are_the_newer_ones_turn():
    place = played(*PARENT)["after"]
    assert place.answered.turn_id == "announced"
    [said] = place.next_state
    assert said["content"].endswith("And a third quizzical message.")
    assert "Answer 6." not in place.raw.values(), "the joined message is not what was sampled"


def test_lines_that_no_reply_said_make_a_message_somebody_elses():
    requests = RECORDED["requests"]["after"]["messages"]
    mine = next(m for m in requests if m.get("content") == "Answer 3.\nAnswer 6.")
    mine["content"] = "It was him.\nAnswer 3.\nAnswer 6."
    try:
        place = played(*PARENT)["after"]
    finally:
        mine["content"] = "Answer 3.\nAnswer 6."
    assert place.parent.turn_id == "spawn" and place.next_state[0]["role"] == "tool"


def test_a_compacted_history_still_answers_the_newest_reply():
    place = played("first_to_compact", "to_compact", "compacted")["compacted"]
    assert place.answered.turn_id == "to_compact"
    [said] = place.next_state
    assert said["content"].endswith("After the compaction, a quizzical question.")


# --- who asked for whom --------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path)
    yield made
    made.close()


@pytest.fixture
def kin(journal):
    return Kin(journal, lambda owner, session: {"p": "trace p"}.get(session, ""))


CHILD = "agent:main:subagent:a45eb23b-0ea3-4b85-b905-95f6cde91320"


def test_the_childs_own_key_is_the_one_that_the_spawning_calls_result_names(kin):
    assert read("child").key == CHILD
    assert read("hello").key == "agent:main:test"
    assert CHILD in json.dumps(read("spawned").messages)


@pytest.mark.parametrize("first", ["spawned", "child"])
def test_a_subagent_is_linked_to_the_turn_that_asked_for_it_in_either_order(first, kin, journal):
    places = played(*PARENT)
    heard = {"spawned": (places["spawned"], "trace p"),
             "child": (Place("new", ""), "trace c")}
    for name in (first, *(n for n in heard if n != first)):
        kin.heard(read(name), *heard[name])
    assert journal.parent_of("trace c") == ("trace p", "spawn")
    assert journal.children_of("trace p") == [("trace c", "spawn")]
    kin.heard(read("announced"), places["announced"], "trace p")  # the result is history by then
    assert journal.parent_of("trace c") == ("trace p", "spawn")


def test_the_header_of_the_plugin_names_the_parents_session(kin, journal):
    child = read("child", headers={"x-session-id": "c", "x-parent-session-id": "p"})
    kin.heard(child, Place("new", ""), "trace c")
    assert journal.parent_of("trace c") == ("trace p", "")
    kin.heard(read("spawned"), played(*PARENT)["spawned"], "trace p")
    assert journal.parent_of("trace c") == ("trace p", "spawn"), "the turn is learned later"
    kin.heard(child, Place("new", ""), "trace c")
    assert journal.parent_of("trace c") == ("trace p", "spawn"), "and kept"


def test_what_a_tool_read_cannot_make_the_persons_own_conversation_a_child(kin, journal):
    from dataclasses import replace

    kin.heard(read("hello"), Place("new", ""), "trace p")
    read_page = {"role": "tool", "tool_call_id": "call1",
                 "content": '{"childSessionKey": "agent:main:test"}'}
    other = replace(read("hello"), messages=[*read("hello").messages, read_page], key="")
    kin.heard(other, Place("new", ""), "trace evil")
    assert journal.parent_of("trace p") is None


def test_nobody_is_their_own_grandparent_and_owners_stay_apart(kin, journal):
    from dataclasses import replace

    kin.heard(read("spawned"), Place("new", ""), "trace p")
    kin.heard(replace(read("child"), owner="other"), Place("new", ""), "trace o")
    assert journal.parent_of("trace o") is None
    kin.heard(read("child"), Place("new", ""), "trace p")
    assert journal.parent_of("trace p") is None
    journal.put_kin("trace p", "trace c", "")
    kin.heard(read("child"), Place("new", ""), "trace c")
    assert journal.parent_of("trace c") is None


def test_the_descendants_of_a_conversation_are_its_subagents_and_theirs(journal):
    journal.put_kin("b", "a", "")
    journal.put_kin("c", "b", "")
    journal.put_kin("y", "x", "")
    assert journal.descendants(["a"]) == ["a", "b", "c"]
