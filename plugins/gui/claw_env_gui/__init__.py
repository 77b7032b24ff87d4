"""A desktop in a container, judged by what is left on it; the hooks of the plugin, nothing else."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claw.sdk import Env, Judge, Task, hookimpl

from .settings import GuiConfig


@hookimpl
def claw_config() -> type[GuiConfig]:
    """Settings at `[plugin.gui]`."""
    return GuiConfig


@hookimpl
def claw_defaults() -> dict[str, Any]:
    """General agents' settings; a desktop wants processors of its own."""
    return {
        "rollout": {"n": 4, "parallel": 8, "max_turns": 15},
        "judge": {"kind": "screen", "votes": 1, "deadline_s": 300.0},
        "credit": {"kind": "outcome"},
        "train": {"lr": 1e-6},
        "loss": {"kl_coef": 0.01},
    }


@hookimpl
def claw_tasks(config: GuiConfig, split: str) -> Iterable[Task]:
    """The shipped tasks, or those of a folder."""
    from .tasks import of_split

    return of_split(config, split)


@hookimpl
def claw_read_tasks(path: Path, config: GuiConfig) -> Iterable[Task] | None:
    """OSWorld's JSON: a file, an index, or a folder."""
    from .tasks import of_path

    return of_path(path, config)


@hookimpl
def claw_env(task: Task, config: GuiConfig) -> Env:
    """One attempt at a task on a desktop of its own."""
    from .env import GuiEnv

    return GuiEnv(task, config)


@hookimpl
def claw_gold(task: Task, env: Env, config: GuiConfig) -> Any:
    """Follow the script beside the task, through the policy's own actions."""
    from .oracle import play

    return play(env)


@hookimpl
def claw_judges(config: GuiConfig) -> list[Judge]:
    """The task's checks for the outcome; what each turn did to the screen, seen or computed."""
    from .judge import PicturesJudge, ScreenJudge

    judges: list[Judge] = [ScreenJudge(config)]
    return [*judges, PicturesJudge(config)] if config.judge_base_url else judges
