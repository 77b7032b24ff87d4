"""Which conversation is this request, and what does it say about the turns before?"""

import json

import pytest

from claw.engine.actor import session as session_module
from claw.engine.actor.kind import Kinds
from claw.engine.actor.names import Names
from claw.engine.actor.session import Sessions
from claw.records import TurnKind
from claw.sdk.app import Ask

BEGIN, END = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def user(text):
    return {"role": "user", "content": text}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, id="call1"):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


class Talk:
    """Plays requests against the resolver at chosen times."""

    def __init__(self):
        self.sessions = Sessions(idle_s=100)
        self.now, self.count = 1000.0, 0

    def ask(self, messages, reply=None, *, kind=TurnKind.MAIN, after=10.0, **found):
        """Find a request's place, open its turn and, with a reply, answer it."""
        self.now += after
        place = self.sessions.find(messages, now=self.now, **found)
        if place.retry_of is not None:
            return place
        self.count += 1
        trace = place.trace_id or f"trace{self.count}"
        if not place.trace_id:
            self.sessions.open_trace(trace, "default", found.get("session", ""), now=self.now)
        self.node = self.sessions.add(place, turn_id=f"turn{self.count}", trace_id=trace,
                                      kind=kind, owner="default",
                                      session=found.get("session", ""), now=self.now)
        if reply is not None:
            self.sessions.answer(self.node, reply, str(reply.get("content")), now=self.now)
        return place


def test_two_interleaved_chats_without_headers_stay_apart():
    talk = Talk()
    a, b = [user("plan a trip")], [user("fix my code")]
    assert talk.ask(a, said("to Rome?")).rule == "new"
    assert talk.ask(b, said("which line?")).rule == "new"
    a += [said("to Rome?"), user("no, Oslo")]
    b += [said("which line?"), user("line 3")]
    to_a, to_b = talk.ask(a, said("Oslo then")), talk.ask(b, said("done"))
    assert (to_a.trace_id, to_a.answered.turn_id) == ("trace1", "turn1")
    assert (to_b.trace_id, to_b.answered.turn_id) == ("trace2", "turn2")
    assert to_a.next_state == (user("no, Oslo"),)
    assert to_b.next_state == (user("line 3"),)
    a += [said("Oslo then"), user("thanks")]
    assert talk.ask(a).answered.turn_id == "turn3"


def test_all_results_of_parallel_tool_calls_are_one_next_state():
    talk = Talk()
    reply = said(None, tool_calls=[call("ls", {"p": "/"}, "call_a"), call("cat", {"f": "x"}, "b")])
    talk.ask([user("look")], reply)
    results = [{"role": "tool", "tool_call_id": "calla", "content": "bin"},
               {"role": "tool", "tool_call_id": "b", "content": "hello"}]
    place = talk.ask([user("look"), reply, *results])
    assert place.next_state == tuple(results)


def test_a_reply_comes_back_as_clients_write_it():
    talk = Talk()
    own = said("I look.\n", tool_calls=[call("ls", {"a": 1, "b": 2}, "call_1-x")],
               reasoning_content="hm")
    talk.ask([user("look")], own)
    arguments = '{"b": 2,   "a": 1}'
    theirs = said(None, tool_calls=[{"id": "call1x", "type": "function",
                                     "function": {"name": "ls", "arguments": arguments}}])
    result = {"role": "tool", "tool_call_id": "call1x", "content": "ok"}
    assert talk.ask([user("look"), theirs, result]).answered.turn_id == "turn1"
    talk.ask([user("hi there")], said("  Hello!\n", reasoning_content="polite"))
    assert talk.ask([user("hi there"), said("Hello!"), user("more")]).answered.turn_id == "turn3"


