"""Tools from Python functions: the signature is the schema, the docstring the description.

Owns: function -> tool.
Does not own: checking arguments of calls (`toolbox` does, against the schema).
"""

import inspect
import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from claw.sdk import UsageError

from .threads import on_thread
from .tool import Arguments, Tool

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ARGUMENT = re.compile(r"^\s*(?:\:param\s+)?(\w+)(?:\s*\([^)]*\))?:\s+(.+)$")


def from_function(function: Callable[..., Any]) -> Tool:
    """Return the tool of a sync or async function with annotated arguments."""
    described, model = _described(function), _model(function)
    schema = model.model_json_schema()
    schema.pop("title", None)
    for name, about in schema.get("properties", {}).items():
        about.pop("title", None)
        if name in described[1]:
            about.setdefault("description", described[1][name])

    async def call(arguments: Arguments) -> str:
        made = model.model_validate(arguments)
        named = {name: getattr(made, name) for name in type(made).model_fields}
        if inspect.iscoroutinefunction(function):
            return said(await function(**named))
        return said(await on_thread(function, **named))

    return Tool(function.__name__, described[0], schema, call)


def named(path: str) -> Callable[..., Any]:
    """Return the function that `module:function` names."""
    module, colon, name = path.partition(":")
    try:
        found = getattr(import_module(module), name) if colon else None
    except (ImportError, AttributeError) as error:
        raise UsageError(f"no tool {path!r}", found=str(error),
                         do="name an importable function as module:function") from error
    if not callable(found):
        raise UsageError(f"no tool {path!r}", allowed="calculator, python, or module:function")
    return found  # type: ignore[no-any-return]


def said(value: Any) -> str:
    """Return a result as the policy reads it: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return TypeAdapter(Any).dump_json(value).decode("utf-8")
    except (ValueError, TypeError):
        return json.dumps(value, default=str, ensure_ascii=False)


def _model(function: Callable[..., Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _PLAIN or name not in hints or name.startswith("_"):
            raise UsageError(
                f"the function {function.__name__!r} is no tool", found=f"argument {parameter}",
                allowed="named, annotated arguments",
            )
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], Field(default))
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description, and what the docstring says of each argument."""
    names = set(inspect.signature(function).parameters)
    lines, arguments = [], {}
    for line in (inspect.getdoc(function) or function.__name__).splitlines():
        found = _ARGUMENT.match(line)
        if found and found[1] in names:
            arguments[found[1]] = found[2].strip()
        elif line.strip() not in ("Args:", "Arguments:", "Parameters:"):
            lines.append(line)
    return " ".join(" ".join(lines).split()), arguments
