"""Fixtures of the plugin's tests: a desktop, tasks, and episodes."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from claw_env_gui.desktop import Desktop
from claw_env_gui.env import GuiEnv
from claw_env_gui.settings import GuiConfig
from claw_env_gui.tasks import of_path


@pytest.fixture(scope="module")
def desktop(needs_desktop: None) -> Iterator[Desktop]:
    """One desktop for the tests of a module: each starts its own application."""
    made = Desktop()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def task_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a task in OSWorld's JSON."""
    def make(*, name: str = "task", func: Any = "exact_match", result: Any = None,
             expected: Any = None, **more: Any) -> Path:
        evaluator = {"func": func, "result": result, "expected": expected}
        evaluator |= more.pop("evaluator", {})
        raw = {"id": name, "snapshot": "os", "instruction": "Do it.", "source": "", "config": [],
               "trajectory": "t/", "related_apps": ["os"], "evaluator": evaluator, "proxy": False,
               **more}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(raw))
        return path

    return make


@pytest.fixture
def episode(needs_desktop: None) -> Iterator[Callable[..., GuiEnv]]:
    """Start an episode of a task; it is closed after the test."""
    with ExitStack() as stack:
        def start(path: Path, **settings: Any) -> GuiEnv:
            config = GuiConfig(**settings)
            [task] = of_path(path, config) or []
            env = GuiEnv(task, config)
            stack.callback(env.close)
            env.start()
            return env

        yield start
