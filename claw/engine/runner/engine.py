"""The sdk's `Engine` over the wire: what a plugin's app and the episodes ask.

Owns: asks and their deadlines, cancelling, traces of episodes.
Does not own: the socket (`link`), HTTP (the plugin).
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

from claw.engine import wire
from claw.engine.runner.link import Link
from claw.engine.runner.progress import Progress, error_of
from claw.engine.runner.result import Result
from claw.errors import WireError
from claw.records import DEFAULT_OWNER, Message, Signal, Task, new_id
from claw.sdk import Ask, EngineError, Event

REQUEST_S = 30.0
"""deadline of everything but an answer"""
ACTS = ("pause", "exclude", "quarantine", "forget", "export", "rollback", "budget")
ACT_S = 330.0
"""a rollback waits for the step in hand"""
GRACE_S = 5.0
"""on top of an ask's deadline, since the engine ends it with what it has"""


class WireEngine:
    """`open()` before use, `close()` at the end."""

    def __init__(
        self, address: str, *, plugin: str = "", keys: wire.Keys | None = None,
        deadline_s: float = 600.0, heartbeat_s: float = 2.0, dead_after_s: float = 60.0,
    ) -> None:
        self._plugin, self._deadline_s = plugin, deadline_s
        self._takes_pictures: bool | None = None
        self.address = ""
        """of the plugin's HTTP app, for the actor to know"""
        self.num_episodes: Callable[[], int] = lambda: 0
        """running now, for the heartbeat"""
        self._link = Link(
            address, hello=self._hello, beat=self._beat, keys=keys,
            heartbeat_s=heartbeat_s, dead_after_s=dead_after_s,
        )

    async def open(self) -> None:
        """Connect and say hello as soon as there is an actor."""
        await self._link.open()

    async def close(self) -> None:
        """End what waits and leave."""
        await self._link.close()

    @property
    def stopped(self) -> asyncio.Event:
        """Set when the actor ends the run."""
        return self._link.stopped

    def _hello(self) -> wire.Message:
        fields = {"plugin": self._plugin, "pid": os.getpid(), "address": self.address}
        return wire.Message("runner.hello", fields=fields)

    def _beat(self) -> wire.Message:
        return wire.Message("runner.beat", fields={"episodes": self.num_episodes()})

    # --- Engine ------------------------------------------------------------------------------

    async def ask(self, ask: Ask, *, trace_id: str = "") -> AsyncGenerator[Event, None]:
        """Stream one answer. Closing the iterator early cancels the generation."""
        deadline_s = ask.deadline_s or self._deadline_s
        until = asyncio.get_running_loop().time() + deadline_s + GRACE_S
        message = wire.record_message(
            "turn.ask", replace(ask, deadline_s=deadline_s), new_id("ask"), trace_id=trace_id
        )
        progress, is_over = Progress(), False
        async with self._link.request(message) as pending:
            try:
                while not is_over:
                    events = progress.events(await pending.following(until))
                    is_over = any(event.type == "done" for event in events)
                    for event in events:
                        yield event
            except TimeoutError:
                raise _late(deadline_s) from None
            except WireError as error:
                raise EngineError(500, str(error), type="server_error") from error
            except EngineError as error:
                is_over = error.code != "engine_unavailable"
                raise
            finally:
                if not is_over:
                    await self._cancel(message.id)

    async def _cancel(self, id: str) -> None:
        try:
            await self._link.send(wire.Message("turn.cancel", id))
        except EngineError:
            return  # an actor that reads nothing samples nothing for us either

    async def feedback(
        self, target: str, value: int, text: str = "", edit: str = "", *,
        owner: str = DEFAULT_OWNER,
    ) -> dict[str, Any]:
        """Record a person's +1 / -1, words and own version of the reply on a turn."""
        return await self._request("feedback", target=target, value=value, text=text, edit=edit,
                                   owner=owner)

    async def end_session(self, session: str, *, owner: str = DEFAULT_OWNER) -> None:
        """Say that a conversation is over."""
        await self._request("session.end", session=session, owner=owner)

    async def status(self, *, owner: str = DEFAULT_OWNER) -> dict[str, Any]:
        """Return versions, workers, turns by state and the model's context length."""
        return await self._request("status", owner=owner)

    async def look(self, what: str, **about: Any) -> dict[str, Any]:
        """Return what a page shows."""
        return await self._request("look", what=what, **about)

    async def act(self, what: str, **about: Any) -> dict[str, Any]:
        """Do what a person asks of the run."""
        if what not in ACTS:
            raise EngineError(400, f"no such act: {what!r}")
        return await self._request(what, within_s=ACT_S, **about)

    # --- traces of episodes ------------------------------------------------------------------

    async def takes_pictures(self) -> bool:
        """Whether the run's model and workers see pictures; asked once."""
        if self._takes_pictures is None:
            self._takes_pictures = bool((await self.status()).get("takes_pictures"))
        return self._takes_pictures

    async def open_trace(self, task: Task, group: str) -> str:
        """Begin a trace; the private answer stays here.

        The actor may hold it back while too much is ahead of training (`async.stale = "pace"`).
        """
        fields, _ = wire.pack(replace(task, answer=None))
        reply = await self._request(
            "trace.open", within_s=REQUEST_S + self._deadline_s, record=fields, group=group
        )
        return str(reply["trace_id"])

    async def next_state(
        self, turn_id: str, messages: list[Message], signals: list[Signal]
    ) -> None:
        """Report what followed a turn, and what the plugin's judges say of it."""
        packed = [wire.pack(signal)[0] for signal in signals]
        await self._request("trace.next", turn_id=turn_id, messages=messages, signals=packed)

    async def end_trace(self, result: Result) -> None:
        """Report why an episode ended, its outcome, and whether the attempt is played again."""
        await self._request(
            "trace.end", trace_id=result.trace_id, end=result.end.value, outcome=result.outcome,
            judge=result.judge, failure=result.failure, again=result.is_again,
        )

    async def _request(
        self, type: str, *, within_s: float | None = None, **fields: Any
    ) -> dict[str, Any]:
        within_s = REQUEST_S if within_s is None else within_s
        until = asyncio.get_running_loop().time() + within_s
        async with self._link.request(wire.Message(type, new_id("req"), fields)) as pending:
            try:
                reply = await pending.following(until)
            except TimeoutError:
                raise _late(within_s) from None
        if reply.type == "error" or reply.get("error"):
            raise error_of(reply.fields)
        return reply.fields


def _late(deadline_s: float) -> EngineError:
    return EngineError(
        504, f"no answer within {deadline_s:g} s", type="server_error", code="deadline"
    )
