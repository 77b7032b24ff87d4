"""v1 tasksets, real ones, with the verifiers that is installed here."""

import asyncio
from pathlib import Path

import pytest
from episodes import Package, call, run

from claw.errors import UsageError

WORKING_FOLDERS = Path.home() / ".cache" / "verifiers" / "runtimes" / "subprocess"


def folders():
    return set(WORKING_FOLDERS.iterdir()) if WORKING_FOLDERS.exists() else set()


def test_rows_become_tasks_and_their_weighted_rewards_the_outcome():
    async def work():
        package = Package("clawtest-spell", args={"count": 3})
        assert len({t.id for t in package.tasks()}) == 3
        async with package.episode() as episode:
            assert episode.first == [
                {"role": "system", "content": "Answer with one word."},
                {"role": "user", "content": "Spell pear backwards."},
            ] == list(episode.task.messages)
            assert episode.env.tools == []
            assert await episode.say("raep") is None
            said = await episode.verdict()
            assert (said.number, said.vote) == (1.25, None)
            assert said.reason == "checker:clawtest-spell: correct 1, short 0.25"
        async with package.episode(1) as episode:
            await episode.say("mu")
            assert (await episode.verdict()).number == 0.25

    run(work())


def test_a_checker_has_no_opinion_of_single_turns():
    async def work():
        async with Package("clawtest-spell").episode() as episode:
            said = await episode.verdict(final=False)
            assert (said.vote, said.number) == (None, None) and "checker" in said.reason

    run(work())


def test_a_hub_name_finds_the_same_module_and_eval_has_arguments_of_its_own():
    settings = {"args": {"count": 3}, "eval_args": {"count": 1}}
    name = "somebody/Clawtest-Spell@1.2"
    assert len(Package(name, **settings).tasks()) == 3
    [task] = Package(name, "eval", **settings).tasks()
    assert task.metadata == {"split": "eval"} and "eval" in task.id


def test_tools_keep_the_state_of_their_episode_until_a_stop():
    async def work():
        before, package = folders(), Package("clawtest-shop")
        async with package.episode(0) as one, package.episode(1) as other:
            assert len(folders() - before) == 2
            names = [t["function"]["name"] for t in one.env.tools]
            assert names == ["till_buy", "till_ponder", "read_sign"]
            about = one.env.tools[0]["function"]
            assert about["description"] == "Buy things at the task's price."
            assert about["parameters"]["required"] == ["thing"]
            sign, till = await one.say(
                "", call("read_sign", {}, "a"), call("till_buy", {"thing": "pear"}, "b"))
            assert (sign["tool_call_id"], sign["content"]) == ("a", "Pears today.")
            assert (till["tool_call_id"], till["content"]) == ("b", "6 left")
            assert (await other.say("", call("read_sign", {})))[0]["content"] == "Pears today."
            assert await other.say("", call("till_buy", {"thing": "pear"})) is None  # broke
            assert await one.say("", call("till_buy", {"thing": "pear"})) is None
            assert [(await e.verdict()).number for e in (one, other)] == [2.0, 1.0]
        assert folders() == before
        import clawtest_shop

        assert clawtest_shop.Sign.opened == 1

    run(work())


@pytest.mark.parametrize(("asked", "said"), [
    (call("till_buy", {"thing": "pear", "count": 5}), "not enough money"),
    (call("till_buy", {"count": 1}), "Field required"),
    (call("steal", {}), "no tool 'steal'; there are: till_buy, till_ponder, read_sign"),
    (call("till_buy", "{"), "the arguments are no JSON"),
    (call("till_buy", "[1]"), "no JSON object"),
])
def test_what_the_policy_does_wrong_with_a_tool_is_an_observation(asked, said):
    async def work():
        async with Package("clawtest-shop").episode() as episode:
            [seen] = await episode.say("", asked)
            assert seen["role"] == "tool" and said in seen["content"]

    run(work())


def test_an_episode_that_claw_ends_is_scored_as_far_as_it_came():
    async def work():
        async with Package("clawtest-shop").episode() as episode:
            await episode.say("", call("till_buy", {"thing": "pear"}))
            assert (await episode.verdict()).number == 1.0

    run(work())


def test_a_slow_tool_of_one_episode_does_not_hold_up_another():
    async def work():
        package = Package("clawtest-shop")
        async with package.episode() as one, package.episode() as other:
            ticks = []

            async def tick():
                while True:
                    ticks.append(1)
                    await asyncio.sleep(0.05)

            ticking = asyncio.create_task(tick())
            await asyncio.gather(
                one.say("", call("till_ponder", {})), other.say("", call("read_sign", {})))
            ticking.cancel()
            assert len(ticks) > 8  # `ponder` blocks for a second

    run(work())


@pytest.mark.parametrize(("row", "found"), [
    ({"image": "debian:12"}, "row 1 needs a container image (image = 'debian:12')"),
    ({"resources": {"cpu": 2}}, "row 1 needs a limit of a container (resources.cpu = 2.0)"),
    ({"network_block": ["*.example"]}, "row 1 needs a network policy"),
    ({"network_allow": []}, "row 1 needs a network policy (network_allow = [])"),
    ({"prompt": None}, "row 1 needs a user who opens the conversation"),
    ({"prompt": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:,"}}]}]}, "row 1 needs images"),
])
def test_a_row_that_needs_a_world_of_its_own_is_refused_before_the_first_is_played(row, found):
    with pytest.raises(UsageError, match="'clawtest-odd' cannot be played") as caught:
        Package("clawtest-odd", args={"row": row}).tasks()
    assert found in str(caught.value)


def test_a_taskset_that_brings_its_own_parts_is_refused_by_their_names():
    with pytest.raises(UsageError) as caught:
        Package("clawtest-world").tasks()
    for part in ("a harness of its own (WorldHarness)", "agents of its own (WorldEnv)",
                 "a container (WorldTask.NEEDS_CONTAINER)", "WorldTask.censor",
                 "a tool server elsewhere (Far: http://far.invalid/mcp)"):
        assert part in str(caught.value)


def test_settings_that_the_taskset_does_not_know_are_told():
    with pytest.raises(UsageError, match=r"plugin\.verifiers\.args\.cuont.*did you mean 'count'"):
        Package("clawtest-spell", args={"cuont": 3}).tasks()


def test_what_is_no_package_is_told():
    with pytest.raises(UsageError, match="no verifiers package 'never-heard'") as caught:
        Package("never-heard").tasks()
    assert "tried verifiers.v1.tasksets.never_heard, never_heard" in str(caught.value)
    with pytest.raises(UsageError, match="'clawtest-nothing' is no verifiers package"):
        Package("clawtest-nothing").tasks()


def test_a_task_whose_setup_fails_is_a_failure_with_its_reason():
    async def work():
        before = folders()
        episode = Package("clawtest-odd", args={"raises": "no data today"}).episode()
        with pytest.raises(Exception, match="no data today"):
            await episode.env.start()
        await episode.env.close()
        assert folders() == before

    run(work())
