"""v0: what `load_environment` returns, its rows, and what of it cannot be played.

Owns: the environment object, rows -> tasks, refusals.
Does not own: an episode (`driven`).
"""

import signal
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

from claw.errors import UsageError
from claw.records import Task
from claw.sdk.adapters.verifiers import messages
from claw.sdk.adapters.verifiers.driven import LegacyEnv
from claw.sdk.adapters.verifiers.refusal import refused
from claw.sdk.adapters.verifiers.settings import VerifiersConfig

OWN_WORLDS = {
    "SandboxEnv": "a paid sandbox of its own", "SandboxMixin": "a paid sandbox of its own",
    "CliAgentEnv": "an agent of its own", "BrowserEnv": "a browser of its own",
    "OpenEnvEnv": "a container of its own; play its server with the plugin openenv",
}
PLAIN_SAMPLING = {"n": 1, "extra_body": {}}
"""what an environment asks of sampling when its author asks nothing"""


class LegacyPackage:
    """See `package.Package`."""

    def __init__(self, config: VerifiersConfig, module: ModuleType, split: str) -> None:
        self.name, self.split = config.package, split
        self.vf: Any = import_module("verifiers.legacy" if find_spec("verifiers.legacy")
                                     else "verifiers")
        _leave_signals_alone(self.vf)
        try:
            self.environment: Any = module.load_environment(**config.arguments(split))
        except TypeError as error:
            raise UsageError(
                "load_environment refuses its arguments", found=str(error),
                do="set plugin.verifiers.args",
            ) from error
        if found := list(self._needs(self.environment)):
            raise refused(self.name, list(dict.fromkeys(found)))

    def _needs(self, environment: Any) -> Iterator[str]:
        kinds = [c.__name__ for c in type(environment).__mro__]
        yield from (f"{why} ({name})" for name, why in OWN_WORLDS.items() if name in kinds)
        inner = getattr(environment, "envs", None) if "EnvGroup" in kinds else None
        if inner:
            for one in inner:
                yield from self._needs(one)
            return
        if "MultiTurnEnv" not in kinds:
            yield f"a rollout of its own ({kinds[0]})"
        if type(environment).get_model_response is not self.vf.Environment.get_model_response:
            yield f"a sampling client of its own ({kinds[0]}.get_model_response)"
        if environment.sampling_args != PLAIN_SAMPLING:
            yield f"sampling of its own (sampling_args = {environment.sampling_args})"
        if getattr(environment, "message_type", "chat") != "chat":
            yield "plain completions without a chat (message_type)"
        yield from self._rubric_needs(environment.rubric)

    def _rubric_needs(self, rubric: Any) -> Iterator[str]:
        for one in getattr(rubric, "rubrics", ()):  # a group of rubrics
            yield from self._rubric_needs(one)
        for c in type(rubric).__mro__:
            if c.__name__ == "JudgeRubric":
                yield f"a judge that asks a model of its own ({type(rubric).__name__})"
        for func in rubric.funcs:
            if rubric._is_group_func(func):
                yield f"rewards that compare attempts ({getattr(func, '__name__', func)})"

    # --- rows --------------------------------------------------------------------------------

    def tasks(self) -> Iterable[Task]:
        """All rows of the split."""
        is_eval = self.split == "eval"
        rows = (self.environment.get_eval_dataset() if is_eval else self.environment.get_dataset())
        return [self._task(i, dict(row)) for i, row in enumerate(rows)]

    def _task(self, index: int, row: dict[str, Any]) -> Task:
        if messages.images(row["prompt"]):
            raise refused(self.name, [f"row {index} needs images (in prompt)"])
        id = f"{self.name}-{self.split}-{row.get('example_id', index)}"
        return Task(id, tuple(messages.plain(row["prompt"])), metadata={"split": self.split},
                    answer=row)

    def env(self, task: Task) -> LegacyEnv:
        """Return one attempt at a row."""
        return LegacyEnv(self.vf, self.environment, task.answer)


def _leave_signals_alone(vf: Any) -> None:
    """Keep a new environment from taking SIGINT and SIGTERM.

    v0 installs handlers that exit the process at once, so a runner would end without closing its
    episodes; off the main thread, where a runner loads packages, installing them raises. Its
    clean-up at the interpreter's exit stays.
    """
    module: Any = import_module(f"{vf.__name__}.envs.environment")
    module.signal = SimpleNamespace(**(vars(signal) | {"signal": lambda *_: None}))
