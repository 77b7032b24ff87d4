"""What bounds an episode, and which failures are played again: each by its rule."""

import asyncio
import time

import pytest
from runner_doubles import FakeActor, error, text_answer
from test_episodes import address, play, signals_of  # noqa: F401 (address is a fixture)
from test_wire_engine import engine_at

from claw import config
from claw.engine.runner.episodes import Episodes
from claw.engine.wire import Message
from claw.errors import Boundary, boundary
from claw.records import End
from claw.sdk import Verdict, registry
from claw.sdk.doubles import DoublePlugin, EchoEnv

ONE = ("rollout.n=1",)


def many_turns(actor, message):
    return text_answer(message, "one", " two", " three")


# --- budgets -------------------------------------------------------------------------------------


def test_a_token_budget_bounds_each_ask_and_ends_the_episode_which_is_judged(address):  # noqa: F811
    results, actor, plugin = play(
        address, script=many_turns,
        overrides=(*ONE, "plugin.double.turns=99", "rollout.max_episode_tokens=7",
                   "rollout.max_tokens=5"),
    )
    asked = [m["record"]["sampling"].get("max_tokens") for m in actor.of("turn.ask")]
    assert asked == [5, 4, 1]  # 3 tokens come each time: 7, 4 and 1 are left, 5 is a reply's most
    assert [(r.end, r.num_tokens, r.outcome) for r in results] == [(End.TOKENS, 9, 1.0)]
    assert actor.of("trace.end")[0]["end"] == "tokens"
    assert plugin.envs[0].closed == 1


def test_without_a_budget_nothing_is_said_about_tokens(address):  # noqa: F811
    _, actor, _ = play(address, overrides=ONE)
    assert [m["record"]["sampling"] for m in actor.of("turn.ask")] == [{}, {}]


def test_a_deadline_cancels_the_ask_and_the_episode_is_judged_as_it_stands(address):  # noqa: F811
    def silent_at_last(actor, message):
        return text_answer(message, "hi") if len(message["record"]["messages"]) < 3 else []

    results, actor, plugin = play(
        address, script=silent_at_last, overrides=(*ONE, "rollout.episode_s=0.5"))
    assert [(r.end, r.outcome, r.num_turns, r.failure) for r in results] == [
        (End.DEADLINE, 1.0, 1, "")]
    assert len(actor.of("turn.cancel")) == 1
    assert plugin.envs[0].closed == 1


def test_a_deadline_before_the_first_answer_leaves_no_outcome(address):  # noqa: F811
    results, _, _ = play(address, script=lambda a, m: [],
                         overrides=(*ONE, "rollout.episode_s=0.3"))
    assert [(r.end, r.outcome, r.num_turns) for r in results] == [(End.DEADLINE, None, 0)]


def test_a_first_prompt_beyond_the_context_is_an_end_by_rule_and_no_failure(address):  # noqa: F811
    results, _, plugin = play(
        address, script=lambda a, m: [error(m, 400, code="context_length_exceeded")],
        overrides=("rollout.retries=3",))
    assert {(r.end, r.outcome, r.failure) for r in results} == {(End.CONTEXT, None, "")}
    assert len(plugin.envs) == 2  # nobody played it again


def test_a_long_observation_keeps_head_and_tail_for_the_policy_and_the_judge(address):  # noqa: F811
    class Loud(EchoEnv):
        def reply(self, turn):
            said = super().reply(turn)
            long = "A" * 500 + "B" * 500
            return said and [{"role": "tool", "content": long, "tool_call_id": "x"}]

    _, actor, _ = play(address, DoublePlugin(make_env=lambda t: Loud(2)),
                       overrides=(*ONE, "rollout.max_observation=10"))
    seen = "AAAAA\n[... 990 characters left out ...]\nBBBBB"
    assert actor.of("turn.ask")[1]["record"]["messages"][-1]["content"] == seen
    assert actor.of("trace.next")[0]["messages"][0]["content"] == seen


# --- full, away, broken --------------------------------------------------------------------------


def test_a_full_engine_is_waited_for_longer_than_one_that_is_away(address):  # noqa: F811
    tries = []

    def full_for_long(actor, message):
        tries.append(1)
        if len(tries) <= 12:
            return [error(message, 429, retry_after_s=0.001)]
        return text_answer(message, "fine")

    results, _, _ = play(address, script=full_for_long, overrides=ONE)
    assert [r.end for r in results] == [End.DONE]
    away = []

    def never_there(actor, message):
        away.append(1)
        return [error(message, 503, retry_after_s=0.001)]

    results, _, _ = play(address, script=never_there, overrides=ONE)
    assert [(r.end, r.where) for r in results] == [(End.FAILED, Boundary.POLICY)]
    assert len(away) == 6


