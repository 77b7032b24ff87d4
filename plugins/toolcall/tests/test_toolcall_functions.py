"""Functions as tools: their schemas, and that calls of them wait for nobody."""

import asyncio
import threading
import time
from typing import Annotated, Literal

import pytest
from claw_env_toolcall.calls import Call
from claw_env_toolcall.sources import Functions
from claw_env_toolcall.tools import threads
from claw_env_toolcall.tools.function import from_function, named
from claw_env_toolcall.tools.tool import Tool
from claw_env_toolcall.tools.toolbox import Limits, Observation, Toolbox
from pydantic import BaseModel, Field

from claw.errors import UsageError

LIMITS = Limits(calls=1000, chars=1024, call_s=5.0, total_s=60.0)


class Place(BaseModel):
    city: str
    country: str = "NL"


def weather(
    place: Place, unit: Literal["c", "f"] = "c",
    days: Annotated[int, Field(ge=1, le=7, description="how far ahead")] = 1,
) -> dict[str, object]:
    """Tell the weather.

    Args:
        place: where it is asked for
        unit: of the temperature
    """
    return {"city": place.city, "unit": unit, "days": days}


def run(tools: list[Tool], *calls: Call, limits: Limits = LIMITS) -> list[Observation]:
    async def go() -> list[Observation]:
        box = Toolbox([Functions(tuple(tools))], limits)
        await box.open()
        try:
            return await box.run(calls)
        finally:
            await box.close()

    return asyncio.run(go())


def test_the_signature_is_the_schema_and_the_docstring_the_description() -> None:
    tool = from_function(weather)
    assert (tool.name, tool.description) == ("weather", "Tell the weather.")
    properties = tool.parameters["properties"]
    assert tool.parameters["required"] == ["place"]
    assert properties["place"]["description"] == "where it is asked for"
    assert properties["days"] == {
        "default": 1, "description": "how far ahead", "maximum": 7, "minimum": 1,
        "type": "integer"}
    assert properties["unit"]["enum"] == ["c", "f"]


def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    [seen] = run([from_function(weather)],
                 Call("1", "weather", {"place": {"city": "Delft"}, "days": 2}))
    assert seen.text == '{"city":"Delft","unit":"c","days":2}'


@pytest.mark.parametrize("arguments", [
    {"place": "Delft"}, {"place": {"city": "Delft"}, "days": 9},
    {"place": {"city": "Delft"}, "unit": "k"}, {"place": {"city": "Delft"}, "days": "two"},
])
def test_arguments_that_do_not_fit_never_reach_the_function(arguments: dict) -> None:
    [seen] = run([from_function(weather)], Call("1", "weather", arguments))
    assert seen.error == "wrong_arguments"


def test_a_function_without_annotations_is_refused_by_name() -> None:
    def loose(a, b: int) -> int:  # type: ignore[no-untyped-def]
        return b

    with pytest.raises(UsageError, match="'loose' is no tool"):
        from_function(loose)


@pytest.mark.parametrize("path", ["nothing", "no_such_module:f", "json:no_such_function"])
def test_a_function_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(UsageError, match="no tool"):
        named(path)


def test_thirty_two_blocking_calls_run_at_once() -> None:
    """A barrier opens only when all 32 are inside: with one fewer thread none would return."""
    barrier = threading.Barrier(32, timeout=20)

    def meet(number: int) -> int:
        """Wait for the others."""
        barrier.wait()
        return number

    limits = Limits(calls=1000, chars=1024, call_s=30.0, total_s=60.0)
    seen = run([from_function(meet)], *(Call(str(i), "meet", {"number": i}) for i in range(32)),
               limits=limits)
    assert [o.text for o in seen] == [str(i) for i in range(32)]


def test_a_tool_that_raises_an_exit_ends_its_call_only() -> None:
    def leave() -> None:
        """Leave."""
        raise SystemExit(3)

    [seen] = run([from_function(leave)], Call("1", "leave", {}))
    assert (seen.error, seen.text) == (
        "exception", "error: RuntimeError: the tool raised SystemExit")


def test_a_call_past_its_deadline_is_an_observation_and_holds_up_nobody() -> None:
    over = threading.Event()

    def hang() -> str:
        """Hang."""
        over.wait(30)
        return "late"

    def quick() -> str:
        """Answer."""
        return "quick"

    started = time.monotonic()
    limits = Limits(calls=10, chars=1024, call_s=0.3, total_s=60.0)
    slow, fast = run([from_function(hang), from_function(quick)], Call("1", "hang", {}),
                     Call("2", "quick", {}), limits=limits)
    over.set()
    assert (slow.error, fast.text) == ("deadline", "quick")
    assert time.monotonic() - started < 10


def test_when_the_time_of_an_episode_is_spent_no_call_begins() -> None:
    def nap() -> str:
        """Sleep a little."""
        time.sleep(0.2)
        return "slept"

    async def go() -> list[Observation]:
        limits = Limits(calls=10, chars=1024, call_s=5.0, total_s=0.1)
        box = Toolbox([Functions((from_function(nap),))], limits)
        await box.open()
        return [*await box.run([Call("1", "nap", {})]), *await box.run([Call("2", "nap", {})])]

    first, second = asyncio.run(go())
    assert (first.text, second.error) == ("slept", "budget")
    assert "no time left" in second.text


def test_threads_that_never_come_back_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_room", threading.BoundedSemaphore(2))
    over = threading.Event()

    def hang() -> None:
        """Hang."""
        over.wait(30)

    limits = Limits(calls=10, chars=1024, call_s=0.3, total_s=60.0)
    seen = run([from_function(hang)], *(Call(str(i), "hang", {}) for i in range(3)), limits=limits)
    over.set()
    assert sorted(o.error for o in seen) == ["busy", "deadline", "deadline"]


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(UsageError, match="two tools"):
        run([from_function(weather), from_function(weather)], Call("1", "weather", {}))
