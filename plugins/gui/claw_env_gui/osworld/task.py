"""One task in OSWorld's JSON, as claw sees it.

Owns: the record, reading a file or a folder of them, what is wrong with one.
Does not own: which parts a machine can do (`support`), doing them (`setup`, `evaluate`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw.sdk.formats.folder import FormatError, read_text

KEYS = frozenset({
    "id", "snapshot", "instruction", "source", "config", "trajectory", "related_apps", "evaluator",
    "proxy", "fixed_ip", "possibility_of_env_change", "hint", "env_may_change",
})
EVALUATOR_KEYS = frozenset({"func", "conj", "result", "expected", "options", "postconfig"})
INDEX = "test_all.json"
MAX_STEPS = 100


@dataclass(frozen=True, slots=True)
class Step:
    """One step of setting up."""

    kind: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One metric: what it compares, and how."""

    func: str
    result: Mapping[str, Any] | None = None
    """the getter of what is there"""
    expected: Mapping[str, Any] | None = None
    """the getter of what should be"""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DesktopTask:
    """What a person is asked to do at a desktop, and how it is seen whether it was done."""

    id: str
    instruction: str
    path: Path
    config: tuple[Step, ...]
    postconfig: tuple[Step, ...]
    checks: tuple[Check, ...]
    conj: str
    """and, or: how several checks count together"""
    snapshot: str = ""
    source: Any = ""
    related_apps: tuple[str, ...] = ()
    needs_proxy: bool = False
    needs_fixed_ip: bool = False
    change: str = "low"
    """how likely the world outside has changed since the task was written"""
    hint: str = ""
    notes: tuple[str, ...] = ()
    """keys that this reader does not know"""

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def is_infeasible(self) -> bool:
        return any(check.func == "infeasible" for check in self.checks)


def read(path: Path) -> DesktopTask:
    """Read one task; FormatError says what is wrong with it."""
    try:
        raw = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise FormatError("a task is no JSON", found=f"{path}: {error}"[:300]) from error
    if not fits(raw):
        raise FormatError("this is no OSWorld task", found=str(path),
                          allowed="a JSON object with id, instruction and evaluator")
    try:
        return _of_dict(raw, path)
    except (FormatError, AttributeError, TypeError) as error:
        raise FormatError(f"task {str(raw['id'])!r} cannot be read", found=f"{error}: {path}",
                          ) from error


def fits(raw: Any) -> bool:
    return (isinstance(raw, dict) and isinstance(raw.get("id"), str)
            and isinstance(raw.get("instruction"), str) and isinstance(raw.get("evaluator"), dict))


def find(path: Path) -> list[Path]:
    """Return the task files at `path`: a file, an index with its examples, or a folder of tasks."""
    if path.is_file():
        return [path] if path.name != INDEX else _of_index(path)
    if (path / INDEX).is_file():
        return _of_index(path / INDEX)
    own = [p for p in (path / "task.json",) if p.is_file()]
    return own or sorted([*path.glob("*/task.json"), *path.glob("*.json")])


def _of_index(index: Path) -> list[Path]:
    """Return the files that `{app: [id]}` names, beside it in examples/<app>/<id>.json."""
    try:
        apps = json.loads(read_text(index))
        names = [(str(app), str(id)) for app, ids in apps.items() for id in ids]
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError("an index of tasks cannot be read", found=f"{index}: {error}") from error
    made = [index.parent / "examples" / app / f"{id}.json" for app, id in names]
    if missing := [str(p) for p in made if not p.is_file()]:
        raise FormatError("an index names tasks that are not there",
                          found=f"{len(missing)} of {len(made)}, such as {missing[0]}")
    return made


def _of_dict(raw: dict[str, Any], path: Path) -> DesktopTask:
    evaluator = raw["evaluator"]
    conj = evaluator.get("conj", "and")
    if conj not in ("and", "or"):
        raise FormatError("evaluator.conj is neither and nor or", found=repr(conj))
    unknown = [*sorted(set(raw) - KEYS),
               *(f"evaluator.{key}" for key in sorted(set(evaluator) - EVALUATOR_KEYS))]
    return DesktopTask(
        raw["id"], raw["instruction"], path, _steps(raw.get("config"), "config"),
        _steps(evaluator.get("postconfig"), "evaluator.postconfig"), _checks(evaluator), conj,
        str(raw.get("snapshot") or ""), raw.get("source") or "",
        tuple(str(app) for app in raw.get("related_apps") or ()), bool(raw.get("proxy")),
        bool(raw.get("fixed_ip")),
        str(raw.get("possibility_of_env_change") or raw.get("env_may_change") or "low"),
        str(raw.get("hint") or ""), tuple(f"no key {key!r} is known" for key in unknown),
    )


def _steps(raw: Any, where: str) -> tuple[Step, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or len(raw) > MAX_STEPS:
        raise FormatError(f"{where} must be a list of at most {MAX_STEPS} steps")
    made = []
    for at, step in enumerate(raw):
        if not isinstance(step, dict) or not isinstance(step.get("type"), str):
            raise FormatError(f"{where}[{at}] has no type", found=repr(step)[:120])
        args = step.get("parameters") or {}
        if not isinstance(args, dict):
            raise FormatError(f"{where}[{at}].parameters is no object", found=repr(args)[:120])
        made.append(Step(step["type"], args))
    return tuple(made)


def _checks(evaluator: dict[str, Any]) -> tuple[Check, ...]:
    """Return the metrics; where `func` is a list, its companions are lists of the same length."""
    func = evaluator.get("func")
    many = isinstance(func, list)
    funcs = func if isinstance(func, list) else [func]
    if not funcs or not all(isinstance(f, str) and f for f in funcs):
        raise FormatError("evaluator.func must name a metric, or several", found=repr(func)[:120])
    columns: dict[str, list[Any]] = {}
    for name in ("result", "expected", "options"):
        given = evaluator.get(name)
        column = given if many else [given]
        if many and given is None:
            column = [None] * len(funcs)
        if not isinstance(column, list) or len(column) != len(funcs):
            raise FormatError(f"evaluator.{name} must hold one entry for each of func",
                              found=repr(given)[:120], allowed=f"a list of {len(funcs)}")
        for each in column:
            if each is not None and not (isinstance(each, dict) and (
                    name == "options" or isinstance(each.get("type"), str) or not each)):
                raise FormatError(f"evaluator.{name} must be objects with a type",
                                  found=repr(each)[:120])
        columns[name] = [each or None for each in column]
    return tuple(
        Check(f, columns["result"][i], columns["expected"][i], columns["options"][i] or {})
        for i, f in enumerate(funcs))
