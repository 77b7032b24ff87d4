"""MCP servers, real ones: over stdio and over streamable HTTP."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_toolcall.calls import Call
from claw_env_toolcall.settings import McpConfig, ToolcallConfig
from claw_env_toolcall.tools.mcp import McpServer
from claw_env_toolcall.tools.toolbox import Limits, Toolbox
from played import call

from claw.errors import ClawError, UsageError


@pytest.fixture(params=["stdio", "http"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "stdio":
        server = request.getfixturevalue("stdio_server")
    else:
        server = {"url": request.getfixturevalue("http_server")}
    return {"tools": (), "mcp": {"tests": server}, "call_s": 4.0}


def servers() -> list[str]:
    """Command lines of the stdio servers that live now, below this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if "tool_server.py stdio" in words and int(parent) == os.getpid():
            found.append(words)
    return found


def test_the_servers_tools_are_offered_and_answer(
    episode: Callable, settings: dict[str, Any]
) -> None:
    played = episode(call("add", a=17, b=25), "\\boxed{42}", settings=settings)
    assert "Add two whole numbers." in played.first[0]["content"]
    assert played.texts[0] == "<tool_response>42</tool_response>"
    assert not servers()


def test_what_goes_wrong_at_the_server_is_an_observation(
    episode: Callable, settings: dict[str, Any]
) -> None:
    played = episode(call("fail") + call("add", a="x", b=1) + call("wait", seconds=30),
                     "\\boxed{42}", settings=settings)
    seen = played.env.steps[0].observations
    assert [o.error for o in seen] == ["exception", "wrong_arguments", "deadline"]
    assert "no luck today" in seen[0].text


def test_a_server_started_for_an_episode_knows_nothing_of_another(
    episode: Callable, stdio_server: dict[str, Any]
) -> None:
    settings = {"tools": (), "mcp": {"tests": stdio_server}}
    first = episode(call("note", text="one"), call("note", text="two"), settings=settings)
    second = episode(call("note", text="three"), settings=settings)
    assert "one, two" in first.texts[1]
    assert "one" not in second.texts[0] and "three" in second.texts[0]


def test_a_server_gets_no_variable_that_was_not_meant_for_it(
    episode: Callable, stdio_server: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SECRET", "hidden")
    given = stdio_server | {"env": {"GIVEN": "seen"}}
    played = episode(call("variable", key="SOME_SECRET") + call("variable", key="GIVEN"),
                     settings={"tools": (), "mcp": {"tests": given}})
    assert [o.text for o in played.env.steps[0].observations] == ["unset", "seen"]


def test_a_server_that_dies_costs_its_own_calls_only(
    episode: Callable, stdio_server: dict[str, Any]
) -> None:
    settings = {"mcp": {"tests": stdio_server}, "call_s": 5.0}
    played = episode(call("die"), call("add", a=1, b=2), call("calculator", expression="17+25"),
                     "\\boxed{42}", settings=settings)
    assert [s.observations[0].error != "" for s in played.env.steps[:3]] == [True, True, False]
    assert played.verdicts[-1].number == 1.0


def test_thirty_two_calls_of_one_server_wait_for_each_other_no_longer_than_one(
    settings: dict[str, Any],
) -> None:
    config = ToolcallConfig(**settings).mcp["tests"]

    async def go() -> tuple[list[str], float]:
        box = Toolbox([McpServer("tests", config)], Limits(100, 1024, 20.0, 60.0))
        await box.open()
        try:
            started = time.monotonic()
            seen = await box.run([Call(str(i), "wait", {"seconds": 1.0}) for i in range(32)])
            return [o.text for o in seen], time.monotonic() - started
        finally:
            await box.close()

    texts, seconds = asyncio.run(go())
    assert texts == ["waited"] * 32
    assert seconds < 16  # one after the other they take 32


@pytest.mark.parametrize(("config", "words"), [
    (McpConfig(command="/no/such/program"), "No such file"),
    pytest.param(McpConfig(command="sleep", args=("60",), start_s=0.5), "no answer within 0.5 s",
                 marks=pytest.mark.slow),
    (McpConfig(url="http://127.0.0.1:9/mcp", start_s=20), "127.0.0.1:9"),
])
def test_a_server_that_cannot_be_used_is_named(config: McpConfig, words: str) -> None:
    async def go() -> None:
        server = McpServer("broken", config)
        try:
            await server.open()
        finally:
            await server.close()

    with pytest.raises(ClawError, match="'broken' cannot be used") as caught:
        asyncio.run(go())
    assert words in str(caught.value)


def test_a_missing_token_is_named_before_anything_is_sent() -> None:
    server = McpServer("paid", McpConfig(url="http://127.0.0.1:9/mcp", token_env="NO_SUCH_TOKEN"))

    async def go() -> None:
        try:
            await server.open()
        finally:
            await server.close()

    with pytest.raises((ClawError, UsageError), match="NO_SUCH_TOKEN is empty"):
        asyncio.run(go())


@pytest.mark.parametrize("values", [
    {}, {"command": "a", "url": "http://b"}, {"url": "http://b", "args": ("x",)},
    {"command": "a", "token_env": "X"},
])
def test_settings_that_would_be_ignored_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"one of them|no effect"):
        McpConfig(**values)
