"""Harbor task folders: task.toml, instruction.md, environment/, tests/, solution/.

Owns: what each field means and which are not run here. Schema 1.4 and the older spellings.
Does not own: the run order (the terminal plugin), reward files (`reward`).
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from claw.config import explain
from claw.sdk.formats.folder import (
    Collect,
    FormatError,
    Healthcheck,
    TaskFolder,
    read_text,
    tree,
)

IGNORE = ".harborignore"
Network = Literal["public", "no-network", "allowlist"]
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*$", re.IGNORECASE)
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class Part(BaseModel):
    """Unknown keys are kept, so that they can be named."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Check(Part):
    command: str
    interval_sec: float = Field(5.0, ge=0)
    timeout_sec: float = Field(30.0, gt=0)
    start_period_sec: float = Field(0.0, ge=0)
    start_interval_sec: float = Field(5.0, ge=0)
    retries: int = Field(3, ge=0)


class McpServer(Part):
    name: str
    transport: Literal["stdio", "sse", "streamable-http", "http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}


class Environment(Part):
    build_timeout_sec: float = Field(600.0, gt=0)
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: float | None = Field(None, gt=0)
    memory_mb: int | None = Field(None, gt=0)
    storage_mb: int | None = Field(None, gt=0)
    gpus: int | None = Field(None, ge=0)
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    skills_dir: str | None = None
    healthcheck: Check | None = None
    mcp_servers: list[McpServer] = []
    memory: str | None = None
    storage: str | None = None
    allow_internet: bool | None = None

    @field_validator("memory", "storage")
    @classmethod
    def _is_size(cls, value: str | None) -> str | None:
        if value is not None and not _SIZE.match(value):
            raise ValueError("not a size such as 2G or 512M")
        return value


class Agent(Part):
    timeout_sec: float | None = Field(None, gt=0)
    user: str | int | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] | None = None


class CollectHook(Part):
    command: str
    service: str = "main"
    timeout_sec: float = Field(60.0, gt=0)
    user: str | int | None = None


class Verifier(Part):
    timeout_sec: float = Field(600.0, gt=0)
    env: dict[str, str] = {}
    user: str | int | None = None
    network_mode: Network | None = None
    allowed_hosts: list[str] | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: list[CollectHook] = []


class About(Part):
    name: str
    version: str | None = None
    description: str = ""
    authors: list[dict[str, Any]] = []
    keywords: list[str] = []


class Solution(Part):
    env: dict[str, str] = {}


class Step(Part):
    name: str
    min_reward: float | dict[str, float] | None = None
    artifacts: list[Any] = []
    agent: dict[str, Any] = {}
    verifier: dict[str, Any] = {}
    healthcheck: dict[str, Any] | None = None


class Artifact(Part):
    source: str
    destination: str | None = None
    exclude: list[str] = []
    service: str | None = None


class TaskToml(Part):
    """The file task.toml."""

    schema_version: str = Field("1.4", validation_alias=AliasChoices("schema_version", "version"))
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: list[str | Artifact] = []
    task: About | None = None
    metadata: dict[str, Any] = {}
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: Solution = Solution()
    steps: list[Step] = []


def fits(path: Path) -> bool:
    """Whether `path` is such a folder."""
    return (path / "task.toml").is_file()


def read(path: Path) -> TaskFolder:
    """Read one folder; FormatError says what is wrong with it."""
    toml = read_toml(path / "task.toml")
    missing = missing_parts(path, toml)
    if missing:
        raise FormatError(f"the Harbor task {path.name!r} is not complete",
                          found=f"missing in {path}: {', '.join(missing)}")
    tests = tree(path / "tests", _ignored(path)) if (path / "tests").is_dir() else {}
    solution = tree(path / "solution") if (path / "solution").is_dir() else {}
    env, check = toml.environment, toml.environment.healthcheck
    instruction = path / "instruction.md"
    return TaskFolder(
        format="harbor", path=path, name=toml.task.name if toml.task else path.name,
        instruction=without_canary(read_text(instruction)) if instruction.is_file() else "",
        tests=tests, solution=solution,
        solution_command=("bash", "/solution/solve.sh") if "solve.sh" in solution else (),
        solution_env=toml.solution.env, image=env.docker_image or "",
        build_folder=None if env.docker_image else path / "environment",
        build_timeout_s=env.build_timeout_sec, workdir=env.workdir or "", env=env.env,
        cpus=env.cpus, memory_mb=env.memory_mb or megabytes(env.memory),
        storage_mb=env.storage_mb or megabytes(env.storage),
        network="none" if network_of(env) == "no-network" else "public",
        agent_user=_user(toml.agent.user), agent_timeout_s=toml.agent.timeout_sec,
        verifier_user=_user(toml.verifier.user), verifier_timeout_s=toml.verifier.timeout_sec,
        verifier_env=toml.verifier.env,
        healthcheck=None if check is None else Healthcheck(
            check.command, check.interval_sec, check.timeout_sec, check.start_period_sec,
            check.start_interval_sec, check.retries,
        ),
        collect=tuple(
            Collect(c.command, c.timeout_sec, _user(c.user)) for c in toml.verifier.collect
        ),
        metadata=toml.metadata, unsupported=tuple(unsupported(path, toml)),
        notes=tuple(notes(toml)),
    )


def read_toml(path: Path) -> TaskToml:
    """Return task.toml with every field checked."""
    try:
        return TaskToml.model_validate(tomllib.loads(read_text(path)))
    except ValidationError as error:
        raise FormatError("task.toml is not valid",
                          found=f"{path}: {explain(error, TaskToml)}") from error
    except ValueError as error:  # of numbers that are too long, too
        raise FormatError("task.toml is not TOML", found=f"{path}: {error}") from error
    except RecursionError as error:
        raise FormatError("task.toml is nested too deeply", found=str(path)) from error