class Breaks(EchoEnv):
    """Fails at `where` with what `fail` raises."""

    def __init__(self, where, fail):
        super().__init__(2)
        self.where, self.fail = where, fail

    def start(self):
        if self.where == "start":
            self.fail()
        return super().start()

    def reply(self, turn):
        if self.where == "reply":
            self.fail()
        return super().reply(turn)


def no_disk():
    raise OSError("no disk")


def sandbox_died():
    with boundary(Boundary.SANDBOX):
        raise RuntimeError("the container is gone")


@pytest.mark.parametrize(("where", "fail", "is_again"), [
    ("start", no_disk, True), ("reply", no_disk, False), ("reply", sandbox_died, True),
])
def test_what_the_infrastructure_did_is_played_again_in_the_same_group(
    address, where, fail, is_again  # noqa: F811
):
    made = []

    def first_breaks(task):
        made.append(task)
        return Breaks(where, fail) if len(made) == 1 else EchoEnv(2)

    results, actor, plugin = play(
        address, DoublePlugin(make_env=first_breaks), overrides=("rollout.retries=1",))
    assert len(results) == 2  # a group of two stays a group of two
    assert [r.end for r in results].count(End.FAILED) == (0 if is_again else 1)
    assert len({m["group"] for m in actor.of("trace.open")}) == 1
    again = [m["again"] for m in actor.of("trace.end")]
    assert again.count(True) == is_again and len(again) == 2 + is_again
    assert [env.closed for env in plugin.envs] == [1] * len(plugin.envs)
    assert len(plugin.traces) == 2 + is_again


def test_retries_end_and_the_last_failure_is_data_with_its_border(address):  # noqa: F811
    plugin = DoublePlugin(make_env=lambda t: Breaks("reply", sandbox_died))
    results, actor, _ = play(address, plugin, overrides=(*ONE, "rollout.retries=2"))
    assert [(r.end, r.where, r.failure) for r in results] == [
        (End.FAILED, Boundary.SANDBOX, "sandbox: RuntimeError: the container is gone")]
    assert [m["again"] for m in actor.of("trace.end")] == [True, True, False]


@pytest.mark.parametrize(("status", "again"), [(500, [True, False]), (400, [False])])
def test_an_engine_that_failed_is_asked_by_a_new_attempt_one_that_refused_is_not(
    address, status, again  # noqa: F811
):
    results, actor, _ = play(address, script=lambda a, m: [error(m, status)],
                             overrides=(*ONE, "rollout.retries=1"))
    assert [(r.end, r.where) for r in results] == [(End.FAILED, Boundary.POLICY)]
    assert [m["again"] for m in actor.of("trace.end")] == again


def test_a_judge_that_fails_at_the_end_is_asked_again_about_the_same_episode(address):  # noqa: F811
    class Shaky:
        name, asked = "shaky", 0

        async def judge(self, case):
            Shaky.asked += 1
            if Shaky.asked == 1:
                raise RuntimeError("no answer")
            return Verdict(number=0.25)

    results, _, plugin = play(address, DoublePlugin(judges=[Shaky()]),
                              overrides=(*ONE, "rollout.retries=1"))
    assert [(r.end, r.outcome, r.judge) for r in results] == [(End.DONE, 0.25, "shaky")]
    assert len(plugin.envs) == 1


# --- judges and hints ----------------------------------------------------------------------------


class Checker:
    """Runs a test: no words are judged."""

    name, is_checker = "tests", True

    async def judge(self, case):
        hint = "Call the tool with two numbers, not with text."
        if case.final:
            return Verdict(number=0.0, hints=(hint,), reason="1 of 2 tests failed")
        return Verdict(vote=-1, hints=(hint,), reason="the tool said error")


def test_a_checker_that_plays_the_judge_is_called_a_checker(address):  # noqa: F811
    results, actor, _ = play(address, DoublePlugin(judges=[Checker()]),
                             overrides=(*ONE, "judge.kind=tests"))
    first, last = (signals_of(m) for m in actor.of("trace.next"))
    assert [(s.judge, s.vote, len(s.hints)) for s in first] == [("checker:tests", -1, 1)]
    assert [(s.judge, s.number, len(s.hints)) for s in last] == [("checker:tests", 0.0, 1)]
    assert results[0].judge == actor.of("trace.end")[0]["judge"] == "checker:tests"


