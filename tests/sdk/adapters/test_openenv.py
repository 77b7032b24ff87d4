"""Real OpenEnv servers: sessions over WebSocket, HTTP where there are none, and what goes wrong."""

import asyncio
import json
import socket

import pytest
import websockets

from claw.errors import UsageError
from claw.records import FinishReason
from claw.sdk import Case, EnvTurn, registry
from claw.sdk.adapters.openenv.session import ServerError, SocketSession
from claw.sdk.adapters.openenv.settings import OpenenvConfig

TIMEOUT_S = 40


@pytest.fixture(scope="module")
def plugin():
    return registry.load("openenv")


def run(work):
    return asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


class Player:
    """Plays one task of a server, turn by turn, as an episode does."""

    def __init__(self, plugin, url, split="train", **settings):
        self.settings = plugin.settings({"url": url, "tasks": 3, "connect_s": 5.0} | settings)
        self.tasks = list(plugin.hook.claw_tasks(config=self.settings, split=split))
        self.judge = plugin.hook.claw_judges(config=self.settings)[0][0]
        self.plugin, self.turns = plugin, 0

    async def __aenter__(self):
        self.env = self.plugin.hook.claw_env(task=self.tasks[1], config=self.settings)
        return self

    async def __aexit__(self, *_):
        await self.env.close()
        await self.env.close()

    async def say(self, text="", *calls):
        """Reply with a text, or with calls: (name, arguments)."""
        reply = {"role": "assistant", "content": text}
        if calls:
            reply["tool_calls"] = [
                {"id": f"c{i}", "type": "function", "function": {
                    "name": name, "arguments": a if isinstance(a, str) else json.dumps(a)}}
                for i, (name, a) in enumerate(calls)
            ]
        self.turns += 1
        return await self.env.reply(EnvTurn(reply, FinishReason.STOP, self.turns - 1))

    async def outcome(self):
        case = Case("turn", (), {}, (), self.tasks[1], True, {"env": self.env})
        return await self.judge.judge(case)


def test_a_text_action_is_the_policys_text_and_rewards_are_summed(plugin, served):
    async def work():
        async with Player(plugin, f"ws://{served}/echo") as player:
            assert [t.metadata["seed"] for t in player.tasks] == [0, 1, 2]
            assert await player.env.start() == [
                {"role": "system", "content": "Say something."},
                {"role": "user", "content": "ready 1"},
            ]
            assert player.env.tools == []
            assert await player.say("hello") == [{"role": "user", "content": "hello"}]
            assert await player.say("bye") is None
            verdict = await player.outcome()
            assert (player.judge.name, verdict.number) == ("checker:openenv", 4.0)
            assert "checker:openenv" in verdict.reason and "steps 2" in verdict.reason

    run(work())


def test_seeds_of_eval_are_others_and_reset_takes_further_fields(plugin, served):
    async def work():
        url = f"http://{served}/echo/"
        async with Player(plugin, url, "eval", reset={"hello": "Hi"}, prompt="Echo!") as player:
            system, user = await player.env.start()
            assert system["content"] == "Echo!" and user["content"] == "Hi 1000001"

    run(work())


def test_other_actions_become_one_tool_with_their_schema(plugin, served):
    async def work():
        async with Player(plugin, f"ws://{served}/line") as player:
            first = await player.env.start()
            assert json.loads(first[-1]["content"]) == {"at": 0, "goal": 2}
            [tool] = player.env.tools
            function = tool["function"]
            assert (function["name"], function["description"]) == ("act", "Move on the line.")
            assert set(function["parameters"]["properties"]) == {"by", "why"}
            assert function["parameters"]["required"] == ["by"]
            seen = await player.say("", ("act", {"by": -1}), ("act", {"by": 1}))
            assert [json.loads(m["content"])["at"] for m in seen] == [-1, 0]
            assert [m["tool_call_id"] for m in seen] == ["c0", "c1"]
            assert await player.say("", ("act", {"by": 1}), ("act", {"by": 1})) is None
            assert (await player.outcome()).number == -0.75 + 1.0

    run(work())


def test_what_the_policy_does_wrong_is_an_observation_and_no_step(plugin, served):
    async def work():
        async with Player(plugin, f"ws://{served}/line") as player:
            await player.env.start()
            [said] = await player.say("I walk.")
            assert said == {"role": "user", "content": "Call a tool: act."}
            seen = await player.say(
                "", ("fly", {}), ("act", "{"), ("act", "[1]"), ("act", {"by": 7}), ("act", {}))
            texts = [m["content"] for m in seen]
            assert "no tool 'fly'" in texts[0] and "no JSON:" in texts[1]
            assert "no JSON object" in texts[2]
            assert "less than or equal to 1" in texts[3] and "Field required" in texts[4]
            assert (await player.outcome()).number == 0.0

    run(work())


