"""Groups 4, 5 and 7: environments start, answer, end, leave nothing, and disturb no other."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from claw.records import Message, Task
from claw.sdk.env import assistant
from claw.sdk.hooks import Said
from claw.sdk.testing.attempt import (
    DEADLINE_S,
    Attempt,
    Played,
    limit_of,
    play,
    play_gold,
    silent,
)
from claw.sdk.testing.criteria import told
from claw.sdk.testing.leftovers import Watch
from claw.sdk.testing.messages import problem_of, problem_of_tool
from claw.sdk.testing.subject import Subject

GARBAGE = "\x00 ``` {\"answer\": \ud800 <|im_end|> \U0001f9a0 " + "ha " * 400
"""what a policy may say: control characters, half of a pair, markup, far too much"""
CANCEL_S = 1.0
RETURN_S = 5.0


# --- 4: start, tools, strange replies ------------------------------------------------------------


async def starts(s: Subject) -> None:
    """Group 4."""
    for task in s.tasks():
        said = "start() gives messages that a chat template can read"
        found = await s.attempt("4.start", said, _start(s, task), task.id)
        if found is None:
            continue
        messages, tools = found
        problem = next(filter(None, map(problem_of, messages)), "" if messages else "no messages")
        if not problem and messages[-1]["role"] == "assistant":
            problem = "the last message is the policy's own"
        s.hold("4.start", said, not problem, task=task.id, actual=problem,
               expected="a list of messages that ends with what the policy answers")
        again = await s.attempt("4.same", "it starts again", _start(s, task),
                                task.id)
        s.hold("4.same", "the same task starts the same", again == found, task=task.id,
               expected=messages, actual=again and again[0],
               do="draw what is random when the task is made, from a seed of the settings")
        problem = next(filter(None, map(problem_of_tool, tools)), "")
        s.hold("4.tools", "its tools are functions with JSON schemas", not problem, task=task.id,
               expected="OpenAI's tools shape", actual=problem)
        await _strange(s, task, tools)


async def _start(s: Subject, task: Task) -> tuple[list[Message], list[Any]]:
    attempt = Attempt(s.plugin, s.settings, task)
    try:
        return await attempt.start(), list(getattr(attempt.env, "tools", ()))
    finally:
        await attempt.close()


async def _strange(s: Subject, task: Task, tools: list[Any]) -> None:
    for kind, reply in _strange_replies(tools):
        said = f"{kind} is answered, not raised"
        following = await s.attempt("4.strange", said, _one(s, task, reply),
                                    task.id)
        if following is None:
            continue
        problem = next(filter(None, map(problem_of, following[0] or ())), "")
        asked = {call["id"] for call in reply.get("tool_calls", ())}
        told_of = {m.get("tool_call_id") for m in following[0] or ()}
        if not problem and following[0] is not None and tools and asked - told_of:
            problem = f"no tool message answers {sorted(asked - told_of)}"
        s.hold("4.strange", said, not problem, task=task.id, actual=problem,
               expected="an observation that says what was wrong, or the end of the episode")


def _strange_replies(tools: list[Any]) -> Iterator[tuple[str, Message]]:
    yield "an unknown tool", assistant(calls=[("no_such_tool", {})])
    yield "garbage", assistant(GARBAGE)
    for tool in tools:
        name = tool["function"]["name"]
        yield f"broken JSON for {name}", assistant(calls=[(name, '{"a": ')])
        yield f"a list for {name}", assistant(calls=[(name, "[1, 2]")])
        yield f"unknown arguments for {name}", assistant(calls=[(name, {"no_such": None})])


async def _one(s: Subject, task: Task, reply: Message) -> tuple[list[Message] | None]:
    attempt = Attempt(s.plugin, s.settings, task)
    try:
        await attempt.start()
        return (await attempt.say(reply),)  # in a tuple: None is an answer here
    finally:
        await attempt.close()


# --- 5: the end ----------------------------------------------------------------------------------


async def ends(s: Subject) -> None:
    """Group 5."""
    limit = limit_of(s.plugin)
    for task in s.tasks():
        for name, policy in (("says nothing", silent), ("says garbage", lambda _: GARBAGE)):
            said = f"a policy that {name} comes to an end"
            played = await s.attempt("5.ends", said, play(
                s.plugin, s.settings, task, policy, judged=False), task.id)
            if played is not None:
                s.hold("5.ends", f"{said} by itself", played.is_over, required=False,
                       task=task.id, expected=f"reply() returns None within {limit} turns",
                       actual="the turn limit ended it")
        await _leaves(s, task)


async def _leaves(s: Subject, task: Task) -> None:
    said = "close() works before start, after the end, and twice"
    with Watch() as watch:
        closed = await s.attempt("5.close", said, _closings(s, task), task.id)
        if closed is not None:
            s.hold("5.close", said, True, task=task.id)
        left = await watch.leavings()
    s.hold("5.leaves", "nothing remains: no process, container, temporary file or thread", not left,
           task=task.id, expected="nothing", actual=left, do="free it in close()")


async def _closings(s: Subject, task: Task) -> bool:
    unstarted = Attempt(s.plugin, s.settings, task)
    try:
        await unstarted.make()
    finally:
        await unstarted.close()
    attempt = Attempt(s.plugin, s.settings, task)
    try:
        await attempt.start()
        await attempt.say("hello")
        await attempt.lane.call(attempt.env.close, deadline_s=DEADLINE_S)
    finally:
        await attempt.close()
    return True


# --- 7: together ---------------------------------------------------------------------------------


async def together(s: Subject) -> None:
    """Group 7."""
    tasks = s.tasks()
    pair = (tasks * 2)[:2]
    if pair:
        await _two(s, pair)
        await _cut(s, pair[0])


async def _two(s: Subject, pair: list[Task]) -> None:
    said = "two episodes at once go as each does alone"
    alone = [await s.attempt("7.two", said, _best(s, t), t.id) for t in pair]
    repeat = await s.attempt("7.two", said, _best(s, pair[0]), pair[0].id)
    if repeat is None or None in alone:
        return
    both = await s.attempt("7.two", said, asyncio.gather(*(_best(s, t) for t in pair)))
    s.hold("7.again", "played and judged again, the outcome is the same",
           repeat.outcome == alone[0].outcome, task=pair[0].id, expected=alone[0].outcome,
           actual=repeat.outcome, do="judge by what happened, not by chance or the time")
    is_exact = _story(repeat) == _story(alone[0])  # what says the time is never twice the same
    for task, one, other in zip(pair, alone, both or (), strict=False):
        view = _story if is_exact else _shape
        s.hold("7.two", said, view(one) == view(other), task=task.id, expected=view(one),
               actual=view(other), do="keep what an episode needs on its own Env")


async def _best(s: Subject, task: Task) -> Played:
    """The gold solution where there is one, else garbage."""
    played = await play_gold(s.plugin, s.settings, task)
    return played or await play(s.plugin, s.settings, task, lambda _: GARBAGE)


def _story(played: Played) -> str:
    return json.dumps([played.messages, played.outcome], default=repr)


def _shape(played: Played) -> str:
    roles = [message["role"] for message in played.messages]
    return json.dumps([roles, played.outcome])


async def _cut(s: Subject, task: Task) -> None:
    said = "an episode that is cancelled in mid-turn is closed within a second"
    found = await s.attempt("7.cancel", said, _cancelled(s, task), task.id)
    if found is None:
        return
    seconds, came_back = found
    s.hold("7.cancel", said, seconds < CANCEL_S, task=task.id, expected=f"< {CANCEL_S:g} s",
           actual=f"{seconds:.2f} s", do="close() is called from another thread; do not wait there")
    s.hold("7.returns", f"the call that was cut comes back within {RETURN_S:g} s", came_back,
           task=task.id, expected="reply() ends once close() took away what it waits for",
           actual="it still runs")


async def _cancelled(s: Subject, task: Task) -> tuple[float, bool]:
    attempt = Attempt(s.plugin, s.settings, task)
    first = await _first_said(s, task, attempt)
    speaking = asyncio.create_task(attempt.say(first))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    speaking.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await speaking
    await attempt.close()
    seconds = time.monotonic() - began
    until = time.monotonic() + RETURN_S
    while attempt.lane.is_busy and time.monotonic() < until:
        await asyncio.sleep(0.05)
    return seconds, not attempt.lane.is_busy


async def _first_said(s: Subject, task: Task, attempt: Attempt) -> Said:
    """The gold solution's first words: what is worth interrupting."""
    messages = await attempt.start()
    try:
        gold = await attempt.gold()
    except Exception as error:  # told by group 6
        return told(error)
    said = gold(messages) if callable(gold) else next(iter(gold or ()), None)
    return said if said is not None else "hello"
