"""Installed verifiers packages as environments: v1 tasksets, and v0 `load_environment`."""

from collections.abc import Iterable
from typing import Any

from claw.records import Task
from claw.sdk.adapters.checker import Checker, defaults
from claw.sdk.adapters.verifiers.settings import VerifiersConfig
from claw.sdk.hooks import hookimpl
from claw.sdk.judging import Judge


@hookimpl
def claw_config() -> type[VerifiersConfig]:
    """Settings at `[plugin.verifiers]`."""
    return VerifiersConfig


@hookimpl
def claw_defaults() -> dict[str, Any]:
    """The outcome is the package's reward; nothing else judges."""
    return defaults()


@hookimpl
def claw_tasks(config: VerifiersConfig, split: str) -> Iterable[Task]:
    """Return the rows of the package; what cannot be played is refused here."""
    from claw.sdk.adapters.verifiers.package import load  # keeps the import of the plugin light

    return load(config, split).tasks()


@hookimpl
def claw_env(task: Task, config: VerifiersConfig) -> Any:
    """Return one episode of a row: an `Env` with async methods."""
    from claw.sdk.adapters.verifiers.package import load

    return load(config, str(task.metadata["split"])).env(task)


@hookimpl
def claw_judges(config: VerifiersConfig) -> list[Judge]:
    """The package's rewards, as a checker."""
    return [Checker(config.package)]
