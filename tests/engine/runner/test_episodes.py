"""Episodes against a fake actor: groups, bounds, and failures that are data."""

import asyncio
import threading
import time

import pytest
from runner_doubles import FakeActor, error, text_answer
from test_wire_engine import engine_at

from claw import config
from claw.engine.runner.episodes import Episodes
from claw.engine.wire import unpack
from claw.errors import ClawError, UsageError
from claw.records import End, Signal, Task
from claw.sdk import Verdict, registry
from claw.sdk.doubles import DoublePlugin, EchoEnv
from claw.sdk.lane import Lane


@pytest.fixture
def address(tmp_path):
    return f"ipc://{tmp_path}/runners"


def play(address, plugin=None, script=None, overrides=(), deadline_s=None):
    """Play the train split once; return (results, actor, plugin)."""
    plugin = plugin or DoublePlugin()
    settings = config.load(overrides=(
        "rollout.n=2", "rollout.retries=0", "plugin.double.tasks=1", *overrides,
    ))
    results = []

    async def work():
        async with FakeActor(address, script) as actor, engine_at(address) as engine:
            episodes = Episodes(engine, registry.from_object("double", plugin), settings)
            await episodes.once("train", lambda attempt, episode, result: results.append(result))
            assert episodes.num_running == 0
            return actor

    actor = asyncio.run(asyncio.wait_for(work(), 40))
    return results, actor, plugin


def signals_of(message):
    return [unpack(Signal, fields, {}) for fields in message["signals"]]


def test_a_group_of_attempts_at_each_task(address):
    results, actor, plugin = play(address, overrides=("plugin.double.tasks=2", "rollout.n=3"))
    assert [(r.end, r.outcome, r.num_turns) for r in results] == [(End.DONE, 1.0, 2)] * 6
    groups = {}
    for opened in actor.of("trace.open"):
        groups.setdefault(opened["group"], []).append(opened["record"]["id"])
    assert sorted(map(sorted, groups.values())) == [["train-0"] * 3, ["train-1"] * 3]
    assert len(actor.of("trace.end")) == 6
    assert [env.closed for env in plugin.envs] == [1] * 6
    assert {t.end for t in plugin.traces} == {End.DONE}


def test_a_turn_is_asked_with_the_whole_conversation_and_its_next_state_reported(address):
    results, actor, _ = play(address, overrides=("rollout.n=1", "judge.kind=echo"))
    asked = [m["record"]["messages"] for m in actor.of("turn.ask")]
    assert [m["content"] for m in asked[1]] == ["Task 0", "hello there", "You said: hello there"]
    assert {m["trace_id"] for m in actor.of("turn.ask")} == {"trace_1"}
    first, last = actor.of("trace.next")
    assert first["messages"] == [{"role": "user", "content": "You said: hello there"}]
    assert last["messages"] == []
    assert [s.vote for m in (first, last) for s in signals_of(m)] == [1, 1]
    assert [s.number for m in (first, last) for s in signals_of(m)] == [None, 1.0]
    assert actor.of("trace.end")[0].fields == {
        "trace_id": results[0].trace_id, "end": "done", "outcome": 1.0, "judge": "echo",
        "failure": "", "again": False,
    }


def test_an_environment_may_show_less_of_the_conversation_than_there_was(address):
    class Short(EchoEnv):
        def shown(self, messages):
            return messages[-1:]

    plugin = DoublePlugin(make_env=lambda t: Short(2, "say"))
    results, actor, _ = play(address, plugin, overrides=("rollout.n=1",))
    asked = [[m["content"] for m in ask["record"]["messages"]] for ask in actor.of("turn.ask")]
    assert asked == [["say"], ["You said: hello there"]] and results[0].end == End.DONE


def test_what_an_environment_shows_may_fail_as_its_own(address):
    class Broken(EchoEnv):
        def shown(self, messages):
            raise ValueError("blind")

    plugin = DoublePlugin(make_env=lambda t: Broken(2, "say"))
    results, _, _ = play(address, plugin, overrides=("rollout.n=1",))
    assert [(r.end, r.failure) for r in results] == [(End.FAILED, "env: ValueError: blind")]


def test_without_a_judge_of_its_own_a_plugins_turns_are_left_to_the_actor(address):
    _, actor, _ = play(address, overrides=("rollout.n=1",))
    assert [signals_of(m) for m in actor.of("trace.next")] == [[]]
    assert actor.of("trace.end")[0]["outcome"] == 1.0


class Raising(EchoEnv):
    def __init__(self, where):
        super().__init__(turns=2)
        self.where = where

    def start(self):
        if self.where == "start":
            raise OSError("no disk")
        return super().start()

    def reply(self, turn):
        if self.where == "reply":
            raise ValueError("broken tool")
        if self.where == "nonsense":
            return "not a list"
        return super().reply(turn)

    def close(self):
        super().close()
        if self.where == "close":
            raise RuntimeError("cannot close")


