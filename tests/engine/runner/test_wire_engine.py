"""The engine over ipc, against an actor that can be slow, rude, restarted or gone."""

import asyncio
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from runner_doubles import FakeActor, error, start, text, text_answer

from claw.engine import wire
from claw.engine.runner import link
from claw.engine.runner import pending as pending_module
from claw.engine.runner.engine import WireEngine
from claw.engine.runner.pending import Pending
from claw.engine.runner.result import Result
from claw.engine.wire import Message
from claw.records import End, Signal, Task
from claw.sdk import Ask, EngineError

HELLO = Ask([{"role": "user", "content": "hello"}])


@pytest.fixture
def address(tmp_path):
    return f"ipc://{tmp_path}/runners"


@asynccontextmanager
async def engine_at(address, **settings):
    engine = WireEngine(address, plugin="double", **({"heartbeat_s": 0.1} | settings))
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


async def collect(engine, ask=HELLO, **rest):
    return [event async for event in engine.ask(ask, **rest)]


def run(work):
    asyncio.run(asyncio.wait_for(work, 30))


def test_an_answer_streams_through(address):
    async def work():
        async with FakeActor(address) as actor, engine_at(address) as engine:
            events = await collect(engine, trace_id="trace_9")
            assert [e.type for e in events] == ["start", "text", "text", "done"]
            assert events[0].turn_id == events[-1].turn_id == "turn_1"
            assert [t["logprob"] for e in events for t in e.tokens] == [-0.1, -0.1]
            assert events[-1].message["content"] == "hello there"
            assert (events[-1].version, events[-1].usage["completion_tokens"]) == (7, 2)
            asked = actor.of("turn.ask")[0]
            assert asked["trace_id"] == "trace_9"
            assert wire.read_record(asked, Ask).messages == HELLO.messages
            hello = (await actor.until("runner.hello"))[0]
            assert hello["plugin"] == "double"
            assert actor.of("turn.cancel") == []
            await actor.until("runner.beat")

    run(work())


def test_a_connection_that_is_there_at_once_is_greeted_too(address, monkeypatch):
    """The actor listens already, and is met before the runner looks at its own socket again."""
    def slow(*args, **more):
        made = wire.open_socket(*args, **more)
        time.sleep(0.3)
        return made

    async def work():
        async with FakeActor(address) as actor:
            monkeypatch.setattr(link, "wire", SimpleNamespace(**vars(wire) | {"open_socket": slow}))
            async with engine_at(address) as engine:
                assert (await actor.until("runner.hello", seconds=5))[0]["plugin"] == "double"
                assert (await collect(engine))[-1].type == "done"

    run(work())


def test_closing_early_cancels_by_id(address):
    async def work():
        script = lambda _, m: [start(m), text(m, "one")]  # noqa: E731
        async with FakeActor(address, script) as actor, engine_at(address) as engine:
            events = engine.ask(HELLO)
            assert (await anext(events)).type == "start"
            await events.aclose()
            cancelled = (await actor.until("turn.cancel"))[0]
            assert cancelled.id == actor.of("turn.ask")[0].id

    run(work())


def test_an_error_keeps_its_status_type_code_and_retry_after(address):
    async def work():
        script = lambda _, m: [error(m, 429, type="rate_limit_error", code="full",  # noqa: E731
                                     param="p", retry_after_s=2.5)]
        async with FakeActor(address, script) as actor, engine_at(address) as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine)
            e = caught.value
            assert (e.status, e.type, e.code, e.param, e.retry_after_s) == (
                429, "rate_limit_error", "full", "p", 2.5
            )
            await asyncio.sleep(0.05)
            assert actor.of("turn.cancel") == []

    run(work())


def test_a_deadline_ends_a_wait_and_cancels(address, monkeypatch):
    monkeypatch.setattr("claw.engine.runner.engine.GRACE_S", 0.0)

    async def work():
        async with FakeActor(address, lambda _, m: []) as actor, engine_at(address) as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine, Ask(HELLO.messages, deadline_s=0.2))
            assert caught.value.status == 504
            await actor.until("turn.cancel")

    run(work())


