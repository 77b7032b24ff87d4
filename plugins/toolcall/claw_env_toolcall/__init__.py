"""Tasks solved with tools: functions, MCP servers, a Python interpreter in a sandbox; the hooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from claw.sdk import Env, Judge, Task, hookimpl

from .settings import ToolcallConfig

if TYPE_CHECKING:
    from pydantic import BaseModel


@hookimpl
def claw_config() -> "type[BaseModel]":
    """Settings at `[plugin.toolcall]`."""
    return ToolcallConfig


@hookimpl
def claw_defaults() -> dict[str, Any]:
    """Return the settings that learn on the default model."""
    from .recipe import RECIPE

    return RECIPE


@hookimpl
def claw_tasks(config: ToolcallConfig, split: str) -> Iterable[Task]:
    """Return the tasks of a split; without an engine for the tool `python` there are none."""
    if "python" in config.tools:
        from .tools.python import check

        check(config)
    if config.tasks == "gym":
        from .tasks import gym as made  # keeps the import of the plugin light
    else:
        from .tasks import rows as made
    return made.tasks(config, split)


@hookimpl
def claw_env(task: Task, config: ToolcallConfig) -> Env:
    """Return an environment with fresh tools."""
    from .env import ToolEnv
    from .sources import sources

    return ToolEnv(task, config, sources(config))  # type: ignore[return-value]


@hookimpl
def claw_gold(task: Task, env: Env, config: ToolcallConfig) -> list[str] | None:
    """Return the right answer in a box; not every generated task has one that can be said."""
    answer = task.answer["answer"]
    return None if answer is None else [f"\\boxed{{{answer}}}"]


@hookimpl
def claw_judges(config: ToolcallConfig) -> list[Judge]:
    """Return the checker that plays the judge."""
    from .judge import ToolJudge

    return [ToolJudge(config)]
