"""A repository with a defect, a patch, and the tests that decide; the hooks, nothing else."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claw.sdk import Env, Judge, Task, hookimpl

from .settings import SweConfig


@hookimpl
def claw_config() -> type[SweConfig]:
    """Settings at `[plugin.swe]`."""
    return SweConfig


@hookimpl
def claw_defaults() -> dict[str, Any]:
    """The reference's settings for general agents; tests may take long to judge."""
    return {
        "rollout": {"n": 8, "parallel": 8, "max_turns": 30},
        "judge": {"kind": "swe", "votes": 1, "deadline_s": 1800.0},
        "credit": {"kind": "outcome"},
        "train": {"lr": 1e-6},
        "loss": {"kl_coef": 0.01},
    }


@hookimpl
def claw_tasks(config: SweConfig, split: str) -> Iterable[Task]:
    """The shipped instances, or the rows that the settings name."""
    from .tasks import of_split

    return of_split(config, split)


@hookimpl
def claw_read_tasks(path: Path, config: SweConfig) -> Iterable[Task] | None:
    """Rows of instances in a JSONL or parquet file."""
    from .tasks import of_path

    return of_path(path, config)


@hookimpl
def claw_env(task: Task, config: SweConfig) -> Env:
    """One attempt at an instance in a sandbox of its own."""
    from .env import SweEnv

    return SweEnv(task, config)


@hookimpl
def claw_gold(task: Task, env: Env, config: SweConfig) -> list[Any] | None:
    """Apply the gold patch as an agent would, and submit."""
    from .oracle import play

    return play(env)


@hookimpl
def claw_judges(config: SweConfig) -> list[Judge]:
    """The instance's tests for the outcome; the commands' exit codes for each turn."""
    from .judge import SweJudge

    return [SweJudge(config)]