def test_an_actor_that_never_comes_is_a_503_with_retry_after(address):
    async def work():
        async with engine_at(address, dead_after_s=0.3) as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine)
            assert (caught.value.status, caught.value.code) == (503, "engine_unavailable")
            assert caught.value.retry_after_s
            began = time.monotonic()
            with pytest.raises(EngineError):  # known by now: no second wait
                await engine.status()
            assert time.monotonic() - began < 0.2

    run(work())


def test_a_hung_actor_is_noticed_although_its_socket_is_open(address):
    async def work():
        async with FakeActor(address) as actor:
            actor._answers = lambda message: []
            async with engine_at(address, dead_after_s=0.4) as engine:
                with pytest.raises(EngineError) as caught:
                    await collect(engine)
                assert caught.value.code == "engine_unavailable"
                del actor._answers  # it wakes up
                await asyncio.sleep(0.5)
                assert (await collect(engine))[-1].type == "done"

    run(work())


def test_a_long_prefill_is_no_silence(address):
    async def work():
        actor_at = FakeActor(address, lambda _, m: [])
        async with actor_at as actor, engine_at(address, dead_after_s=1.0) as engine:
            asking = asyncio.create_task(collect(engine))
            asked = (await actor.until("turn.ask"))[0]
            await asyncio.sleep(2.0)
            for message in text_answer(asked, "late"):
                await actor.send(message)
            assert (await asking)[-1].message["content"] == "late"

    run(work())


def test_a_request_that_waits_is_sent_again_to_a_restarted_actor(address):
    async def work():
        async with engine_at(address) as engine:
            async with FakeActor(address, lambda _, m: [start(m, "turn_old")]) as first:
                asking = asyncio.create_task(collect(engine))
                await first.until("turn.ask")
            await asyncio.sleep(0.2)
            async with FakeActor(address) as second:
                events = await asking
                assert [e.type for e in events] == ["start", "text", "text", "done"]
                assert {e.turn_id for e in events} == {"turn_1"}
                assert {m.id for m in second.of("turn.ask")} == {first.of("turn.ask")[0].id}
                assert second.of("runner.hello")

    run(work())


async def told_twice(address, once, again):
    """Ask an actor that is replaced after three events; return all events."""
    async with engine_at(address) as engine:
        events = []

        async def read():
            async for event in engine.ask(HELLO):
                events.append(event)

        async with FakeActor(address, lambda _, m: once(m)) as first:
            reading = asyncio.create_task(read())
            await first.until("turn.ask")
            while len(events) < 3:
                await asyncio.sleep(0.01)
        async with FakeActor(address, lambda _, m: again(m)):
            await reading
        return events


@pytest.mark.parametrize("words", [("one", " two", " three"), ("one two", " three")])
def test_an_answer_that_is_told_again_is_heard_once(address, words):
    async def work():
        events = await told_twice(
            address, lambda m: [start(m), text(m, "one"), text(m, " two")],
            lambda m: text_answer(m, *words))
        assert "".join(e.text for e in events) == "one two three"
        assert [e.type for e in events].count("start") == 1
        assert events[-1].message["content"] == "one two three"

    run(work())


HEAD = {"index": 0, "id": "callA", "name": "ls", "arguments": ""}
MORE = {"index": 0, "arguments": "{}"}


def told_calls(m, *parts):
    return Message("turn.text", m.id, {"text": "", "calls": list(parts)})


def test_calls_that_are_told_again_are_heard_once(address):
    async def work():
        events = await told_twice(
            address, lambda m: [start(m), text(m, "one"), told_calls(m, HEAD, MORE)],
            lambda m: [start(m), text(m, "one"), told_calls(m, HEAD), told_calls(m, MORE, MORE),
                       *text_answer(m, "one")[-1:]])
        assert [part for e in events for part in e.calls] == [HEAD, MORE, MORE]
        assert events[-1].type == "done"

    run(work())


