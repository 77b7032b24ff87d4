"""Groups 1, 2 and 9: it registers, it imports lightly, its settings are told and checked."""

from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import BaseModel, ValidationError

from claw.errors import ClawError, UsageError
from claw.sdk import registry
from claw.sdk.testing.criteria import told
from claw.sdk.testing.importing import imported
from claw.sdk.testing.subject import Subject

MAX_IMPORT_S = 1.0
HOST = "claw-rl"


async def registers(s: Subject) -> None:
    """Group 1."""
    said = "it registers under its entry point's name, and every hook fits"
    try:
        plugin = s.plugin
    except ClawError as error:
        s.hold("1.registers", said, False, expected=error.allowed, actual=error, do=error.do)
        return
    s.hold("1.registers", said, plugin.name == s.name, expected=s.name, actual=plugin.name)
    is_complete = s.has_tasks or plugin.has("claw_app") or plugin.has("claw_read_tasks")
    s.hold("1.complete", "it plays tasks or serves people", is_complete,
           expected="claw_tasks and claw_env, or claw_app", actual="neither",
           do="implement the missing hook, with @hookimpl above it")
    _fits_the_host(s)


def _fits_the_host(s: Subject) -> None:
    said = f"it declares which {HOST} it works with, and that one is installed"
    found = [f for f in registry.installed() if f.name == s.name]
    if not s.is_installed or not found:
        s.hold("1.version", said, None)
        return
    wanted = _wanted(found[0].distribution)
    expected = f"a dependency such as {HOST}>=0.1,<0.2"
    if wanted is None or not wanted.specifier:
        s.hold("1.version", said, False, expected=expected, actual=wanted or "no such dependency",
               do="add it to [project] dependencies in pyproject.toml and install again")
        return
    has = version(HOST)
    fits = wanted.specifier.contains(has, prereleases=True)
    s.hold("1.version", said, fits, expected=str(wanted), actual=f"{HOST} {has} is installed")


def _wanted(distribution: str) -> Requirement | None:
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        return None
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name.lower().replace("_", "-") == HOST and not requirement.marker:
            return requirement
    return None


async def imports(s: Subject) -> None:
    """Group 2."""
    said = "importing it loads no torch, transformers, sglang or docker"
    if not s.is_installed:
        s.hold("2.light", said, None)
        return
    try:
        seen = imported(s.name)
    except ClawError as error:
        s.hold("2.light", said, False, actual=error)
        return
    s.hold("2.light", said, not seen.heavy, expected="none of them", actual=seen.heavy,
           do="import them inside the functions that need them")
    s.hold("2.quick", "importing it takes less than a second of processor time",
           seen.seconds < MAX_IMPORT_S, expected=f"< {MAX_IMPORT_S:g} s",
           actual=f"{seen.seconds:.2f} s", do="see: python -X importtime -c 'import ...'")
    s.hold("2.offline", "importing it uses no network", not seen.network, expected="no call",
           actual=seen.network, do="fetch what is needed in claw_tasks or in the environment")


async def settings(s: Subject) -> None:
    """Group 9."""
    model: type[BaseModel] | None = s.plugin.hook.claw_config()
    if model is None:
        s.hold("9.defaults", "it has no settings of its own", None)
        return
    _defaults(s, model)
    _unknown(s, model)
    bare = [name for name in _fields(model) if not _fields(model)[name]]
    s.hold("9.documented", "every setting says what it means", not bare, actual=bare,
           expected="a docstring under each field, with use_attribute_docstrings=True")


def _defaults(s: Subject, model: type[BaseModel]) -> None:
    said = "its settings are valid without being set"
    try:
        model()
    except ValidationError as error:
        s.hold("9.defaults", said, False, expected="a default for every setting",
               actual=told(error))
        return
    s.hold("9.defaults", said, True)


def _unknown(s: Subject, model: type[BaseModel]) -> None:
    said = "an unknown setting is refused, with the nearest known one"
    name = next(iter(model.model_fields), "")
    wrong = f"{name}x" if name else "unknown"
    try:
        s.plugin.settings({wrong: 1})
    except UsageError as error:
        fits = not name or "did you mean" in str(error)
        s.hold("9.unknown", said, fits, expected=f"did you mean {name!r}?", actual=error)
        return
    s.hold("9.unknown", said, False, expected=f"{wrong!r} is refused", actual="it was taken",
           do='model_config = ConfigDict(extra="forbid")')


def _fields(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Every setting, also of nested models, with its description."""
    found: dict[str, str] = {}
    for name, f in model.model_fields.items():
        inner: Any = f.annotation
        found[prefix + name] = f.description or ""
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found[prefix + name] = f.description or (inner.__doc__ or "")
            found |= _fields(inner, f"{prefix}{name}.")
    return found