def test_rewritten_call_ids_do_not_hide_the_turns_behind_a_tool_result():
    talk, reply = Talk(), said(None, tool_calls=[call("ls", {}, "call_a-1")])
    result = {"role": "tool", "tool_call_id": "call_a-1", "content": "bin"}
    talk.ask([user("look")], reply)
    talk.ask([user("look"), reply, result], said("one folder"))
    theirs = {**result, "tool_call_id": "calla1"}
    place = talk.ask([user("look"), reply, theirs, said("one folder"), user("wrong")])
    assert place.answered.turn_id == "turn2"


def test_the_longest_match_wins():
    talk = Talk()
    talk.ask([user("a")], said("1"))
    talk.ask([user("a"), said("1"), user("b")], said("2"))
    place = talk.ask([user("a"), said("1"), user("b"), said("2"), user("c")])
    assert place.answered.turn_id == "turn2" and place.parent.index == 1


def test_an_edit_is_a_branch_of_the_same_trace():
    talk = Talk()
    talk.ask([user("a")], said("1"))
    talk.ask([user("a"), said("1"), user("b")], said("2"))
    edit = talk.ask([user("a"), said("1"), user("b, but shorter")], said("3"))
    assert (edit.trace_id, edit.parent.turn_id) == ("trace1", "turn1")
    after = talk.ask([user("a"), said("1"), user("b, but shorter"), said("3"), user("c")])
    assert after.answered.turn_id == "turn3"


def test_a_regeneration_is_a_branch_and_a_quick_repetition_a_retry():
    talk = Talk()
    request = [user("a"), said("x"), user("b")]
    talk.ask([user("a")], said("x"))
    talk.ask(request, said("y"))
    retry = talk.ask(request, after=1.0)
    assert retry.rule == "retry" and retry.retry_of.turn_id == "turn2"
    again = talk.ask(request, said("z"), after=session_module.RETRY_S + 1)
    assert again.rule == "regenerated" and again.trace_id == "trace1"
    first = talk.ask([user("a")], said("x2"), after=50)
    assert first.rule == "regenerated" and first.trace_id == "trace1"


def test_an_unanswered_request_sent_again_is_a_retry_however_late():
    talk = Talk()
    talk.ask([user("slow")])
    assert talk.ask([user("slow")], after=90).rule == "retry"
    talk.sessions.fail(talk.node)
    assert talk.ask([user("slow")]).rule != "retry"


def test_another_seed_or_tool_is_no_retry():
    talk = Talk()
    talk.ask([user("a")], extra={"seed": 1})
    assert talk.ask([user("a")], extra={"seed": 2}, after=0.1).rule != "retry"


def test_internal_context_is_nobodys_word_and_no_obstacle():
    talk = Talk()
    internal = user([{"type": "text", "text": f"{BEGIN}\nsubagents: none\n{END}"}])
    talk.ask([user("hello"), internal], said("hi"))
    place = talk.ask([user("hello"), said("hi"), user(f"wrong!\n{BEGIN}x{END}"), internal])
    assert place.answered.turn_id == "turn1"
    assert place.next_state == (user("wrong!"),)


def test_a_request_that_ends_with_our_reply_says_nothing_about_it():
    talk = Talk()
    talk.ask([user("a")], said("1"))
    assert talk.ask([user("a"), said("1")]).next_state == ()


def test_words_of_another_assistant_end_the_next_state():
    talk = Talk()
    talk.ask([user("a")], said("1"))
    place = talk.ask([user("a"), said("1"), user("b"), said("foreign"), user("c")])
    assert place.answered.turn_id == "turn1" and place.next_state == (user("b"),)


def test_a_helper_turn_in_between_passes_the_next_state_on():
    talk = Talk()
    talk.ask([user("a")], said("1"))
    beat = [user("a"), said("1"), user("heartbeat")]
    talk.ask(beat, said("HEARTBEAT_OK"), kind=TurnKind.SIDE)
    place = talk.ask([*beat, said("HEARTBEAT_OK"), user("now b")])
    assert place.answered.turn_id == "turn1" and place.next_state == (user("now b"),)