@pytest.mark.parametrize("parts", [[], [HEAD | {"id": "callB"}]])
def test_a_call_that_is_made_anew_cannot_be_continued(address, parts):
    async def work():
        with pytest.raises(EngineError) as failed:
            await told_twice(
                address, lambda m: [start(m), text(m, "one"), told_calls(m, HEAD)],
                lambda m: [start(m), text(m, "one"), told_calls(m, *parts),
                           *text_answer(m, "one")[-1:]])
        assert failed.value.status == 503

    run(work())


def test_thinking_that_is_told_again_is_heard_once(address):
    def thinking(message, words):
        return Message("turn.text", message.id, {"text": "", "reasoning": words, "tokens": []})

    async def work():
        events = await told_twice(
            address, lambda m: [start(m), thinking(m, "two and "), text(m, "one")],
            lambda m: [start(m), thinking(m, "two and"), thinking(m, " "),
                       *text_answer(m, "one", " two")[1:]])
        assert "".join(e.reasoning for e in events) == "two and "
        assert "".join(e.text for e in events) == "one two"

    run(work())


@pytest.mark.parametrize("again", [
    lambda m: text_answer(m, "two", " three"),
    lambda m: text_answer(m, "one", " two", turn_id="turn_2"),
])
def test_an_answer_that_cannot_be_continued_is_a_503(address, again):
    async def work():
        async with engine_at(address) as engine:
            async with FakeActor(address, lambda _, m: [start(m), text(m, "one")]) as first:
                events = engine.ask(HELLO)
                assert [(await anext(events)).type for _ in range(2)] == ["start", "text"]
                await first.until("turn.ask")
            async with FakeActor(address, lambda _, m: again(m)):
                with pytest.raises(EngineError, match="restarted") as caught:
                    await anext(events)
                assert caught.value.status == 503

    run(work())


def test_garbage_from_the_actor_is_survived(address):
    async def work():
        async with FakeActor(address) as actor, engine_at(address) as engine:
            await actor.until("runner.hello")
            await actor.send_raw(b"\xc1 not msgpack")
            await actor.send(Message("turn.text", "nobody", {"text": 5}))
            assert (await collect(engine))[-1].type == "done"

    run(work())


@pytest.mark.parametrize("answer", [
    Message("turn.start", "", {}), Message("turn.text", "", {"tokens": []}),
    Message("error", "", {"text": "unknown type"}),
])
def test_an_answer_that_makes_no_sense_is_a_500(address, answer):
    async def work():
        script = lambda _, m: [Message(answer.type, m.id, answer.fields)]  # noqa: E731
        async with FakeActor(address, script), engine_at(address) as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine)
            assert caught.value.status == 500

    run(work())


def test_strange_text_travels_both_ways(address):
    said = "\ud83c a\x00b \udc9d \x1b[31m"
    async def work():
        script = lambda _, m: text_answer(  # noqa: E731
            m, wire.read_record(m, Ask).messages[0]["content"])
        async with FakeActor(address, script), engine_at(address) as engine:
            events = await collect(engine, Ask([{"role": "user", "content": said}]))
            assert events[-1].message["content"] == said

    run(work())


@pytest.mark.parametrize("value", [1 << 70, object()])
def test_what_cannot_travel_is_a_400(address, value):
    async def work():
        async with FakeActor(address), engine_at(address) as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine, Ask(HELLO.messages, tools=[{"x": value}]))
            assert caught.value.status == 400
            assert (await collect(engine))[-1].type == "done"

    run(work())


def test_deep_nesting_is_a_400(address):
    deep = []
    for _ in range(1100):
        deep = [deep]

    async def work():
        async with FakeActor(address), engine_at(address) as engine:
            with pytest.raises(EngineError) as caught:
                await collect(engine, Ask(HELLO.messages, tools=[{"x": deep}]))
            assert caught.value.status == 400

    run(work())


