"""Fixtures of the plugin's tests: a small repository, rows about it, and episodes on the engine."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from claw_env_swe import fetch, recipe, tasks
from claw_env_swe.env import SweEnv
from claw_env_swe.instance import Instance
from claw_env_swe.settings import SweConfig
from small_repo import BUGGY, FIXED, GOLD, KEEP, MUST, NEW_TEST, git

from claw.records import FinishReason
from claw.sdk import ClawError, EnvTurn, Message
from claw.sdk.env import assistant


@pytest.fixture(scope="session")
def pins() -> None:
    """What the shipped instances are made of, in the cache; one call of pip where it is not."""
    wanted = []
    for _, row in tasks.shipped():
        wanted.append((row["source"]["sdist"], row["source"]["sha256"]))
    try:
        fetch.fetch([*wanted, *recipe.PYTEST])
    except ClawError as error:
        if os.environ.get("CLAW_REAL") == "require":
            pytest.fail(f"the packages of the instances are required here: {error}")
        pytest.skip(f"the packages of the instances are missing: {error}")


@pytest.fixture(scope="session")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a past, a commit with a defect, and a future that mends it."""
    made = tmp_path_factory.mktemp("repo")
    git(made, "init", "-q", "-b", "main")
    for text, name in (("", "past"), (BUGGY, "base"), (FIXED, "future")):
        (made / "calc.py").write_text(text)
        git(made, "add", "-A")
        git(made, "commit", "-q", "--allow-empty", "-m", name)
        git(made, "tag", name)
    return made


@pytest.fixture
def row(repo: Path) -> dict[str, Any]:
    """claw's own row about the small repository."""
    return {
        "instance_id": "calc__add", "problem_statement": "add() subtracts",
        "source": {"git": str(repo)}, "base_commit": git(repo, "rev-parse", "base"),
        "patch": GOLD, "test_patch": NEW_TEST, "test_framework": "unittest",
        "test_files": ["test_calc"], "FAIL_TO_PASS": list(MUST), "PASS_TO_PASS": list(KEEP),
    }


@pytest.fixture
def instance(needs_docker: None, pins: None, row: dict[str, Any]) -> Instance:
    from claw_env_swe import families

    return families.read(row)


@pytest.fixture
def episode(needs_docker: None, pins: None, tmp_path: Path) -> Iterator[Callable[..., SweEnv]]:
    """Start an episode of a row, or of a shipped instance by its id; closed after the test."""
    with ExitStack() as stack:
        def start(what: dict[str, Any] | str, **settings: Any) -> SweEnv:
            if isinstance(what, dict):
                path = tmp_path / "rows.jsonl"
                path.write_text(json.dumps(what))
                settings["instances"] = str(path)
            else:
                settings["only"] = (what,)
            config = SweConfig(**{"eval_share": 0.0, **settings})
            [task] = tasks.of_split(config, "train")
            env = SweEnv(task, config)
            stack.callback(env.close)
            env.start()
            return env

        yield start


@pytest.fixture
def say() -> Callable[..., list[Message] | None]:
    """Let the policy say something."""
    def act(env: SweEnv, said: str | Message) -> list[Message] | None:
        reply = assistant(said) if isinstance(said, str) else said
        usage = {"prompt_tokens": 1000, "completion_tokens": 100}
        return env.reply(EnvTurn(reply, FinishReason.STOP, len(env.acted), usage))

    return act