def test_a_named_session_keeps_its_trace_when_history_is_compacted():
    talk = Talk()
    talk.ask([user("a")], said("1"), session="s")
    place = talk.ask([user("summary of all before"), said("1"), user("b")], said("2"), session="s")
    assert place.trace_id == "trace1" and place.answered.turn_id == "turn1"
    lost = talk.ask([user("a wholly new history")], session="s")
    assert lost.trace_id == "trace1" and lost.answered is None


def test_equal_words_in_two_named_sessions_and_of_two_owners_stay_apart():
    talk = Talk()
    talk.ask([user("a")], said("1"), session="s")
    assert talk.ask([user("a")], said("1"), session="t").rule == "new"
    place = talk.ask([user("a"), said("1"), user("b")], session="s")
    assert place.answered.turn_id == "turn1"
    assert talk.ask([user("a"), said("1"), user("b")], owner="other").rule == "new"


def test_lone_surrogates_nul_and_long_lines_are_matched_like_others():
    talk = Talk()
    strange = "\ud83c \udc9d \x00 \x1b[31m" + "x" * 1_000_000
    talk.ask([user(strange)], said("\udc9d!"))
    assert talk.ask([user(strange), said("\udc9d!"), user("b")]).answered.turn_id == "turn1"


def test_idle_conversations_are_found_oldest_first_and_episodes_never():
    talk = Talk()
    talk.ask([user("a")], said("1"))
    talk.sessions.open_trace("episode", "default", is_episode=True, now=talk.now)
    talk.ask([user("b")], said("1"), after=60)
    assert talk.sessions.idle(talk.now + 50) == ["trace1"]
    assert talk.sessions.idle(talk.now + 1000) == ["trace2"]
    late = talk.ask([user("a"), said("1"), user("that was wrong")], after=5000)
    assert late.answered.turn_id == "turn1" and late.trace_id == "trace1"


def test_abandoned_conversations_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(session_module, "MAX_TRACES", 50)
    talk, gone = Talk(), 0
    for i in range(300):
        place = talk.sessions.find([user(f"hello {i}")], now=talk.now)
        gone += len(talk.sessions.open_trace(f"t{i}", "default", now=talk.now))
        node = talk.sessions.add(place, turn_id=f"u{i}", trace_id=f"t{i}", kind=TurnKind.MAIN,
                                 owner="default", now=talk.now)
        talk.sessions.answer(node, said("hi"), "hi", now=talk.now)
    s = talk.sessions
    assert len(s) == 50 and gone == 250
    assert max(len(s._replies), len(s._requests), len(s._digests), s._num_nodes) == 50