@pytest.mark.parametrize(("where", "failure"), [
    ("start", "env: OSError: no disk"), ("reply", "env: ValueError: broken tool"),
    ("nonsense", "env: TypeError: reply() returned str, not messages"),
])
def test_a_failure_of_the_env_is_data_and_its_siblings_continue(address, where, failure):
    made = []

    def make(task):
        made.append(task)
        return Raising(where) if len(made) == 1 else EchoEnv(2)

    plugin = DoublePlugin(make_env=make)
    results, actor, _ = play(address, plugin, overrides=("rollout.n=3",))
    assert sorted(r.end for r in results) == [End.DONE, End.DONE, End.FAILED]
    assert [r.failure for r in results if r.end is End.FAILED] == [failure]
    ended = [m.fields for m in actor.of("trace.end") if m["end"] == "failed"]
    assert [(e["outcome"], e["failure"]) for e in ended] == [(None, failure)]
    assert [env.closed for env in plugin.envs] == [1, 1, 1]


def test_an_env_that_cannot_be_made_or_closed_is_data_too(address):
    def broken(task):
        raise KeyError("image")

    results, _, _ = play(address, DoublePlugin(make_env=broken))
    assert {r.failure for r in results} == {"env: KeyError: 'image'"}
    closing = DoublePlugin(make_env=lambda task: Raising("close"))
    results, actor, _ = play(address, closing)
    assert {r.end for r in results} == {End.DONE}
    assert len(actor.of("trace.end")) == 2


def test_the_turn_limit_ends_an_episode_with_its_last_next_state(address):
    results, actor, _ = play(
        address, overrides=("rollout.n=1", "rollout.max_turns=3", "plugin.double.turns=99")
    )
    assert [(r.end, r.num_turns, r.outcome) for r in results] == [(End.TURN_LIMIT, 3, 1.0)]
    assert len(actor.of("turn.ask")) == 3
    assert [len(m["messages"]) for m in actor.of("trace.next")] == [1, 1, 1]


def test_as_many_episodes_run_at_once_as_is_allowed(address):
    lock, running, most = threading.Lock(), [0], [0]

    class Slow(EchoEnv):
        def start(self):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.1)
            return super().start()

        def close(self):
            with lock:
                running[0] -= 1

    plugin = DoublePlugin(make_env=lambda task: Slow(1))
    play(address, plugin, overrides=("rollout.n=3", "plugin.double.tasks=2", "rollout.parallel=2"))
    assert (most[0], running[0]) == (2, 0)


def test_a_sync_env_stays_on_one_thread_and_an_async_one_on_the_loop(address):
    threads = []

    class Sync(EchoEnv):
        def start(self):
            threads.append(threading.current_thread().name)
            return super().start()

        def reply(self, turn):
            threads.append(threading.current_thread().name)
            return super().reply(turn)

        def close(self):
            threads.append(threading.current_thread().name)

    class Async(EchoEnv):
        async def start(self):
            await asyncio.sleep(0)
            return super().start()

        async def reply(self, turn):
            return super().reply(turn)

        async def close(self):
            super().close()

    play(address, DoublePlugin(make_env=lambda t: Sync(2)), overrides=("rollout.n=1",))
    assert len(threads) == 4 and set(threads) == {"env-train-0"}
    plugin = DoublePlugin(make_env=lambda t: Async(2))
    results, _, _ = play(address, plugin)
    assert {r.end for r in results} == {End.DONE}
    assert [env.closed for env in plugin.envs] == [1, 1]


def test_an_env_that_never_comes_back_fails_alone_and_is_closed(address, monkeypatch):
    monkeypatch.setattr("claw.engine.runner.episode.Episode.env_deadline_s", 0.2)
    free = threading.Event()

    class Stuck(EchoEnv):
        def reply(self, turn):
            free.wait(30)

    plugin = DoublePlugin(make_env=lambda t: Stuck(2))
    monkeypatch.setattr(
        "claw.sdk.lane.Lane.call", _with_deadline(Lane.call, 0.2)
    )
    results, _, _ = play(address, plugin, overrides=("rollout.n=1",))
    free.set()
    assert [r.failure for r in results] == [
        "env: TimeoutError: reply() did not come back within 1.8e+03 s"]
    assert plugin.envs[0].closed == 1


def _with_deadline(call, seconds):
    async def short(self, function, *args, deadline_s):
        return await call(self, function, *args, deadline_s=min(deadline_s, seconds))

    return short


