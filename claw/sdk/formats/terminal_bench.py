"""terminal-bench 1 task folders: task.yaml, Dockerfile, run-tests.sh, tests/, solution.sh.

Owns: what each field means and which are not run here.
Does not own: the run order (the terminal plugin), reading the summary (`summary`).
"""

import shlex
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from claw.config import explain
from claw.sdk.formats.folder import FormatError, TaskFolder, read_text, tree

TESTS, LOGS, AGENT_LOGS = "/tests", "/logs", "/agent-logs"
COMPOSE = ("docker-compose.yaml", "docker-compose.yml")


class TaskYaml(BaseModel):
    """The file task.yaml."""

    model_config = ConfigDict(extra="allow", frozen=True)

    instruction: str
    difficulty: Literal["easy", "medium", "hard", "unknown"]
    author_name: str = "unknown"
    author_email: str = "unknown"
    category: str = "software_engineering"
    tags: list[str] = []
    parser_name: str = "pytest"
    max_agent_timeout_sec: float = Field(360.0, gt=0)
    max_test_timeout_sec: float = Field(60.0, gt=0)
    run_tests_in_same_shell: bool = False
    disable_asciinema: bool = False
    estimated_duration_sec: float | None = None
    expert_time_estimate_min: float | None = None
    junior_time_estimate_min: float | None = None


def fits(path: Path) -> bool:
    """Whether `path` is such a folder."""
    return (path / "task.yaml").is_file() and not (path / "task.toml").is_file()


def read(path: Path) -> TaskFolder:
    """Read one folder; FormatError says what is wrong with it."""
    task = _task(path / "task.yaml")
    if not (path / "run-tests.sh").is_file():
        raise FormatError(f"the terminal-bench task {path.name!r} is not complete",
                          found=f"missing in {path}: run-tests.sh")
    tests = tree(path / "tests") if (path / "tests").is_dir() else {}
    services = _services(path)
    solution, command = _solution(path)
    client: dict[str, Any] = next(iter(services.values()), {})
    return TaskFolder(
        format="terminal-bench", path=path, name=path.name, instruction=task.instruction,
        tests={**tests, "run-tests.sh": (path / "run-tests.sh").read_bytes()},
        test_command=("bash", f"{TESTS}/run-tests.sh"), grading="pytest",
        solution=solution, solution_command=command,
        image="" if _builds(path, client) else str(client.get("image") or ""),
        build_folder=path if _builds(path, client) else None,
        workdir=str(client.get("working_dir") or ""),
        env={"TEST_DIR": TESTS, **_environment(client)},
        agent_timeout_s=task.max_agent_timeout_sec, verifier_timeout_s=task.max_test_timeout_sec,
        verifier_env={"T_BENCH_TEST_DIR": TESTS, "T_BENCH_CONTAINER_LOGS_PATH": LOGS,
                      "T_BENCH_CONTAINER_AGENT_LOGS_PATH": AGENT_LOGS},
        metadata=task.model_dump(include={
            "difficulty", "author_name", "author_email", "category", "tags",
            "estimated_duration_sec", "expert_time_estimate_min", "junior_time_estimate_min",
        }),
        unsupported=tuple(_unsupported(path, task, services)),
        notes=tuple(f"unknown key {name}" for name in task.model_extra or {}),
    )


def _task(path: Path) -> TaskYaml:
    values = _yaml(path)
    if not isinstance(values, dict):
        raise FormatError("task.yaml is no mapping", found=f"{path}: {type(values).__name__}")
    try:
        return TaskYaml.model_validate(values)
    except ValidationError as error:
        raise FormatError("task.yaml is not valid",
                          found=f"{path}: {explain(error, TaskYaml)}") from error


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise FormatError("terminal-bench folders need PyYAML", found=str(error),
                          do="pip install pyyaml") from error
    text = read_text(path)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            # aliases of aliases grow without bound when they are written out
            raise FormatError(f"{path.name} uses aliases", found=str(path), do="write them out")
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path.name} is not YAML", found=f"{path}: {error}") from error


def _services(path: Path) -> dict[str, dict[str, Any]]:
    for name in COMPOSE:
        if (path / name).is_file():
            values = _yaml(path / name)
            services = values.get("services") if isinstance(values, dict) else None
            if not isinstance(services, dict) or not services:
                raise FormatError(f"{name} names no services", found=str(path / name))
            return {str(k): v if isinstance(v, dict) else {} for k, v in services.items()}
    return {}


def _builds(path: Path, client: dict[str, Any]) -> bool:
    return (path / "Dockerfile").is_file() and ("build" in client or not client.get("image"))


def _environment(client: dict[str, Any]) -> dict[str, str]:
    """Return what compose sets besides the harness's own variables."""
    given = client.get("environment") or {}
    if isinstance(given, list):
        given = dict(str(item).partition("=")[::2] for item in given)
    if not isinstance(given, dict):
        return {}
    return {str(k): str(v) for k, v in given.items() if "${T_BENCH" not in str(v)}


HONOURED = {"build", "image", "container_name", "command", "environment", "working_dir",
            "volumes", "tty", "stdin_open", "init"}
"""keys of the one service that are met, or have no effect on what a task needs"""


def _unsupported(
    path: Path, task: TaskYaml, services: dict[str, dict[str, Any]]
) -> list[str]:
    client: dict[str, Any] = next(iter(services.values()), {})
    found = []
    if len(services) > 1:
        found.append("docker-compose services besides the first: " + ", ".join([*services][1:]))
    found += [f"docker-compose key {key}" for key in client if key not in HONOURED]
    foreign = [str(v) for v in client.get("volumes") or () if "${T_BENCH" not in str(v)]
    found += [f"docker-compose volume {volume}" for volume in foreign]
    build = client.get("build")
    if isinstance(build, dict):
        found += [f"docker-compose build.{key}" for key in build
                  if key not in ("context", "dockerfile")]
        if str(build.get("dockerfile", "Dockerfile")) not in ("Dockerfile", "./Dockerfile"):
            found.append(f"docker-compose build.dockerfile = {build['dockerfile']}")
    if isinstance(build, dict | str):
        context = str(build.get("context", ".") if isinstance(build, dict) else build)
        if context not in (".", "./"):
            found.append(f"docker-compose build context {context}")
    if not (path / "Dockerfile").is_file() and not client.get("image"):
        found.append("a task without a Dockerfile or an image")
    if task.parser_name != "pytest":
        found.append(f"parser_name = {task.parser_name}")
    if task.run_tests_in_same_shell:
        found.append("run_tests_in_same_shell")
    return found


def _solution(path: Path) -> tuple[dict[str, bytes], tuple[str, ...]]:
    if (path / "solution.sh").is_file():
        return {"solution.sh": (path / "solution.sh").read_bytes()}, (
            "bash", "/solution/solution.sh")
    if not (path / "solution.yaml").is_file():
        return {}, ()
    steps = _yaml(path / "solution.yaml")
    if not isinstance(steps, list):
        raise FormatError("solution.yaml is no list", found=str(path / "solution.yaml"))
    lines = [str(s.get("command", "")) if isinstance(s, dict) else str(s) for s in steps]
    script = "\n".join(["#!/bin/bash", *lines, ""])
    # YAML can say half a surrogate pair, which is then what the script says
    made = {"solution.sh": script.encode("utf-8", "surrogatepass")}
    return made, ("bash", "/solution/solution.sh")


def shown(folder: TaskFolder) -> str:
    """Return the test command as a person would type it."""
    return shlex.join(folder.test_command)