@pytest.mark.parametrize(("messages", "tools", "max_tokens", "given", "kind"), [
    ([user("hello")], [], 512, "", "main"),
    ([user("hello")], [], 512, "side", "side"),
    ([user("Reply HEARTBEAT_OK, says the prompt")], [], 512, "main", "main"),
    ([user("Please add my mail checks to HEARTBEAT.md.")], [{}], 512, "", "main"),
    ([user("[OpenClaw heartbeat poll] Read HEARTBEAT.md if it exists.")], [{}], 512, "", "side"),
    ([user("ping")], [], 1, "", "side"),
    ([user("Generate a short title for this conversation")], [], 50, "", "side"),
    ([{"role": "system", "content": "Summarize the conversation below in one line."},
      user("user: hi\nassistant: hello")], [], 50, "", "side"),
    ([user("a"), said("b"), user("Please summarize our conversation so far.")], [], 512, "",
     "main"),
    ([user("Generate a title for my thesis on bees")], [], 512, "", "main"),
    ([user("a"), said("b"), user("Read HEARTBEAT.md; if nothing, answer HEARTBEAT_OK")], [], 99,
     "", "side"),
    ([user("Hi")], [], 16, "", "side"),
    ([user("x")], [], 16, "", "main"),
    ([{"role": "system", "content": "You are an assistant."},
      user("[Mon 2026-11-30 00:37 UTC] [cron:7f3a daily] Send the weather.")], [{}], 512, "",
     "side"),
    ([user("[Mon 2026-11-30 00:37 UTC] what does [cron:x] mean?")], [{}], 512, "", "main"),
    ([user("a"), said("b"), user("Pre-compaction memory flush. Store durable memories now.")],
     [{}], 512, "", "side"),
    ([user("[Mon 2026-11-30 00:37 UTC] [Subagent Context] You are a child.\n[Subagent Task] Look"),
      said("b"), {"role": "tool", "content": "c", "tool_call_id": "d"}], [{}], 512, "", "side"),
    ([user("[Subagent Context] You are a child.\n[Subagent Task] Look"), said("b"),
      user("go on")], [{}], 512, "", "side"),
    ([{"role": "system", "content": "You are a context summarization assistant. Your task is to "
       "read a conversation between a user and an AI assistant, then produce a summary."},
      user("<conversation>\nuser: hi\n</conversation>\nThe messages above are a conversation.")],
     [], 512, "", "side"),
    ([{"role": "system", "content": "Generate a concise session title (3-6 words) from the "
       "user's first message."}, user("How do I grow tomatoes?")], [], 64, "", "side"),
])
def test_helper_calls_are_told_from_a_persons_own(messages, tools, max_tokens, given, kind):
    assert str(Kinds().decide(given, messages, tools, max_tokens)[0]) == kind


def test_many_requests_and_none_trainable_is_said_with_the_cause():
    kinds = Kinds()
    for _ in range(9):
        kinds.decide("side", [user("x")], [], 9)
    assert kinds.warning() == ""
    kinds.decide("side", [user("x")], [], 9)
    assert "10 requests, none trainable" in kinds.warning()
    assert "10 side by name" in kinds.warning()
    kinds.decide("", [user("x")], [], 9)
    assert kinds.warning() == ""


def test_requests_are_counted_by_the_mark_that_named_their_conversation():
    names, plain = Names(), [user("hi")]
    openclaw = [{"role": "system", "content": "<!-- openclaw:attempt:STABLE -->\nYou are"}, *plain]
    for ask in (Ask(plain), Ask(plain, session="s"), Ask(plain, session="s", named_by="affinity"),
                Ask(openclaw, session="s", named_by="runtime line")):
        names.count(ask)
    assert names.counts == {"content": 1, "name": 1, "affinity": 1, "runtime line": 1}
    assert names.warning() == ""
    names.count(Ask(openclaw))
    assert "1 requests of OpenClaw named no session" in names.warning()
    assert "claw serve --openclaw" in names.warning()


def test_of_equal_histories_the_one_with_the_same_system_prompt_is_continued():
    talk = Talk()
    for name in ("cook", "coder"):
        system = {"role": "system", "content": f"You are a {name}."}
        talk.ask([system, user("hi")], said("Hello!"))
    cook = {"role": "system", "content": "You are a cook."}
    place = talk.ask([cook, user("hi"), said("Hello!"), user("soup?")])
    assert place.answered.turn_id == "turn1"
    changed = {"role": "system", "content": "You are a cook. It is Tuesday."}
    place = talk.ask([changed, user("hi"), said("Hello!"), user("soup?")])
    assert place.answered is not None


def test_an_end_that_could_not_be_written_is_told_again() -> None:
    talk = Talk()
    for trace in ("a", "b"):
        talk.sessions.open_trace(trace, "default", now=talk.now)
    assert talk.sessions.idle(talk.now + 1000) == ["a", "b"]
    assert talk.sessions.idle(talk.now + 1001) == []
    talk.sessions.not_idle(["b"])
    assert talk.sessions.idle(talk.now + 1002) == ["b"]
