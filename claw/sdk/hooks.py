"""The hooks a plugin may implement. Prefix `claw_`, keyword arguments, records only.

    from claw.sdk import hookimpl

    @hookimpl
    def claw_tasks(config, split): ...

A plugin with `claw_tasks` and `claw_env` is complete; one with `claw_app` serves people instead.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pluggy
from pydantic import BaseModel

from claw.records import Task, Trace
from claw.sdk.app import Engine
from claw.sdk.env import Env
from claw.sdk.judging import Judge

hookspec = pluggy.HookspecMarker("claw")
hookimpl = pluggy.HookimplMarker("claw")


@hookspec(firstresult=True)
def claw_config() -> type[BaseModel] | None:
    """Return the model of the plugin's own settings, mounted at `[plugin.<name>]`."""


@hookspec(firstresult=True)
def claw_defaults() -> dict[str, Any] | None:
    """Return recommended run settings, below the person's file and overrides."""


@hookspec(firstresult=True)
def claw_tasks(config: BaseModel | None, split: str) -> Iterable[Task] | None:
    """Return the tasks of a split (`train` or `eval`)."""


@hookspec(firstresult=True)
def claw_env(task: Task, config: BaseModel | None) -> Env | None:
    """Return a new environment for one attempt at `task`."""


@hookspec
def claw_judges(config: BaseModel | None) -> list[Judge]:
    """Return judges, which `judge.kind` can name."""
    return []  # never run: pluggy calls the plugins only


@hookspec(firstresult=True)
def claw_app(engine: Engine, config: BaseModel | None, serve: dict[str, Any]) -> Any:
    """Return an ASGI application; `serve` holds the run's serve settings and the key."""


@hookspec
def claw_on_trace(trace: Trace) -> None:
    """See a trace that ended. Read only."""


@hookspec
def claw_credit(register: Callable[[str, Callable[..., Any]], None]) -> None:
    """Add credit functions to the table that `credit.kind` names."""


@hookspec
def claw_loss(register: Callable[[str, Callable[..., Any]], None]) -> None:
    """Add loss functions to the table that `train.method` names (runs in the trainer)."""


HOOKS = (
    claw_config, claw_defaults, claw_tasks, claw_env, claw_judges, claw_app, claw_on_trace,
    claw_credit, claw_loss,
)
