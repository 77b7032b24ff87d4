"""Many episodes: groups of attempts at each task, a bounded number at once.

Owns: the order of attempts, how many run, and what is told when they end.
Does not own: one episode (`episode`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from claw.config import RunConfig
from claw.engine.runner.engine import WireEngine
from claw.engine.runner.episode import Episode, Result
from claw.engine.runner.judges import Judges
from claw.errors import Boundary, BoundaryError, ClawError, boundary
from claw.records import End, Task, Trace, new_id
from claw.sdk.lane import Lane
from claw.sdk.registry import Plugin

log = logging.getLogger(__name__)

TASKS_DEADLINE_S = 600.0
"""the first task, or the next one, of a plugin's tasks"""
MAX_PAUSE_S = 60.0


class Episodes:
    """Plays the tasks of one plugin."""

    def __init__(self, engine: WireEngine, plugin: Plugin, config: RunConfig) -> None:
        self._engine, self._plugin = engine, plugin
        self._settings = plugin.settings(config.plugin.get(plugin.name, {}))
        made = plugin.hook.claw_judges(config=self._settings)
        self._judges = Judges(
            [judge for part in made for judge in part or ()],
            config.judge.kind, config.judge.deadline_s,
        )
        self._n, self._parallel = config.rollout.n, config.rollout.parallel
        self._max_turns = config.rollout.max_turns

    async def forever(self, split: str = "train") -> None:
        """Play the split again and again; while nothing works, ever more slowly."""
        pause_s = 1.0
        while True:
            ends = await self.once(split)
            if not ends:
                raise ClawError(f"plugin {self._plugin.name!r} has no tasks in {split!r}")
            if ends.keys() != {End.FAILED}:
                pause_s = 1.0
                continue
            log.warning("all %d episodes failed; again in %g s", ends.total(), pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def once(
        self, split: str, on_result: Callable[[Result], None] | None = None
    ) -> Counter[End]:
        """Play each task in a group of attempts, and count the ends. Failures stop no sibling."""
        room = asyncio.Semaphore(self._parallel)
        ends: Counter[End] = Counter()
        failure = None
        async with aclosing(self._attempts(split)) as attempts, asyncio.TaskGroup() as running:
            try:
                async for task, group in attempts:
                    await room.acquire()
                    running.create_task(self._attempt(room, ends, task, group, on_result))
            except BoundaryError as error:  # what runs already may still end well
                failure = error
        if failure is not None:
            raise ClawError(
                f"the tasks of plugin {self._plugin.name!r} cannot be read", found=str(failure)
            )
        return ends

    async def _attempts(self, split: str) -> AsyncGenerator[tuple[Task, str], None]:
        lane = Lane("tasks")  # a plugin may read files or the network between two tasks
        try:
            iterator = await self._on(lane, lambda: iter(
                self._plugin.hook.claw_tasks(config=self._settings, split=split) or ()
            ))
            while (task := await self._on(lane, lambda: next(iterator, None))) is not None:
                group = new_id("group")
                for _ in range(self._n):
                    yield task, group
        finally:
            lane.close()

    async def _on(self, lane: Lane, function: Callable[[], Any]) -> Any:
        with boundary(Boundary.ENV):
            return await lane.call(function, deadline_s=TASKS_DEADLINE_S)

    async def _attempt(
        self, room: asyncio.Semaphore, ends: Counter[End], task: Task, group: str,
        on_result: Callable[[Result], None] | None,
    ) -> None:
        self._engine.episodes += 1
        try:
            result = await Episode(
                self._engine, self._plugin, self._settings, task, group, self._judges,
                self._max_turns,
            ).play()
        finally:
            self._engine.episodes -= 1
            room.release()
        ends[result.end] += 1
        self._tell(result, group)
        if on_result is not None:
            on_result(result)

    def _tell(self, result: Result, group: str) -> None:
        log.info("task %s: %s, outcome %s, %d turns %s", result.task_id, result.end,
                 result.outcome, result.num_turns, result.failure)
        trace = Trace(
            result.trace_id, "default", self._plugin.name, result.task_id, group, result.end,
            result.outcome, result.failure,
        )
        try:
            with boundary(Boundary.ENV):
                self._plugin.hook.claw_on_trace(trace=trace)
        except BoundaryError as error:
            log.warning("claw_on_trace: %s", error)  # an onlooker breaks nothing


def plays(plugin: Plugin) -> bool:
    """Whether the plugin has tasks and environments."""
    return plugin.has("claw_tasks") and plugin.has("claw_env")
