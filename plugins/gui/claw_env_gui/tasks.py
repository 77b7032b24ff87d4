"""Where tasks come from: this package, or OSWorld's JSON of a person's own.

Owns: tasks, their splits, and refusing what cannot be run before the first is played.
Does not own: the format (`osworld`).
"""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from claw.sdk import Task
from claw.sdk.formats.folder import FormatError

from .osworld import support
from .osworld.task import DesktopTask, find, fits, read
from .settings import GuiConfig

log = logging.getLogger(__name__)
SHIPPED = Path(__file__).parent / "shipped"


def of_split(config: GuiConfig, split: str) -> Iterator[Task]:
    """Return the tasks of `train` or `eval`; unfit ones are refused before the first."""
    path = SHIPPED if config.tasks == "shipped" else Path(config.tasks).expanduser()
    found = of_files(find(path), config)
    if not found:
        raise FormatError("there are no tasks", found=str(path),
                          allowed="OSWorld's JSON: a file, test_all.json, or a folder of either")
    if config.eval_share == 0:
        log.warning("train and eval hold the same %d tasks: what is measured was trained on; "
                    "set plugin.gui.eval_share", len(found))
        return iter(found)
    kept = [t for t in found if _split(t.id, config.eval_share) == split]
    if not kept:
        raise FormatError(f"the split {split} is empty", found=f"{len(found)} tasks, eval_share "
                          f"{config.eval_share:g}", do="change plugin.gui.eval_share")
    return iter(kept)


def of_path(path: Path, config: GuiConfig) -> list[Task] | None:
    """Return the tasks at a path; None for anything that holds none of this format."""
    try:
        paths = find(path) if path.is_dir() or path.suffix == ".json" else []
    except OSError:
        return None
    if path.name not in ("test_all.json",) and not any(_is_task(p) for p in paths):
        return None
    return of_files(paths, config)


def of_files(paths: list[Path], config: GuiConfig) -> list[Task]:
    cache = cache_of(config)
    made, seen = [], set()
    for path in paths:
        task = read(path)
        try:
            support.refuse_unsupported(task, is_remote=bool(config.remote), cache=cache)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"task {task.id!r} has a part of another kind than OSWorld's",
                              found=f"{path}: {type(error).__name__}: {error}"[:300]) from error
        if task.id in seen:
            raise FormatError("two tasks have one id", found=task.id)
        seen.add(task.id)
        made.append(_task(task))
    return made


def desktop_task(task: Task) -> DesktopTask:
    """Return what a task is about."""
    path = task.metadata.get("path")
    if not isinstance(path, str):
        raise FormatError(f"task {task.id!r} names no file", found=str(task.metadata)[:200],
                          allowed="metadata with `path`")
    return read(Path(path))


def cache_of(config: GuiConfig) -> Path | None:
    return Path(config.cache).expanduser() if config.cache else None


def _task(task: DesktopTask) -> Task:
    about = {"path": str(task.path.resolve()), "apps": ", ".join(task.related_apps),
             "checks": ", ".join(check.func for check in task.checks)}
    return Task(task.id, ({"role": "user", "content": task.instruction},), metadata=about)


def _is_task(path: Path) -> bool:
    import json

    try:
        return path.stat().st_size <= 1 << 20 and fits(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return False


def _split(name: str, share: float) -> str:
    """By name, so that a task stays in its split when others come or go."""
    part = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
    return "eval" if part < share else "train"