def test_the_hints_of_an_end_are_kept_also_when_another_judge_votes(address):  # noqa: F811
    """Under judge.kind rules the plugin's checker gives the outcome; its hint still teaches."""
    _, actor, _ = play(address, DoublePlugin(judges=[Checker()]), overrides=ONE)
    last = signals_of(actor.of("trace.next")[-1])
    assert [(s.judge, s.vote, s.number, len(s.hints)) for s in last] == [
        ("checker:tests", None, None, 1)]


def test_at_a_turn_limit_the_named_judge_does_not_speak_twice_of_a_turn(address):  # noqa: F811
    _, actor, _ = play(
        address, overrides=(*ONE, "judge.kind=echo", "rollout.max_turns=1",
                            "plugin.double.turns=9"))
    assert [len(m["signals"]) for m in actor.of("trace.next")] == [1]


# --- not ahead of training, never waiting for the slow -----------------------------------------


def forever(address, overrides, until, plugin=None, status=None):  # noqa: F811
    """Play for ever until `until(actor, plugin)` holds; return (actor, plugin)."""
    plugin = plugin or DoublePlugin()
    settings = config.load(overrides=("rollout.retries=0", "plugin.double.tasks=1", *overrides))

    class Actor(FakeActor):
        def _answers(self, message):
            if message.type == "status" and status is not None:
                return [Message("reply", message.id, status())]
            return super()._answers(message)

    async def work():
        async with Actor(address) as actor, engine_at(address) as engine:
            episodes = Episodes(engine, registry.from_object("double", plugin), settings)
            playing = asyncio.create_task(episodes.forever(engine))
            try:
                async with asyncio.timeout(20):
                    while not until(actor, plugin):
                        assert not playing.done(), playing.result()
                        await asyncio.sleep(0.01)
            finally:
                playing.cancel()
                await asyncio.gather(playing, return_exceptions=True)
            return actor, plugin

    return asyncio.run(asyncio.wait_for(work(), 30))


def test_a_slow_episode_holds_up_neither_its_siblings_nor_the_next_pass(address):  # noqa: F811
    class Slow(EchoEnv):
        async def reply(self, turn):
            await asyncio.sleep(60)

    made = []

    def first_is_slow(task):
        made.append(task)
        return Slow(1) if len(made) == 1 else EchoEnv(1)

    actor, _ = forever(
        address, ("rollout.n=2", "rollout.parallel=3"),
        lambda actor, _: len(actor.of("trace.end")) >= 21,
        DoublePlugin(make_env=first_is_slow),
    )
    assert len({m["group"] for m in actor.of("trace.open")}) >= 11
    assert [m["end"] for m in actor.of("trace.end")].count("done") >= 19


def test_no_group_begins_while_as_many_samples_wait_as_may_become_stale(address):  # noqa: F811
    waiting = [16]
    begun = time.monotonic()
    seen = []

    def until(actor, _):
        seen.append(len(actor.of("trace.open")))
        if time.monotonic() - begun > 1.5:
            waiting[0] = 15
        return len(actor.of("trace.end")) >= 2

    forever(address, ("rollout.n=1", "async.max_staleness=2", "train.batch_size=8"), until,
            status=lambda: {"samples": {"waiting": waiting[0] - 4, "leased": 4}})
    assert seen[-2] >= 1 and time.monotonic() - begun > 1.5


def test_while_nothing_works_episodes_begin_ever_more_slowly(address, monkeypatch):  # noqa: F811
    slept = []
    real = asyncio.sleep

    async def sleep(seconds, *args):
        slept.append(seconds)
        await real(min(seconds, 0.01), *args)

    monkeypatch.setattr("claw.engine.runner.pace.asyncio.sleep", sleep)
    forever(address, ("rollout.n=2", "rollout.parallel=1"),
            lambda actor, _: len(actor.of("trace.end")) >= 10,
            DoublePlugin(make_env=lambda t: Breaks("start", no_disk)))
    assert [s for s in slept if s in (1.0, 2.0, 4.0, 8.0)][:4] == [1.0, 2.0, 4.0, 8.0]

