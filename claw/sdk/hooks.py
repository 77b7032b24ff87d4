"""The hooks a plugin may implement. Prefix `claw_`, keyword arguments, records only.

    from claw.sdk import hookimpl

    @hookimpl
    def claw_tasks(config, split): ...

A plugin with `claw_tasks` and `claw_env` is complete; one with `claw_app` serves people instead.
`claw_gold` makes its tasks provable: `claw env check` plays the gold solution, which must get an
outcome of 1, and a policy that says nothing, which must get 0 or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pluggy

from claw.records import Message, Task, Trace
from claw.sdk.app import Engine
from claw.sdk.env import Env
from claw.sdk.judging import Judge

if TYPE_CHECKING:  # named in annotations only: `import claw.sdk` stays quick
    from pathlib import Path

    from pydantic import BaseModel

Said = Message | str
"""what a policy says: an assistant message, or the text of one"""
Gold = Iterable[Said] | Callable[[list[Message]], Said | None]
"""replies in order, or a policy: messages so far -> the next reply, None to stop there"""

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


@hookspec(firstresult=True)
def claw_gold(task: Task, env: Env, config: BaseModel | None) -> Gold | None:
    """Return how the gold solution plays `task`; None when it has none.

    Called once after `env.start()`, on the environment's own thread, by `claw env check` and the
    test kit only: never in training. Where the solution is said, return what the policy would say:

        return [task.answer]                                       # one reply
        return [assistant(calls=[("run", {"code": "..."})]), "42"]  # claw.sdk.assistant
        return lambda messages: solve(messages[-1]["content"])     # depends on what is seen

    Where the solution is done, act on `env` yourself (run `solution/solve.sh` in its sandbox, apply
    the gold patch) and return what the policy says to finish, such as `["done"]`, or `[]` when
    nothing need be said. Raise when the solution itself fails: it is told as such. When the replies
    are used up before the environment ends the episode, it is judged there, as at a turn limit.
    """


@hookspec(firstresult=True)
def claw_read_tasks(path: Path, config: BaseModel | None) -> Iterable[Task] | None:
    """Return the tasks in a file or folder, in a format this plugin knows; None for any other.

    They are played by the plugin's own `claw_env`. Raise a ClawError that names what is unsupported
    before anything starts.
    """


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
    claw_config, claw_defaults, claw_tasks, claw_env, claw_gold, claw_read_tasks, claw_judges,
    claw_app, claw_on_trace, claw_credit, claw_loss,
)
