"""The interpreter in a real sandbox."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from claw_env_toolcall.calls import Call
from claw_env_toolcall.settings import ToolcallConfig
from claw_env_toolcall.tools.python import Python
from claw_env_toolcall.tools.toolbox import Limits, Observation, Toolbox
from played import call

pytestmark = pytest.mark.usefixtures("needs_docker")


@asynccontextmanager
async def opened(call_s: float = 10.0) -> AsyncIterator[Toolbox]:
    config = ToolcallConfig(tools=("python",), call_s=call_s)
    box = Toolbox([Python(config)], Limits(100, config.observation_chars, call_s, 120.0))
    await box.open()
    try:
        yield box
    finally:
        await box.close()


def run(*codes: str, call_s: float = 10.0) -> list[Observation]:
    """Run pieces of code one after the other in one sandbox."""

    async def go() -> list[Observation]:
        async with opened(call_s) as box:
            return [(await box.run([Call("1", "python", {"code": code})]))[0] for code in codes]

    return asyncio.run(go())


def texts(seen: Sequence[Observation]) -> list[str]:
    return [o.text for o in seen]


def test_variables_functions_and_imports_stay_for_the_next_call() -> None:
    begin = "import math\ndef area(r): return math.pi * r**2\nr = 2"
    seen = run(begin, "area(r)", "print(r)\nr + 1")
    assert texts(seen) == ["(nothing was printed)", "12.566370614359172", "2\n3"]


def test_an_exception_is_an_observation_and_what_was_known_stays() -> None:
    seen = run("x = 41", "x / 0", "x + 1")
    assert seen[1].error == "exception"
    assert seen[1].text.endswith("ZeroDivisionError: division by zero")
    assert "interpreter.py" not in seen[1].text  # no frames but the code's own
    assert seen[2].text == "42"


def test_code_past_its_deadline_is_interrupted_and_variables_are_kept() -> None:
    started = time.monotonic()
    seen = run("x = 5", "while True: pass", "import time; time.sleep(60)", "x", call_s=1.0)
    assert [o.error for o in seen] == ["", "deadline", "deadline", ""]
    assert "variables are kept" in seen[1].text and seen[3].text == "5"
    assert time.monotonic() - started < 30


def test_code_that_will_not_be_interrupted_is_killed_and_said_to_be() -> None:
    stubborn = ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                "while True: pass")
    seen = run("x = 5", stubborn, "'x' in globals()", call_s=1.0)
    assert seen[1].error == "deadline" and "variables are gone" in seen[1].text
    assert seen[2].text.startswith("(the interpreter was started anew") and "False" in seen[2].text


def test_an_interpreter_that_dies_or_fills_the_memory_is_started_anew() -> None:
    seen = run("import os; os.kill(os.getpid(), 9)", "1", "x = bytearray(2**31)", "2")
    assert [o.error for o in seen] == ["gone", "", "out_of_memory", ""]
    assert seen[3].text.endswith("2")


def test_what_children_print_is_heard_and_closed_streams_are_opened_again() -> None:
    seen = run("import os; os.system('echo from a child'); None", "os.close(1)", "'here'",
               "import sys; sys.stdout = None", "'still here'", "print('\\ud83c')")
    assert seen[0].text == "from a child"
    assert seen[2].text == "'here'" and seen[4].text == "'still here'"
    assert seen[5].text == "\\ud83c"


def test_a_child_that_the_code_forked_never_answers_for_it() -> None:
    fork = "import os\nif os.fork() == 0: os.write(1, b'child ')\nelse: os.wait()\n'parent'"
    seen = run(fork, "1 + 1", "2 + 2")
    assert [o.error for o in seen] == ["", "", ""]
    assert texts(seen)[1:] == ["2", "4"]


def test_a_gigabyte_of_output_is_an_observation_of_a_kilobyte() -> None:
    [seen] = run("for _ in range(1000): print('x' * 1_000_000)", call_s=30.0)
    assert len(seen.text) < 1200
    assert "left out" in seen.text


def test_there_is_no_network_and_no_secret_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_SECRET", "hidden")
    seen = run("import os; os.environ.get('SOME_SECRET')",
               "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
               "open('/etc/shadow').read()", "os.getuid()")
    assert seen[0].text == "(nothing was printed)"
    assert [o.error for o in seen[1:3]] == ["exception", "exception"]
    assert seen[3].text == "1000"


def test_input_finds_an_end_rather_than_waiting_for_one() -> None:
    [seen] = run("input()")
    assert "EOFError" in seen.text


def test_an_episode_solves_its_task_with_the_interpreter(episode: Callable) -> None:
    code = "print(sum([17, 25]))"
    played = episode(call("python", code=code), "\\boxed{42}", settings={"tools": ("python",)})
    assert played.texts[0] == "<tool_response>42</tool_response>"
    assert played.verdicts[-1].number == 1.0


@pytest.mark.slow
def test_code_in_thirty_two_sandboxes_runs_at_once() -> None:
    """Each waits two seconds: one after the other they would take 64."""

    async def one() -> str:
        async with opened(20.0) as box:
            await box.run([Call("1", "python", {"code": "import time"})])
            ready.append(1)
            while len(ready) < 32:  # measure the calls, not the starts
                await asyncio.sleep(0.05)
            begun.append(time.monotonic())
            [seen] = await box.run([Call("2", "python", {"code": "time.sleep(2); 'slept'"})])
            ended.append(time.monotonic())
            return seen.text

    async def go() -> list[str]:
        return list(await asyncio.gather(*(one() for _ in range(32))))

    ready: list[int] = []
    begun: list[float] = []
    ended: list[float] = []
    assert asyncio.run(go()) == ["'slept'"] * 32
    assert max(ended) - min(begun) < 20


def test_without_an_engine_the_tasks_say_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from claw.sdk import registry
    from claw.sdk.sandbox import SandboxError, engine

    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    engine._client.cache_clear()  # of this process, which may have used the real one
    plugin = registry.load("toolcall")
    config = plugin.settings({"tools": ("python",)})
    try:
        with pytest.raises(SandboxError, match="do: install and start Docker"):
            plugin.hook.claw_tasks(config=config, split="train")
    finally:
        engine._client.cache_clear()
