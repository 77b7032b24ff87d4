"""A shell in a container, graded by the task's own tests; the hooks of the plugin, nothing else."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claw.sdk import Env, Judge, Task, hookimpl

from .settings import TerminalConfig


@hookimpl
def claw_config() -> type[TerminalConfig]:
    """Settings at `[plugin.terminal]`."""
    return TerminalConfig


@hookimpl
def claw_defaults() -> dict[str, Any]:
    """The reference's settings for terminal agents; tests may take long to judge."""
    return {
        "rollout": {"n": 8, "parallel": 16, "max_turns": 10},
        "judge": {"kind": "commands", "votes": 1, "deadline_s": 900.0},
        "credit": {"kind": "outcome"},
        "train": {"lr": 1e-6},
        "loss": {"kl_coef": 0.01},
    }


@hookimpl
def claw_tasks(config: TerminalConfig, split: str) -> Iterable[Task]:
    """Generated tasks, the shipped ones, or those of a folder."""
    from .tasks import of_split

    return of_split(config, split)


@hookimpl
def claw_read_tasks(path: Path, config: TerminalConfig) -> Iterable[Task] | None:
    """Harbor and terminal-bench task folders."""
    from .tasks import of_path

    return of_path(path, config)


@hookimpl
def claw_env(task: Task, config: TerminalConfig) -> Env:
    """One attempt at a task in a sandbox of its own."""
    from .env import TerminalEnv

    return TerminalEnv(task, config)


@hookimpl
def claw_gold(task: Task, env: Env, config: TerminalConfig) -> list[str] | None:
    """Run the task's own solution in the sandbox."""
    from .oracle import play

    return play(env)


@hookimpl
def claw_judges(config: TerminalConfig) -> list[Judge]:
    """The task's tests for the outcome; the commands' exit codes for each turn."""
    from .judge import CommandsJudge

    return [CommandsJudge(config)]
