"""v1: a taskset, its rows, and what of it cannot be played.

Owns: the taskset's configuration, rows -> tasks, refusals.
Does not own: an episode (`rollout`).
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from claw.config import explain
from claw.errors import UsageError
from claw.records import Message, Task
from claw.sdk.adapters.verifiers import messages
from claw.sdk.adapters.verifiers.package import exported
from claw.sdk.adapters.verifiers.refusal import refused
from claw.sdk.adapters.verifiers.rollout import TasksetEnv
from claw.sdk.adapters.verifiers.settings import VerifiersConfig

ROW_NEEDS = {
    "image": "a container image", "agent_user": "a user of a container", "skills": "skills",
    "network_block": "a network policy",
}
"""fields of a row that ask for a world of their own"""


class TasksetPackage:
    """See `package.Package`."""

    def __init__(self, config: VerifiersConfig, module: ModuleType, split: str) -> None:
        self.name, self.split = config.package, split
        loaders = import_module("verifiers.v1.utils.loaders")
        made = self._configured(loaders.taskset_config_type(config.module), config, split)
        self.taskset: Any = loaders.taskset_class(config.module)(made)
        self.task_type: Any = type(self.taskset).task_type()
        self.shared_tools: Any = None
        """tool servers of the whole taskset, started by its first episode"""
        if found := [*self._own_parts(module), *self._task_needs()]:
            raise refused(self.name, found)

    def _configured(self, model: Any, config: VerifiersConfig, split: str) -> Any:
        try:
            return model.model_validate(config.arguments(split) | {"id": config.module})
        except ValidationError as error:
            said = explain(error, model, "plugin.verifiers.args.")
            raise UsageError("the taskset refuses its settings", found=said) from error

    def _own_parts(self, module: ModuleType) -> Iterator[str]:
        for path, name, what in (
            ("verifiers.v1.harness", "Harness", "a harness of its own"),
            ("verifiers.v1.env", "Env", "agents of its own"),
        ):
            for part in exported(module, getattr(import_module(path), name)):
                yield f"{what} ({part.__name__})"

    def _task_needs(self) -> Iterator[str]:
        task, config = self.task_type, self.taskset.config.task
        if task.NEEDS_CONTAINER:
            yield f"a container ({task.__name__}.NEEDS_CONTAINER)"
        for judge in config.judges:
            yield f"a judge that asks a model of its own ({judge.id})"
        for method in _marked(task, "intercept"):
            yield f"rewriting requests or replies ({task.__name__}.{method})"
        servers = [*task.toolsets(config), *type(self.taskset).toolsets(self.taskset.config)]
        for server in servers:
            yield from _server_needs(server)

    # --- rows --------------------------------------------------------------------------------

    def tasks(self) -> Iterable[Task]:
        """A finite taskset is checked whole before its first task is given."""
        rows = (self._task(i, task.data) for i, task in enumerate(self.taskset))
        return rows if self.taskset.INFINITE else list(rows)

    def _task(self, index: int, data: Any) -> Task:
        if needs := list(_row_needs(data)):
            raise refused(self.name, [f"row {index} needs {need}" for need in needs])
        id = f"{self.name}-{self.split}-{getattr(data, 'id', None) or index}"  # 0.3 has no id
        return Task(id, tuple(first_messages(data)), metadata={"split": self.split},
                    answer=data.model_dump(mode="json"))

    def row(self, task: Task) -> Any:
        """The package's own task of a row, made anew from its data."""
        data = self.task_type.data_type().model_validate(task.answer)
        return self.task_type(data, self.taskset.config.task)

    def env(self, task: Task) -> TasksetEnv:
        """Return one attempt at a row."""
        return TasksetEnv(self, task)


def first_messages(data: Any) -> list[Message]:
    """The system prompt, if the row has one, and the prompt."""
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    return [*system, *messages.plain(data.prompt)]


def _row_needs(data: Any) -> Iterator[str]:
    for name, what in ROW_NEEDS.items():
        if value := getattr(data, name, None):
            yield f"{what} ({name} = {value!r})"
    if "*" not in getattr(data, "network_allow", ["*"]):
        yield f"a network policy (network_allow = {data.network_allow!r})"
    for name, value in data.resources.model_dump(exclude_none=True).items():
        yield f"a limit of a container (resources.{name} = {value!r})"
    if data.prompt is None:
        yield "a user who opens the conversation (prompt is empty)"
    elif not isinstance(data.prompt, str) and messages.images(data.prompt):
        yield "images (in prompt)"


def _server_needs(server: Any) -> Iterator[str]:
    name = type(server).__name__
    if getattr(server.config, "url", None):
        yield f"a tool server elsewhere ({name}: {server.config.url})"
    kind = getattr(getattr(server.config, "runtime", None), "type", "subprocess")
    if kind != "subprocess":
        yield f"a runtime of its own ({name}: {kind})"


def _marked(task: Any, mark: str) -> list[str]:
    return sorted({
        name for c in task.__mro__ for name, value in vars(c).items() if hasattr(value, mark)
    })
