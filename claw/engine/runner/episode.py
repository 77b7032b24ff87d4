"""One episode: start, ask, reply, ask, ... judge, end. What fails becomes data.

Owns: one attempt at one task, from opening its trace to closing its environment.
Does not own: which tasks are played and how many at once (`episodes`), what is played again
(`result`).
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from claw.engine.runner import asking
from claw.engine.runner.judges import Judges
from claw.engine.runner.result import Limits, Policy, Result, is_infrastructure
from claw.errors import Boundary, BoundaryError, boundary
from claw.records import End, FinishReason, Message, Signal, Task
from claw.sdk import Ask, Case, EngineError, EnvTurn, Event
from claw.sdk.clip import clip_message
from claw.sdk.lane import Lane
from claw.sdk.registry import Plugin

log = logging.getLogger(__name__)

ENV_DEADLINE_S = 1800.0
"""one call of an environment; its own tests may be slow"""
CLOSE_DEADLINE_S = 60.0
GRACE_S = 10.0
"""an environment's call may take so long past the episode's deadline"""


@dataclass
class Episode:
    """One attempt at `task`. Use once: `await Episode(...).play()`."""

    policy: Policy
    plugin: Plugin
    settings: Any
    task: Task
    group: str
    judges: Judges
    limits: Limits
    kind: str = "main"
    may_again: bool = False
    """whether a failure of the infrastructure is reported as one that is played again"""
    env_deadline_s: float = ENV_DEADLINE_S
    trace_id: str = ""
    messages: list[Message] = field(default_factory=list)
    """the whole conversation"""
    turns: list[Event] = field(default_factory=list)
    """the end of each answer"""
    signals: list[Signal] = field(default_factory=list)
    outcome: float | None = None
    judge: str = ""
    num_tokens: int = 0
    _cases: list[Case] = field(default_factory=list)
    _env: Any = None
    _has_started: bool = False
    _opening: "asyncio.Task[str] | None" = None
    _following: list[Message] = field(default_factory=list)
    """what the environment said to the last turn, if it said anything"""

    async def play(self) -> Result:
        """Play to the end; raises only when it is cancelled."""
        self._lane = Lane(f"env-{self.task.id}")
        began = _now()
        self._until = began + self.limits.seconds
        result = self._result(End.CANCELLED, "the runner stopped")
        try:
            result = await self._outcome_or_failure()
        finally:
            await _to_its_end(self._finish(result))
        return replace(result, trace_id=self.trace_id, seconds=_now() - began)

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the environment offers; none before there is one."""
        return list(getattr(self._env, "tools", None) or ())

    def _result(self, end: End, failure: str = "", **more: Any) -> Result:
        return Result(
            self.task.id, self.trace_id, end, self.outcome, self.judge, failure,
            num_turns=len(self.turns), num_tokens=self.num_tokens, **more,
        )

    async def _outcome_or_failure(self) -> Result:
        try:
            with boundary(Boundary.POLICY):
                self._opening = asyncio.create_task(
                    self.policy.open_trace(self.task, self.group)
                )
                self.trace_id = await asyncio.shield(self._opening)
            end = await self._play_turns()
            if self._cases:
                await self._judge_last()
            return self._result(end)
        except BoundaryError as error:
            log.warning("task %s: %s", self.task.id, error)
            is_again = self.may_again and is_infrastructure(error, has_started=self._has_started)
            return self._result(End.FAILED, str(error), where=error.where, is_again=is_again)

    async def _play_turns(self) -> End:
        with boundary(Boundary.ENV):
            self._env = await self._call(self._make)
        if hasattr(self._env, "takes_pictures"):
            with boundary(Boundary.POLICY):
                self._env.takes_pictures = await self.policy.takes_pictures()
        with boundary(Boundary.ENV):
            self.messages = list(await self._call(self._env.start))
        self._has_started = True
        for index in range(self.limits.turns):
            if self.limits.tokens and self.num_tokens >= self.limits.tokens:
                return End.TOKENS
            with boundary(Boundary.POLICY):
                done = await self._ask()
            if isinstance(done, End):
                return done
            if not await self._take(done, index):
                return End.DONE
        return End.TURN_LIMIT

    async def _take(self, done: Event, index: int) -> bool:
        """Give the reply to the environment; return whether the episode goes on."""
        reply = done.message or {"role": "assistant", "content": ""}
        self.turns.append(done)
        self.num_tokens += done.usage.get("completion_tokens", 0)
        case = Case(
            done.turn_id, tuple(self.messages), reply, (), self.task,
            metadata={"env": self._env, "index": index},
        )
        self._cases.append(case)
        self.messages = [*self.messages, reply]
        self._following = []
        if (following := await self._reply(done, reply, index)) is None:
            return False
        self._following = following
        self.messages = [*self.messages, *following]
        await self._report_turn(case)
        return True

    # --- the environment ---------------------------------------------------------------------

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
        if following is None:
            return None
        return [clip_message(message, self.limits.observation) for message in following]

    async def _call(self, function: Any, *args: Any) -> Any:
        """An environment that holds up its episode to the deadline has failed."""
        seconds = min(self.env_deadline_s, max(self._until - _now(), GRACE_S))
        try:
            return await self._lane.call(function, *args, deadline_s=seconds)
        except TimeoutError as error:
            if str(error):
                raise  # the environment's own
            name = getattr(function, "__name__", "the environment").strip("_")
            raise TimeoutError(f"{name}() did not come back within {seconds:.3g} s") from None

    # --- the policy --------------------------------------------------------------------------

    async def _ask(self) -> Event | End:
        """Return the end of the answer, or the end of the episode."""
        sampling = {}
        if self.limits.tokens:
            left = self.limits.tokens - self.num_tokens
            sampling["max_tokens"] = min(left, self.limits.reply_tokens)
        ask = Ask(await self._shown(), self.tools, sampling, kind=self.kind)
        limit = asyncio.timeout_at(self._until)
        try:
            async with limit:
                return await asking.answer(self.policy, ask, self.trace_id)
        except TimeoutError:
            if limit.expired():
                return End.DEADLINE
            raise
        except EngineError as error:
            if error.code == "context_length_exceeded":
                return End.CONTEXT
            raise

    async def _shown(self) -> list[Message]:
        """The conversation as the environment lets the policy see it."""
        if not hasattr(self._env, "shown"):
            return self.messages
        with boundary(Boundary.ENV):
            return list(await self._call(self._env.shown, list(self.messages)))

    # --- judging and reporting ---------------------------------------------------------------

    async def _report_turn(self, case: Case) -> None:
        signals = await self.judges.process(case, self._following)
        self.signals += signals
        with boundary(Boundary.POLICY):
            await self.policy.next_state(case.turn_id, self._following, signals)

    async def _judge_last(self) -> None:
        """The verdicts of the last turn hold the outcome; at a limit it was judged before."""
        last = replace(self._cases[-1], next_state=tuple(self._following))
        final = await self.judges.final(last, was_judged=bool(self._following))
        self.outcome, self.judge = final.outcome, final.judge
        self.signals += final.signals
        if final.signals:
            with boundary(Boundary.POLICY):
                await self.policy.next_state(last.turn_id, [], final.signals)

    async def _finish(self, result: Result) -> None:
        await self._close()
        await self._report(result)

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

    async def _report(self, result: Result) -> None:
        if self._opening is None:
            return
        try:
            # a stop while the trace was being opened must not leave it open
            self.trace_id = await asyncio.wait_for(self._opening, CLOSE_DEADLINE_S)
            await self.policy.end_trace(replace(result, trace_id=self.trace_id))
        except (EngineError, TimeoutError) as error:
            log.warning("trace %r: its end was not reported: %r", self.trace_id, error)


def _now() -> float:
    return asyncio.get_running_loop().time()


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