def test_a_full_engine_is_asked_again_and_a_broken_one_is_a_failure(address):
    tries = []

    def full_once(actor, message):
        tries.append(message.id)
        if len(tries) == 1:
            return [error(message, 429, retry_after_s=0.01)]
        return text_answer(message, "fine")

    results, _, _ = play(address, script=full_once, overrides=("rollout.n=1",))
    assert (results[0].end, len(tries)) == (End.DONE, 3)
    results, _, _ = play(address, script=lambda a, m: [error(m, 500)])
    assert {r.failure for r in results} == {"policy: EngineError: refused"}


def test_an_episode_that_outgrows_the_context_ends_so_and_is_judged(address):
    def small(actor, message):
        if len(message["record"]["messages"]) > 2:
            return [error(message, 400, code="context_length_exceeded")]
        return text_answer(message, "fine")

    results, actor, _ = play(address, script=small, overrides=("rollout.n=1",))
    assert [(r.end, r.outcome, r.failure) for r in results] == [(End.CONTEXT, 1.0, "")]
    assert actor.of("trace.end")[0]["end"] == "context"


class OddJudge:
    name = "odd"

    def __init__(self, verdict):
        self.verdict = verdict

    async def judge(self, case):
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


@pytest.mark.parametrize(("verdict", "failure"), [
    (Verdict(number=float("nan")), "judge: ValueError: judge 'odd' gave nan as a number"),
    (Verdict(number=float("inf")), "judge: ValueError: judge 'odd' gave inf as a number"),
    (RuntimeError("no answer"), "judge: RuntimeError: no answer"),
    (None, "judge: AttributeError: "),
])
def test_a_judge_that_fails_at_the_end_leaves_no_outcome(address, verdict, failure):
    results, _, _ = play(address, DoublePlugin(judges=[OddJudge(verdict)]))
    assert {r.end for r in results} == {End.FAILED}
    assert all(r.failure.startswith(failure) and r.outcome is None for r in results)


def test_a_judge_that_fails_on_a_turn_abstains_with_its_reason(address):
    class Moody(OddJudge):
        async def judge(self, case):
            if not case.final:
                raise RuntimeError("no answer")
            return Verdict(number=0.5)

    _, actor, _ = play(
        address, DoublePlugin(judges=[Moody(None)]), overrides=("rollout.n=1", "judge.kind=odd")
    )
    signal = signals_of(actor.of("trace.next")[0])[0]
    assert (signal.vote, signal.reason) == (None, "judge: RuntimeError: no answer")
    assert actor.of("trace.end")[0]["outcome"] == 0.5


def test_a_judge_sees_the_private_answer_and_the_env(address):
    seen = []

    class Curious(OddJudge):
        async def judge(self, case):
            seen.append((case.task.answer, case.metadata["env"].closed, case.final))
            return Verdict(number=1.0)

    play(address, DoublePlugin(judges=[Curious(None)]), overrides=("rollout.n=1",))
    assert seen == [(0, 0, True)]


def test_an_unknown_judge_is_refused_at_start(address):
    with pytest.raises(UsageError, match="did you mean 'echo'"):
        play(address, overrides=("judge.kind=ecko",))


def test_stopping_closes_environments_and_reports_the_end(address):
    plugin = DoublePlugin()
    settings = config.load(overrides=(
        "rollout.n=2", "rollout.parallel=2", "plugin.double.tasks=1"))

    async def work():
        async with FakeActor(address, lambda a, m: []) as actor, engine_at(address) as engine:
            episodes = Episodes(engine, registry.from_object("double", plugin), settings)
            playing = asyncio.create_task(episodes.forever(engine))
            await actor.until("turn.ask", 2)
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            assert {m["end"] for m in actor.of("trace.end")} == {"cancelled"}
            assert len(actor.of("turn.cancel")) == len(actor.of("trace.end")) == 2
        assert [env.closed for env in plugin.envs] == [1, 1]

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_split_without_tasks_is_told(address):
    settings = config.load(overrides=("plugin.double.tasks=0",))

    async def work():
        async with FakeActor(address), engine_at(address) as engine:
            plugin = registry.from_object("double", DoublePlugin())
            await Episodes(engine, plugin, settings).forever(engine)

    with pytest.raises(ClawError, match="has no tasks in 'train'"):
        asyncio.run(asyncio.wait_for(work(), 30))


def test_tasks_that_fail_to_come_are_told(address):
    class NoTasks(DoublePlugin):
        @registry.hooks.hookimpl
        def claw_tasks(self, config, split):
            yield Task("only", ({"role": "user", "content": "x"},))
            raise OSError("the data is gone")

    with pytest.raises(ClawError, match="the data is gone"):
        play(address, NoTasks(), overrides=("rollout.n=1",))
