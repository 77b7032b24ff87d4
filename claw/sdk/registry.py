"""Find, load and list plugins. Errors name what was asked, what exists, and what to install.

A plugin is an entry point of group `claw`; its name is the word after `--plugin`.
"""

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import pluggy
from pydantic import BaseModel, ValidationError

from claw.errors import UsageError, nearest, where
from claw.sdk import hooks

GROUP = "claw"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """An installed plugin, not imported."""

    name: str
    distribution: str
    version: str


def installed() -> list[Found]:
    """Return the installed plugins by name, without importing any."""
    return sorted({f.name: f for f in _entries()}.values(), key=lambda f: f.name)


def _entries() -> list[Found]:
    return [
        Found(e.name, e.dist.name if e.dist else "?", e.dist.version if e.dist else "?")
        for e in entry_points(group=GROUP)
    ]


class Plugin:
    """One loaded plugin and its hooks."""

    def __init__(self, name: str, manager: pluggy.PluginManager) -> None:
        self.name, self.manager, self.hook = name, manager, manager.hook

    def has(self, hook: str) -> bool:
        """Whether the plugin implements `hook`."""
        return bool(getattr(self.hook, hook).get_hookimpls())

    def settings(self, values: dict[str, Any]) -> BaseModel | None:
        """Check `[plugin.<name>]` against the plugin's own model."""
        model: type[BaseModel] | None = self.hook.claw_config()
        if model is None:
            if values:
                raise UsageError(f"plugin {self.name!r} has no settings", found=str(values))
            return None
        try:
            return model.model_validate(values)
        except ValidationError as error:
            from claw.config import explain  # builds every model of a run: only for a mistake

            said = explain(error, model, f"plugin.{self.name}.")
            raise UsageError("the settings are not valid", found=said) from error


def load(name: str, *, trace_hooks: bool = False) -> Plugin:
    """Import the plugin `name`, check every hook it names, and return it."""
    manager = _manager()
    _brought_once(name)
    try:
        count = manager.load_setuptools_entrypoints(GROUP, name)
    except pluggy.PluginValidationError as error:
        raise _unfit(name, error) from error
    except Exception as error:  # a plugin may raise anything while it is imported
        is_missing = isinstance(error, ImportError)
        raise UsageError(
            f"plugin {name!r} cannot be imported", found=f"{type(error).__name__}: {error}",
            do=f"reinstall it: pip install claw-env-{name}" if is_missing
            else f"mend it; the last line that ran: {where(error)}",
        ) from error
    if count == 0:
        raise _unknown(name)
    return _checked(name, manager, trace_hooks)


def from_object(name: str, plugin: object, *, trace_hooks: bool = False) -> Plugin:
    """Make a plugin of a module or object at hand (tests, built-in doubles)."""
    manager = _manager()
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as error:
        raise _unfit(name, error) from error
    return _checked(name, manager, trace_hooks)


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hooks)
    return manager


def _checked(name: str, manager: pluggy.PluginManager, trace_hooks: bool) -> Plugin:
    try:
        manager.check_pending()  # a misspelt hook is an error, not silence
    except pluggy.PluginValidationError as error:
        known = [h.__name__ for h in hooks.HOOKS]
        raise UsageError(
            f"plugin {name!r} implements a hook that does not exist",
            found=str(error), allowed=", ".join(known),
        ) from error
    _marked(name, manager)
    if trace_hooks:
        manager.add_hookcall_monitoring(_say_call, _say_result)
    return Plugin(name, manager)


def _marked(name: str, manager: pluggy.PluginManager) -> None:
    """A hook that was forgotten to be marked would be silently left out."""
    plugin = manager.get_plugin(name)
    marked = {caller.name for caller in manager.get_hookcallers(plugin) or ()}
    known = [h.__name__ for h in hooks.HOOKS]
    bare = [h for h in known if callable(getattr(plugin, h, None)) and h not in marked]
    if bare or not marked:
        raise UsageError(
            f"plugin {name!r} has hooks without @hookimpl" if bare
            else f"plugin {name!r} implements no hook",
            found=", ".join(bare) or f"{plugin!r}", allowed=", ".join(known),
            do="from claw.sdk import hookimpl, and put @hookimpl above each of them",
        )


def _brought_once(name: str) -> None:
    """Of two distributions with a plugin of the same name, one would silently win."""
    brought = {f.distribution for f in _entries() if f.name == name}
    if len(brought) > 1:
        raise UsageError(
            f"more than one distribution brings a plugin {name!r}",
            found=", ".join(sorted(brought)), allowed="one", do="uninstall the others",
        )


def _say_call(hook: str, impls: Sequence[pluggy.HookImpl], kwargs: Mapping[str, Any]) -> None:
    where = [inspect.getsourcefile(i.function) or "?" for i in impls]
    log.info("hook %s(%s) -> %s", hook, ", ".join(sorted(kwargs)), where)


def _say_result(
    outcome: pluggy.Result[Any], hook: str, impls: Sequence[pluggy.HookImpl],
    kwargs: Mapping[str, Any],
) -> None:
    failed = outcome.exception
    log.info("hook %s %s", hook, f"raised {failed!r}" if failed else "returned")


def _unfit(name: str, error: Exception) -> UsageError:
    return UsageError(f"plugin {name!r} does not fit the hooks", found=str(error))


def _unknown(name: str) -> UsageError:
    names = [f.name for f in installed()]
    return UsageError(
        f"no plugin {name!r}",
        found=f"installed: {', '.join(names) or 'none'}",
        allowed=nearest(name, names),
        do=f"pip install claw-env-{name}, or see: claw plugin list",
    )