def test_a_server_that_speaks_mcp_gives_its_own_tools(plugin, served):
    async def work():
        async with Player(plugin, f"ws://{served}/desk") as player:
            await player.env.start()
            [tool] = player.env.tools
            assert tool["function"]["name"] == "double"
            assert tool["function"]["description"] == "Double a number."
            assert tool["function"]["parameters"]["required"] == ["number"]
            calls = ("double", {"number": 21}), ("double", {"number": 101})
            good, bad = await player.say("", *calls)
            assert "42" in good["content"] and "too big" in bad["content"]

    run(work())


@pytest.mark.parametrize(("said", "settings", "failure"), [
    ("crash", {}, "EXECUTION_ERROR: the echo broke"),
    ("slow", {"step_s": 0.5}, "did not answer step within 0.5 s"),
    ("huge", {"max_message_mb": 0.5}, "the socket was lost during step"),
])
def test_a_server_that_fails_ends_the_episode_with_its_reason(
    plugin, served, said, settings, failure
):
    async def work():
        async with Player(plugin, f"ws://{served}/echo", **settings) as player:
            await player.env.start()
            with pytest.raises(Exception, match=failure):
                await player.say(said)

    run(work())


def test_a_long_observation_keeps_its_head_and_tail(plugin, served):
    async def work():
        async with Player(plugin, f"ws://{served}/echo", max_observation=1000) as player:
            await player.env.start()
            [seen] = await player.say("long")
            assert "49000 characters left out" in seen["content"]
            assert len(seen["content"]) < 1100

    run(work())


def test_an_episode_waits_for_room_and_fails_when_there_is_none(plugin, served):
    async def work():
        url = f"ws://{served}/one"
        async with Player(plugin, url) as first, Player(plugin, url) as second:
            await first.env.start()
            waiting = asyncio.create_task(second.env.start())
            await asyncio.sleep(0.5)
            assert not waiting.done()
            await first.env.close()
            assert (await waiting)[-1]["content"] == "ready 1"
            async with Player(plugin, url, connect_s=0.5) as third:
                with pytest.raises(ConnectionError, match=r"no session.*CAPACITY_REACHED"):
                    await third.env.start()

    run(work())


def test_what_a_full_server_said_before_it_closed_is_read():
    async def full(connection):
        await connection.send(json.dumps(
            {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "1 of 1"}}))

    async def work():
        async with websockets.serve(full, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            config = OpenenvConfig(url=f"ws://127.0.0.1:{port}/one")
            socket = await websockets.connect(config.ws_url)
            await socket.wait_closed()
            session = SocketSession(config, socket, websockets.ConnectionClosed)
            with pytest.raises(ServerError, match="CAPACITY_REACHED"):
                await session.reset({"episode_id": "e"})

    run(work())


def test_a_socket_that_is_lost_has_lost_the_episode(plugin, served):
    async def work():
        async with Player(plugin, f"ws://{served}/echo") as player:
            await player.env.start()
            player.env._session._socket.transport.abort()
            with pytest.raises(ConnectionError, match="the socket was lost during step"):
                await player.say("hello")

    run(work())


def test_a_server_without_sessions_is_played_over_http_one_episode_at_a_time(plugin, served):
    async def work():
        url = f"ws://{served}/kept"
        async with Player(plugin, url) as first, Player(plugin, url) as second:
            await first.env.start()
            waiting = asyncio.create_task(second.env.start())
            assert await first.say("hello") == [{"role": "user", "content": "hello"}]
            assert (await first.env._session.state())["step_count"] == 1
            assert not waiting.done()
            assert await first.say("bye") is None
            assert (await first.outcome()).number == 4.0
            await first.env.close()
            await waiting
            with pytest.raises(Exception, match="HTTP 500"):
                await second.say("crash")

    run(work())


def test_a_server_that_forgets_between_requests_is_refused_by_name(plugin, served):
    async def work():
        async with Player(plugin, f"http://{served}/forgets") as player:
            with pytest.raises(Exception, match="no /ws and forgets the episode"):
                await player.env.start()

    run(work())


def test_a_server_that_is_not_there_is_refused_before_anything_starts(plugin):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UsageError, match="does not answer /schema") as caught:
        Player(plugin, url)
    assert "plugin.openenv.url" in str(caught.value)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "ws://", "ws://x/?a=1"])
def test_an_address_that_is_none_is_refused(plugin, url):
    with pytest.raises(UsageError, match=r"plugin\.openenv\.url: an address"):
        plugin.settings({"url": url})


def test_a_missing_address_is_asked_for(plugin):
    with pytest.raises(UsageError, match=r"plugin\.openenv\.url: Field required"):
        plugin.settings({})
