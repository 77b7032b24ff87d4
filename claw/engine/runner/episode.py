"""One episode: start, ask, reply, ask, ... judge, end. What fails becomes data.

Owns: one attempt at one task, from opening its trace to closing its environment.
Does not own: which tasks are played and how many at once (`episodes`).
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from claw.engine.runner.engine import WireEngine
from claw.engine.runner.judges import Judges
from claw.errors import Boundary, BoundaryError, boundary
from claw.records import End, FinishReason, Message, Task
from claw.sdk import Ask, Case, EngineError, EnvTurn, Event
from claw.sdk.lane import Lane
from claw.sdk.registry import Plugin

log = logging.getLogger(__name__)

ENV_DEADLINE_S = 1800.0
"""one call of an environment; its own tests may be slow"""
CLOSE_DEADLINE_S = 60.0
MAX_ASKS = 6
"""tries of one ask while the engine is full or away"""
MAX_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one attempt."""

    task_id: str
    trace_id: str
    end: End
    outcome: float | None = None
    failure: str = ""
    num_turns: int = 0


@dataclass
class Episode:
    """One attempt at `task`. Use once: `await Episode(...).play()`."""

    engine: WireEngine
    plugin: Plugin
    settings: Any
    task: Task
    group: str
    judges: Judges
    max_turns: int
    env_deadline_s: float = ENV_DEADLINE_S
    trace_id: str = ""
    messages: list[Message] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    outcome: float | None = None
    _env: Any = None
    _opening: "asyncio.Task[str] | None" = None
    _following: list[Message] = field(default_factory=list)
    """what the environment said to the last turn, if it said anything"""

    async def play(self) -> Result:
        """Play to the end; raises only when it is cancelled."""
        self._lane = Lane(f"env-{self.task.id}")
        end, failure = End.CANCELLED, "the runner stopped"
        try:
            end, failure = await self._outcome_or_failure()
        finally:
            await _to_its_end(self._finish(end, failure))
        return Result(
            self.task.id, self.trace_id, end, self.outcome, failure, len(self.cases)
        )

    async def _outcome_or_failure(self) -> tuple[End, str]:
        try:
            with boundary(Boundary.POLICY):
                self._opening = asyncio.create_task(
                    self.engine.open_trace(self.task, self.group)
                )
                self.trace_id = await asyncio.shield(self._opening)
            end = await self._turns()
            if self.cases:
                await self._judge_last()
            return end, ""
        except BoundaryError as error:
            log.warning("task %s: %s", self.task.id, error)
            return End.FAILED, str(error)

    async def _turns(self) -> End:
        with boundary(Boundary.ENV):
            self._env = await self._call(self._make)
            self.messages = list(await self._call(self._env.start))
        for index in range(self.max_turns):
            with boundary(Boundary.POLICY):
                done = await self._ask()
            if done is None:
                return End.CONTEXT
            reply = done.message or {"role": "assistant", "content": ""}
            case = Case(
                done.turn_id, tuple(self.messages), reply, (), self.task,
                metadata={"env": self._env, "index": index},
            )
            self.cases.append(case)
            self._following = []
            if (following := await self._reply(done, reply, index)) is None:
                return End.DONE
            self._following = following
            self.messages = [*self.messages, reply, *following]
            await self._report_turn(case)
        return End.TURN_LIMIT

    def _make(self) -> Any:
        env = self.plugin.hook.claw_env(task=self.task, config=self.settings)
        if env is None:
            raise ValueError("claw_env returned no environment")
        return env

    async def _reply(self, done: Event, reply: Message, index: int) -> list[Message] | None:
        turn = EnvTurn(reply, FinishReason(done.finish_reason or "stop"), index, done.usage)
        with boundary(Boundary.ENV):
            following = await self._call(self._env.reply, turn)
            if following is not None and not isinstance(following, list | tuple):
                raise TypeError(f"reply() returned {type(following).__name__}, not messages")
        return None if following is None else list(following)

    async def _call(self, function: Any, *args: Any) -> Any:
        return await self._lane.call(function, *args, deadline_s=self.env_deadline_s)

    # --- the policy --------------------------------------------------------------------------

    async def _ask(self) -> Event | None:
        """Return the done event; None when the episode no longer fits the context."""
        ask = Ask(self.messages, list(getattr(self._env, "tools", ())), kind="main")
        for attempt in range(MAX_ASKS):
            try:
                return await self._answer(ask)
            except EngineError as error:
                if error.code == "context_length_exceeded" and self.cases:
                    return None
                if error.status not in (429, 503) or attempt + 1 == MAX_ASKS:
                    raise
                await asyncio.sleep(min(error.retry_after_s or 2.0**attempt, MAX_WAIT_S))
        raise AssertionError("the last attempt returns or raises")

    async def _answer(self, ask: Ask) -> Event:
        done = None
        async for event in self.engine.ask(ask, trace_id=self.trace_id):
            done = event if event.type == "done" else None
        if done is None:
            raise EngineError(500, "the answer has no end", type="server_error")
        return done

    # --- judging and reporting ---------------------------------------------------------------

    async def _report_turn(self, case: Case) -> None:
        signals = await self.judges.process(case, self._following)
        with boundary(Boundary.POLICY):
            await self.engine.next_state(case.turn_id, self._following, signals)

    async def _judge_last(self) -> None:
        """The verdicts of the last turn hold the outcome; at a limit it was judged before."""
        last = replace(self.cases[-1], next_state=tuple(self._following))
        signals, self.outcome = await self.judges.final(last)
        if signals and not self._following:
            with boundary(Boundary.POLICY):
                await self.engine.next_state(last.turn_id, [], signals)

    async def _finish(self, end: End, failure: str) -> None:
        await self._close()
        await self._report(end, failure)

    async def _close(self) -> None:
        if self._env is None:
            self._lane.close()
            return
        lane = Lane("env-close") if self._lane.is_busy else self._lane
        try:
            await lane.call(self._env.close, deadline_s=CLOSE_DEADLINE_S)
        except Exception as error:  # an environment that does not close takes nothing with it
            log.warning("task %s: close() failed: %r", self.task.id, error)
        finally:
            lane.close()
            self._lane.close()

    async def _report(self, end: End, failure: str) -> None:
        if self._opening is None:
            return
        try:
            # a stop while the trace was being opened must not leave it open
            self.trace_id = await asyncio.wait_for(self._opening, CLOSE_DEADLINE_S)
            await self.engine.end_trace(self.trace_id, end, self.outcome, failure)
        except (EngineError, TimeoutError) as error:
            log.warning("trace %r: its end was not reported: %r", self.trace_id, error)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that a cancellation must not cut short; its own deadlines bound it."""
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    task.result()
