"""From a package's name to what plays it: a v1 taskset, or a v0 environment.

Owns: importing the package once, and finding out what it is.
Does not own: how either is played (`tasksets`, `legacy`).
"""

import importlib.util
import json
import sys
import threading
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any, Protocol

from claw.errors import ClawError, UsageError
from claw.records import Task
from claw.sdk.adapters import foreign
from claw.sdk.adapters.verifiers.settings import VerifiersConfig

INCLUDED = "verifiers.v1.tasksets"
"""where the tasksets lie that come with verifiers"""

_loaded: dict[str, "Package"] = {}
_lock = threading.Lock()


class Package(Protocol):
    """One split of a package."""

    def tasks(self) -> Iterable[Task]:
        """Return the rows; refuse what cannot be played."""

    def env(self, task: Task) -> Any:
        """Return one attempt at a row: an `Env` with async methods."""


def load(config: VerifiersConfig, split: str) -> Package:
    """Return a split of the package, loaded once in this process."""
    key = json.dumps([config.package, config.arguments(split), split], sort_keys=True, default=str)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _load(config, split)
        return _loaded[key]


def _load(config: VerifiersConfig, split: str) -> Package:
    foreign.load("verifiers", of="verifiers", install="verifiers")
    module = _module(config)
    if _exports_taskset(module):
        from claw.sdk.adapters.verifiers.tasksets import TasksetPackage

        return TasksetPackage(config, module, split)
    if hasattr(module, "load_environment"):
        from claw.sdk.adapters.verifiers.legacy import LegacyPackage

        return LegacyPackage(config, module, split)
    raise UsageError(
        f"{config.package!r} is no verifiers package", found=f"the module {module.__name__!r}",
        allowed="a Taskset in `__all__` (v1), or `load_environment` (v0)",
        do="name another package in plugin.verifiers.package",
    )


def _module(config: VerifiersConfig) -> ModuleType:
    names = [config.module]
    if importlib.util.find_spec("verifiers.v1") is not None:  # absent before 0.2
        names.insert(0, f"{INCLUDED}.{config.module}")
    name = next((n for n in names if importlib.util.find_spec(n) is not None), None)
    if name is None:
        raise UsageError(
            f"no verifiers package {config.package!r}", found=f"tried {', '.join(names)}",
            do=f"install it into {sys.prefix}",
        )
    try:
        return import_module(name)
    except ClawError:
        raise
    except Exception as error:
        raise UsageError(
            f"the verifiers package {config.package!r} cannot be imported",
            found=f"{type(error).__name__}: {error}; verifiers {version('verifiers')}",
            do="install what it lacks; a v0 package needs verifiers<0.4",
        ) from error


def _exports_taskset(module: ModuleType) -> bool:
    if importlib.util.find_spec("verifiers.v1") is None:
        return False
    taskset: Any = import_module("verifiers.v1.taskset").Taskset
    return any(exported(module, taskset))


def exported(module: ModuleType, base: Any) -> list[Any]:
    """The subclasses of `base` that a module names in `__all__`."""
    found = [getattr(module, name, None) for name in getattr(module, "__all__", ())]
    return [c for c in found if isinstance(c, type) and issubclass(c, base) and c is not base]