def test_feedback_sessions_and_status(address):
    async def work():
        async with FakeActor(address) as actor, engine_at(address) as engine:
            await engine.feedback("turn_1", -1, "too long", edit="Short.")
            assert actor.of("feedback")[0].fields == {
                "target": "turn_1", "value": -1, "text": "too long", "edit": "Short.",
                "owner": "default",
            }
            with pytest.raises(EngineError, match="no such turn") as caught:
                await engine.feedback("turn_none", 1)
            assert (caught.value.status, caught.value.code) == (404, "turn_not_found")
            await engine.end_session("s", owner="anna")
            assert actor.of("session.end")[0].fields == {"session": "s", "owner": "anna"}
            assert (await engine.status())["context"] == 128

    run(work())


def test_traces_carry_no_private_answer(address):
    async def work():
        async with FakeActor(address) as actor, engine_at(address) as engine:
            task = Task("t", ({"role": "user", "content": "x"},), answer="42")
            trace = await engine.open_trace(task, "g")
            opened = wire.read_record(actor.of("trace.open")[0], Task)
            assert (opened.id, opened.answer) == ("t", None)
            signal = Signal("turn_1", "echo", 1, (1, None))
            await engine.next_state("turn_1", [{"role": "user", "content": "y"}], [signal])
            sent = actor.of("trace.next")[0]["signals"][0]
            assert wire.unpack(Signal, sent, {}) == signal
            await engine.end_trace(Result("t", trace, End.DONE, 1.0, "echo"))
            assert actor.of("trace.end")[0].fields == {
                "trace_id": trace, "end": "done", "outcome": 1.0, "judge": "echo", "failure": "",
                "again": False,
            }

    run(work())


def test_a_trace_that_the_actor_holds_back_is_waited_for_longer_than_other_answers(
    address, monkeypatch
):
    monkeypatch.setattr("claw.engine.runner.engine.REQUEST_S", 0.2)

    async def work():
        async with FakeActor(address) as actor, engine_at(address) as engine:
            actor._answers = lambda _: []
            opening = asyncio.create_task(engine.open_trace(Task("t", ()), "g"))
            asked = (await actor.until("trace.open"))[0]
            await asyncio.sleep(0.8)
            await actor.send(Message("trace.opened", asked.id, {"trace_id": "trace_9"}))
            assert await opening == "trace_9"

    run(work())


def test_the_actors_stop_is_seen(address):
    async def work():
        async with FakeActor(address) as actor, engine_at(address) as engine:
            await actor.until("runner.hello")
            await actor.send(Message("stop"))
            await asyncio.wait_for(engine.stopped.wait(), 5)

    run(work())


def test_closing_ends_what_waits(address):
    async def work():
        async with FakeActor(address, lambda _, m: []) as actor:
            async with engine_at(address) as engine:
                asking = asyncio.create_task(collect(engine))
                await actor.until("turn.ask")
            with pytest.raises(EngineError, match="stopping"):
                await asking

    run(work())


def test_a_reader_that_is_too_slow_loses_its_request(monkeypatch):
    monkeypatch.setattr(pending_module, "MAX_WAITING", 3)

    async def work():
        waiting = Pending(Message("turn.ask", "a"))
        for _ in range(5):
            waiting.put(Message("turn.text", "a"))
        until = asyncio.get_running_loop().time() + 1
        assert [(await waiting.following(until)).type for _ in range(3)] == ["turn.text"] * 3
        with pytest.raises(EngineError, match="too slowly"):
            await waiting.following(until)

    run(work())


def test_too_many_requests_at_once_are_a_429(address, monkeypatch):
    monkeypatch.setattr("claw.engine.runner.link.MAX_PENDING", 1)

    async def work():
        async with FakeActor(address, lambda _, m: []) as actor, engine_at(address) as engine:
            asking = asyncio.create_task(collect(engine))
            await actor.until("turn.ask")
            with pytest.raises(EngineError) as caught:
                await collect(engine)
            assert caught.value.status == 429
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await actor.until("turn.cancel")

    run(work())


def test_what_is_asked_before_there_is_an_actor_is_asked_once(address):
    async def work():
        async with engine_at(address) as engine:
            asking = asyncio.create_task(collect(engine))
            await asyncio.sleep(0.2)
            async with FakeActor(address) as actor:
                assert (await asking)[-1].type == "done"
                await actor.until("runner.beat")
                assert len(actor.of("turn.ask")) == 1

    run(work())