def missing_parts(path: Path, toml: TaskToml) -> list[str]:
    """Return the files that a task of one step needs and lacks."""
    if toml.steps:
        return []
    found = []
    if not (path / "instruction.md").is_file():
        found.append("instruction.md")
    if not any((path / "tests" / n).is_file() for n in ("test.sh", "test.bat")):
        found.append("tests/test.sh")
    if not toml.environment.docker_image and not (path / "environment").is_dir():
        found.append("environment/, or environment.docker_image")
    return found


def unsupported(path: Path, toml: TaskToml) -> list[str]:
    """Return what claw does not run, each by the name that the format gives it."""
    env, verifier = toml.environment, toml.verifier
    networks = {m for m in (env.network_mode, toml.agent.network_mode, verifier.network_mode) if m}
    own = network_of(env)
    services = [c.service for c in verifier.collect]
    services += [a.service for a in toml.artifacts if isinstance(a, Artifact) and a.service]
    build = path / "environment"
    compose = [n for n in ("docker-compose.yaml", "docker-compose.yml") if (build / n).is_file()]
    has_build = (build / "Dockerfile").is_file() or bool(env.docker_image)
    checks = {
        "[[steps]] (multi-step task)": bool(toml.steps) or (path / "steps").is_dir(),
        'environment.os = "windows"': env.os == "windows",
        "tests/test.bat": not (path / "tests/test.sh").is_file() and not toml.steps,
        "environment.gpus": bool(env.gpus),
        "environment.gpu_types": bool(env.gpu_types),
        "environment.tpu": env.tpu is not None,
        "environment.mcp_servers": bool(env.mcp_servers),
        "environment.skills_dir": bool(env.skills_dir),
        'network_mode = "allowlist" (allowed_hosts)': "allowlist" in networks,
        "agent.network_mode other than the environment's":
            toml.agent.network_mode not in (None, own),
        "verifier.network_mode other than the environment's":
            verifier.network_mode not in (None, own),
        'verifier.environment_mode = "separate"':
            verifier.environment_mode == "separate" or verifier.environment is not None,
        "tests/Dockerfile (separate verifier)": (path / "tests/Dockerfile").is_file(),
        f"environment/{compose[0] if compose else ''} (sidecar services)": bool(compose),
        "environment/ without a Dockerfile":
            not has_build and not compose and not toml.steps,
        "a service other than main": any(s != "main" for s in services),
        "trajectory.json (prior context)": (path / "trajectory.json").is_file(),
    }
    return [name for name, is_asked in checks.items() if is_asked]


def notes(toml: TaskToml) -> list[str]:
    """Return what is old, unknown, or has no effect here."""
    found = [f"unknown key {name}" for name in unknown(toml)]
    env = toml.environment
    old = {"memory": env.memory, "storage": env.storage, "allow_internet": env.allow_internet}
    found += [f"environment.{k} is an old spelling" for k, v in old.items() if v is not None]
    if toml.artifacts:
        found.append("artifacts are not collected")
    if env.storage_mb or env.storage:
        found.append("environment.storage_mb is not enforced")
    if toml.multi_step_reward_strategy and not toml.steps:
        found.append("multi_step_reward_strategy has no effect without steps")
    return found


def unknown(part: BaseModel, prefix: str = "") -> list[str]:
    """Return the dotted names of keys that no field takes."""
    found = [f"{prefix}{name}" for name in (part.model_extra or {})]
    for name in type(part).model_fields:
        value = getattr(part, name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, BaseModel):
                found += unknown(inner, f"{prefix}{name}.")
    return found


def network_of(env: Environment) -> str:
    """Return the mode; the old `allow_internet` says it where `network_mode` does not."""
    if env.network_mode is not None:
        return env.network_mode
    return "no-network" if env.allow_internet is False else "public"


def megabytes(size: str | None) -> int | None:
    """Return the MiB of `2G` or `512M`; a bare number is bytes."""
    if size is None or not (match := _SIZE.match(size)):
        return None
    factor = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[match[2].upper()]
    return max(1, int(float(match[1]) * factor) >> 20)


def without_canary(text: str) -> str:
    """Return the instruction without the canary comment lines, and blank lines, at its top."""
    lines = text.splitlines(keepends=True)
    start = 0
    while start < len(lines) and _CANARY.match(lines[start].strip()):
        start += 1
    return "".join(lines[start:]).lstrip("\n")


def substituted(values: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    """Return `values` with `${NAME}` and `${NAME:-default}` taken from `given`."""
    def take(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in given:
            return given[name]
        if default is None:
            raise FormatError(f"the task wants the variable {name}", found="it is not given",
                              do="name it in plugin.terminal.variables and set it before the start")
        return default

    return {key: _VARIABLE.sub(take, value) for key, value in values.items()}


def _user(user: str | int | None) -> str:
    return "" if user is None else str(user)


def _ignored(path: Path) -> Callable[[str], bool]:
    """Return whether a path below tests/ is left out by `.harborignore`, in git's own syntax."""
    lines: list[str] = []
    for file in (path / IGNORE, path / "tests" / IGNORE):
        lines += read_text(file).splitlines() if file.is_file() else []
    if not lines:
        return lambda name: name == IGNORE
    try:
        from pathspec import GitIgnoreSpec
    except ImportError as error:
        raise FormatError(".harborignore needs pathspec", found=str(error),
                          do="pip install pathspec") from error
    rules = GitIgnoreSpec.from_lines(lines)
    return lambda name: (
        name == IGNORE or rules.match_file(name) or rules.match_file(f"tests/{name}")
    )
