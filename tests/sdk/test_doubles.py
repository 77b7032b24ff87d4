"""The doubles do what plugin authors rely on."""

import asyncio

import pytest

from claw.records import FinishReason
from claw.sdk import Ask, Case, EngineError, EnvTurn, registry
from claw.sdk.doubles import DoublePlugin, EchoEnv, EchoJudge, Line, ScriptedEngine, reply


def ask(text: str = "hello", **sampling: object) -> Ask:
    return Ask([{"role": "user", "content": text}], sampling=dict(sampling))


def play(engine: ScriptedEngine, question: Ask) -> list:
    async def collect() -> list:
        return [event async for event in engine.ask(question)]

    return asyncio.run(collect())


def test_an_answer_streams_start_text_done_and_the_text_adds_up():
    events = play(ScriptedEngine("one two  three\n"), ask())
    assert [e.type for e in events] == ["start", "text", "text", "text", "done"]
    assert "".join(e.text for e in events) == "one two  three\n"
    assert events[-1].message == {"role": "assistant", "content": "one two  three\n"}
    assert events[-1].usage == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}


def test_lines_play_in_order_and_the_last_one_stays():
    engine = ScriptedEngine("a", "b")
    said = [play(engine, ask())[-1].message["content"] for _ in range(3)]
    assert said == ["a", "b", "b"]
    assert len(engine.asks) == 3


def test_max_tokens_cuts_the_text_and_says_length():
    done = play(ScriptedEngine("one two three"), ask(max_tokens=2))[-1]
    assert (done.message["content"], done.finish_reason) == ("one two", "length")


def test_calls_come_with_the_done_event():
    line = Line("", calls=(("read", '{"path": "a"}'), ("read", '{"path": "b"}')))
    done = play(ScriptedEngine(line), ask())[-1]
    assert done.finish_reason == "tool_calls"
    assert done.message["content"] is None
    assert [c["function"]["arguments"] for c in done.message["tool_calls"]] == [
        '{"path": "a"}', '{"path": "b"}',
    ]


def test_an_error_may_come_before_or_after_the_text():
    with pytest.raises(EngineError, match="full"):
        play(ScriptedEngine(Line(error=EngineError(429, "full"))), ask())

    async def partly() -> list:
        seen = []
        with pytest.raises(EngineError, match="gone"):
            engine = ScriptedEngine(Line("a b", error=EngineError(503, "gone")))
            async for event in engine.ask(ask()):
                seen.append(event.text)
        return seen

    assert asyncio.run(partly()) == ["", "a", " b"]


def test_closing_the_iterator_early_is_remembered_as_a_cancel():
    async def leave() -> ScriptedEngine:
        engine = ScriptedEngine("one two three")
        events = engine.ask(ask())
        await anext(events)
        await events.aclose()
        return engine

    assert asyncio.run(leave()).cancelled == ["turn_0000"]


def test_feedback_on_a_turn_that_never_was_is_an_error():
    engine = ScriptedEngine("a")
    play(engine, ask())
    asyncio.run(engine.feedback("turn_0000", 1, "good"))
    assert engine.votes == [("turn_0000", 1, "good")]
    with pytest.raises(EngineError) as caught:
        asyncio.run(engine.feedback("turn_0009", 1))
    assert caught.value.status == 404


def test_echo_env_ends_after_its_turns():
    env = EchoEnv(turns=2)
    assert env.start() == [{"role": "user", "content": "Say something."}]
    first = EnvTurn(reply("hi"), FinishReason.STOP, 0)
    assert env.reply(first) == [{"role": "user", "content": "You said: hi"}]
    assert env.reply(EnvTurn(reply("bye"), FinishReason.STOP, 1)) is None
    env.close()
    env.close()
    assert env.closed == 2


def test_the_echo_judge_gives_a_number_at_the_end_only():
    verdicts = [
        asyncio.run(EchoJudge().judge(Case("t", (), reply("x"), (), final=final)))
        for final in (False, True)
    ]
    assert [v.number for v in verdicts] == [None, 1.0]


def test_the_double_plugin_fits_the_hooks():
    plugin = registry.from_object("double", DoublePlugin())
    settings = plugin.settings({"tasks": 3})
    tasks = plugin.hook.claw_tasks(config=settings, split="eval")
    assert [t.id for t in tasks] == ["eval-0", "eval-1", "eval-2"]
    assert plugin.hook.claw_env(task=tasks[0], config=settings).start()[0]["content"] == "Task 0"
