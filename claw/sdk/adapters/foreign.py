"""Packages that only an adapter needs: imported when they are used, and asked for in words."""

from importlib import import_module
from typing import Any

from claw.errors import UsageError


def load(module: str, *, of: str, install: str) -> Any:
    """Import `module` for the plugin `of`; an absent package is an error that says what to do."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise  # it is there; something that it imports is not
        raise UsageError(
            f"the plugin {of!r} needs the package {module.partition('.')[0]!r}",
            found=f"no module named {error.name!r}", do=f"pip install {install!r}",
        ) from error
