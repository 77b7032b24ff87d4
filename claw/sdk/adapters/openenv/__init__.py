"""A running OpenEnv server as an environment: WebSocket sessions, or HTTP where there are none."""

from collections.abc import Iterable
from typing import Any

from claw.records import Task
from claw.sdk.adapters.checker import Checker, defaults
from claw.sdk.adapters.openenv.settings import OpenenvConfig
from claw.sdk.hooks import hookimpl
from claw.sdk.judging import Judge


@hookimpl
def claw_config() -> type[OpenenvConfig]:
    """Settings at `[plugin.openenv]`."""
    return OpenenvConfig


@hookimpl
def claw_defaults() -> dict[str, Any]:
    """The outcome is the sum of the server's rewards; nothing else judges."""
    return defaults()


@hookimpl
def claw_tasks(config: OpenenvConfig, split: str) -> Iterable[Task]:
    """Return one task per seed; a server that cannot be played is refused here."""
    from claw.sdk.adapters.openenv.server import tasks  # keeps the import of the plugin light

    return tasks(config, split)


@hookimpl
def claw_env(task: Task, config: OpenenvConfig) -> Any:
    """Return one episode on the server: an `Env` with async methods."""
    from claw.sdk.adapters.openenv.env import OpenenvEnv

    return OpenenvEnv(config, task)


@hookimpl
def claw_judges(config: OpenenvConfig) -> list[Judge]:
    """The server's rewards, as a checker."""
    return [Checker("openenv")]
