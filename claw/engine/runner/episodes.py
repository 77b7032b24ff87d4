"""Many episodes: groups of attempts at each task, a bounded number at once.

Owns: the order of attempts, how many run, what is played again, what is told when they end.
Does not own: one episode (`episode`), how fast they begin (`pace`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from claw.config import RunConfig
from claw.engine.runner.engine import WireEngine
from claw.engine.runner.episode import Episode
from claw.engine.runner.judges import Judges
from claw.engine.runner.pace import Pace
from claw.engine.runner.result import Limits, Policy, Result
from claw.errors import Boundary, BoundaryError, ClawError, boundary
from claw.records import End, Task, Trace, new_id
from claw.sdk.lane import Lane
from claw.sdk.registry import Plugin

log = logging.getLogger(__name__)

TASKS_DEADLINE_S = 600.0
"""the first task, or the next one, of a plugin's tasks"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One of the n attempts at a task."""

    task: Task
    group: str
    number: int
    """0 to n - 1"""


OnEnd = Callable[[Attempt, Episode, Result], None]


class Episodes:
    """Plays the tasks of one plugin."""

    def __init__(self, policy: Policy, plugin: Plugin, config: RunConfig, *,
                 kind: str = "main") -> None:
        self._policy, self._plugin, self._kind = policy, plugin, kind
        self._settings = plugin.settings(config.plugin.get(plugin.name, {}))
        made = plugin.hook.claw_judges(config=self._settings)
        self._judges = Judges(
            [judge for part in made for judge in part or ()],
            config.judge.kind, config.judge.deadline_s, config.rollout.retries,
        )
        self._config, self._limits = config, Limits.of(config.rollout)
        self.num_running = 0

    async def forever(self, engine: WireEngine, split: str = "train") -> None:
        """Play the split again and again; no pass waits for the last episode of the one before."""
        pace = Pace(engine, self._config)

        def ended(attempt: Attempt, episode: Episode, result: Result) -> None:
            pace.note(result)

        await self._play(self._endlessly(split), ended, pace)

    async def once(
        self, split: str, on_end: OnEnd | None = None, *,
        is_wanted: Callable[[Attempt], bool] = lambda attempt: True,
    ) -> Counter[End]:
        """Play each task in a group of attempts, and count the ends. Failures stop no sibling."""
        ends: Counter[End] = Counter()

        def ended(attempt: Attempt, episode: Episode, result: Result) -> None:
            ends[result.end] += 1
            if on_end is not None:
                on_end(attempt, episode, result)

        await self._play(self._attempts(split), ended, is_wanted=is_wanted)
        return ends

    async def _play(
        self, stream: AsyncGenerator[Attempt, None], ended: OnEnd, pace: Pace | None = None,
        is_wanted: Callable[[Attempt], bool] = lambda attempt: True,
    ) -> None:
        room = asyncio.Semaphore(self._config.rollout.parallel)
        failure: Exception | None = None
        async with aclosing(stream) as attempts, asyncio.TaskGroup() as running:
            try:
                async for attempt in attempts:
                    if not is_wanted(attempt):
                        continue
                    await room.acquire()
                    if pace is not None and attempt.number == 0:
                        await pace.wait()
                    running.create_task(self._attempt(room, attempt, ended))
            except (BoundaryError, ClawError) as error:  # what runs already may still end well
                failure = error
        if isinstance(failure, BoundaryError):
            raise ClawError(
                f"the tasks of plugin {self._plugin.name!r} cannot be read", found=str(failure)
            )
        if failure is not None:
            raise failure

    # --- which attempts ----------------------------------------------------------------------

    async def _endlessly(self, split: str) -> AsyncGenerator[Attempt, None]:
        while True:
            is_empty = True
            async with aclosing(self._attempts(split)) as attempts:
                async for attempt in attempts:
                    is_empty = False
                    yield attempt
            if is_empty:
                raise ClawError(f"plugin {self._plugin.name!r} has no tasks in {split!r}")

    async def _attempts(self, split: str) -> AsyncGenerator[Attempt, None]:
        lane = Lane("tasks")  # a plugin may read files or the network between two tasks
        try:
            iterator = await self._on(lane, lambda: iter(
                self._plugin.hook.claw_tasks(config=self._settings, split=split) or ()
            ))
            while (task := await self._on(lane, lambda: next(iterator, None))) is not None:
                group = new_id("group")
                for number in range(self._config.rollout.n):
                    yield Attempt(task, group, number)
        finally:
            lane.close()

    async def _on(self, lane: Lane, function: Callable[[], Any]) -> Any:
        with boundary(Boundary.ENV):
            return await lane.call(function, deadline_s=TASKS_DEADLINE_S)

    # --- one attempt -------------------------------------------------------------------------

    async def _attempt(self, room: asyncio.Semaphore, attempt: Attempt, ended: OnEnd) -> None:
        self.num_running += 1
        try:
            episode, result = await self._until_it_counts(attempt)
        finally:
            self.num_running -= 1
            room.release()
        ended(attempt, episode, result)

    async def _until_it_counts(self, attempt: Attempt) -> tuple[Episode, Result]:
        """Play the attempt, and anew after a failure of the infrastructure, a few times."""
        left = self._config.rollout.retries
        while True:
            episode = Episode(
                self._policy, self._plugin, self._settings, attempt.task, attempt.group,
                self._judges, self._limits, self._kind, may_again=left > 0,
            )
            result = await episode.play()
            self._tell(result, attempt.group)
            if not result.is_again:
                return episode, result
            left -= 1

    def _tell(self, result: Result, group: str) -> None:
        log.info("task %s: %s, outcome %s, %d turns %s%s", result.task_id, result.end,
                 result.outcome, result.num_turns, result.failure,
                 "; played again" if result.is_again else "")
        trace = Trace(
            result.trace_id, "default", self._plugin.name, result.task_id, group, result.end,
            result.outcome, result.judge, result.failure,
        )
        try:
            with boundary(Boundary.ENV):
                self._plugin.hook.claw_on_trace(trace=trace)
        except BoundaryError as error:
            log.warning("claw_on_trace: %s", error)  # an onlooker breaks nothing


def plays(plugin: Plugin) -> bool:
    """Whether the plugin has tasks and environments."""
    return plugin.has("claw_tasks") and plugin.has("claw_env")
