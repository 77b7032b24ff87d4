"""The plugin under test, and what was found out about it so far.

Owns: loading it once, its settings and tasks, the list of criteria.
Does not own: any check (the groups).
"""

import itertools
from collections.abc import Awaitable
from typing import Any

from claw.records import Task
from claw.sdk import registry
from claw.sdk.registry import Plugin
from claw.sdk.testing.criteria import Criterion, short, told

MAX_LISTED = 1000
"""tasks of a split that are looked at; the rest may be endless"""


class Subject:
    """What the groups are given. `hold(...)` writes a criterion down."""

    def __init__(
        self, plugin: str | Plugin, values: dict[str, Any] | None = None, max_tasks: int = 3
    ) -> None:
        self._given, self.values, self.max_tasks = plugin, values or {}, max_tasks
        self.name = plugin if isinstance(plugin, str) else plugin.name
        self.criteria: list[Criterion] = []
        self._plugin = None if isinstance(plugin, str) else plugin
        self._tasks: list[Task] | None = None
        self._settings: list[Any] = []

    @property
    def is_installed(self) -> bool:
        """Whether it was named by its entry point (an object at hand has none)."""
        return isinstance(self._given, str)

    @property
    def plugin(self) -> Plugin:
        if self._plugin is None:
            self._plugin = registry.load(self.name)
        return self._plugin

    @property
    def settings(self) -> Any:
        """The plugin's own settings, made once."""
        if not self._settings:
            self._settings.append(self.plugin.settings(self.values))
        return self._settings[0]

    @property
    def has_tasks(self) -> bool:
        return self.plugin.has("claw_tasks") and self.plugin.has("claw_env")

    def tasks(self) -> list[Task]:
        """The tasks that are played: the first ones of `train`, or of `eval` where it has none."""
        if self._tasks is None:
            self._tasks = self.listed("train") or self.listed("eval")
        return self._tasks[: self.max_tasks]

    def listed(self, split: str) -> list[Task]:
        """The tasks of a split, up to MAX_LISTED."""
        made = self.plugin.hook.claw_tasks(config=self.settings, split=split)
        return list(itertools.islice(made or (), MAX_LISTED))

    def hold(
        self, id: str, description: str, passed: bool | None, *, required: bool = True,
        task: str = "", expected: Any = "", actual: Any = "", do: str = "",
    ) -> bool:
        """Write a criterion down; return whether it holds."""
        self.criteria.append(Criterion(
            id, description, None if passed is None else bool(passed), required, task,
            short(expected), short(actual), do,
        ))
        return bool(passed)

    async def attempt(
        self, id: str, description: str, work: Awaitable[Any], task: str = "",
    ) -> Any:
        """Run plugin code; what it raises breaks the criterion, and None is returned."""
        try:
            return await work
        except Exception as error:
            self.hold(id, description, False, task=task, expected="no exception",
                      actual=told(error))
            return None
