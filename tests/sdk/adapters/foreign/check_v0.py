"""v0 environments, real ones, driven by their own rollouts."""

import asyncio
import signal
import threading

import pytest
from episodes import Package, call, run

from claw.errors import UsageError


def package(kind, split="train", **args):
    return Package("clawtest-sums", split, args={"kind": kind} | args)


def test_one_turn_is_scored_by_all_rubrics_with_their_weights():
    async def work():
        async with package("single", system_prompt="Only the number.").episode() as episode:
            assert episode.first == [
                {"role": "system", "content": "Only the number."},
                {"role": "user", "content": "2+3?"},
            ] == list(episode.task.messages)
            assert await episode.say("5") is None
            said = await episode.verdict()
            # correct 1 * 1.0, bonus 0.5 * 2.0, always 0.125 * 1.0
            assert said.number == 2.125
            assert said.reason.startswith("checker:clawtest-sums: correct 1, bonus 0.5, always")
            assert (await episode.verdict()).number == 2.125
        async with package("single").episode(1) as episode:
            await episode.say("9")
            assert (await episode.verdict()).number == 0.125

    run(work())


def test_loading_leaves_the_runners_signals_alone():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    in_thread = threading.Thread(target=lambda: made.append(package("single", x=1).tasks()))
    made = []
    in_thread.start()
    in_thread.join(30)
    assert len(made[0]) == 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_the_eval_split_is_the_packages_own():
    [task] = package("single", "eval").tasks()
    assert task.messages[-1]["content"] == "4+4?" and task.metadata == {"split": "eval"}


def test_a_multi_turn_environment_answers_until_it_is_done():
    async def work():
        async with package("guess").episode() as episode:
            assert await episode.say("3") == [{"role": "user", "content": "higher"}]
            assert await episode.say("7") == [{"role": "user", "content": "lower"}]
            assert await episode.say("5") is None
            assert (await episode.verdict()).number == 2.0

    run(work())


def test_tools_are_offered_called_and_counted():
    async def work():
        async with package("tools").episode() as episode:
            [tool] = episode.env.tools
            assert tool["function"]["name"] == "add"
            assert set(tool["function"]["parameters"]["properties"]) == {"a", "b"}
            [seen] = await episode.say("", call("add", {"a": 2, "b": 3}, "x7"))
            assert (seen["role"], seen["tool_call_id"], seen["content"]) == ("tool", "x7", "5")
            [seen] = await episode.say("", call("add", {"a": 2}))
            assert "missing" in seen["content"]
            assert await episode.say("5") is None
            said = await episode.verdict()
            assert said.number == 2.0 and "add_calls 2" in said.reason

    run(work())


def test_an_episode_that_claw_ends_is_scored_as_far_as_it_came():
    async def work():
        async with package("guess").episode() as episode:
            await episode.say("3")
            said = await episode.verdict()
            assert said.number == 1.0 and "correct 0" in said.reason  # the bonus, nothing else

    run(work())


def test_two_episodes_at_once_do_not_mix():
    async def work():
        guess = package("guess")
        async with guess.episode(0) as one, guess.episode(1) as other:
            said = await asyncio.gather(one.say("7"), other.say("7"))
            assert [m[0]["content"] for m in said] == ["lower", "higher"]
            assert await one.say("5") is None and await other.say("8") is None

    run(work())


def test_closing_early_runs_the_packages_own_clean_up():
    async def work():
        import clawtest_sums

        clawtest_sums.cleaned.clear()
        async with package("guess").episode():
            assert clawtest_sums.cleaned == []
        assert clawtest_sums.cleaned == ["5"]

    run(work())


def test_a_rollouts_own_time_limit_ends_it_and_what_was_said_is_scored():
    async def work():
        async with package("guess", timeout_seconds=0.3).episode() as episode:
            await asyncio.sleep(0.6)
            assert await episode.say("5") is None
            assert "correct 0" in (await episode.verdict()).reason

    run(work())


def test_a_conversation_that_is_rewritten_ends_the_episode_with_its_reason():
    async def work():
        async with package("forgets").episode() as episode:
            with pytest.raises(ValueError, match="the package rewrote its conversation"):
                await episode.say("3")

    run(work())


def test_a_package_that_fails_is_a_failure_with_its_reason():
    async def work():
        episode = package("broken").episode()
        with pytest.raises(RuntimeError, match=r"ended before it asked anything.*no database"):
            await episode.env.start()
        await episode.env.close()

    run(work())


@pytest.mark.parametrize(("kind", "found"), [
    ("judged", "a judge that asks a model of its own (JudgeRubric)"),
    ("compared", "rewards that compare attempts (compared)"),
    ("hot", "sampling of its own (sampling_args = {'n': 1, 'extra_body': {}, 'temperature': 2.0})"),
    ("samples", "a sampling client of its own (Samples.get_model_response)"),
    ("sandbox", "a paid sandbox of its own (SandboxEnv)"),
    ("images", "row 0 needs images (in prompt)"),
])
def test_what_cannot_be_played_is_refused_by_name(kind, found):
    with pytest.raises(UsageError, match="'clawtest-sums' cannot be played") as caught:
        package(kind).tasks()
    assert found in str(caught.value)


def test_arguments_that_the_package_does_not_take_are_told():
    with pytest.raises(UsageError, match="load_environment refuses its arguments"):
        package("tools", no_such_argument=1, dataset=2).tasks()
