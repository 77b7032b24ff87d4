"""Where tasks come from: the generator, this package, or a folder.

Owns: task ids, splits, and which folder or recipe belongs to a task.
Does not own: the formats (claw.sdk.formats), what a generated task asks (`generator`).
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claw.sdk import Task
from claw.sdk.formats import folder
from claw.sdk.formats.folder import FormatError, TaskFolder

from . import generator
from .prompt import messages
from .settings import TerminalConfig

SHIPPED = Path(__file__).parent / "shipped"


def of_split(config: TerminalConfig, split: str) -> Iterator[Task]:
    """Return the tasks of `train` or `eval`; unfit folders are refused before the first."""
    if config.tasks == "generated":
        return generated(config, split)
    path = SHIPPED if config.tasks == "shipped" else Path(config.tasks).expanduser()
    made = _folders(path, config)
    return iter([t for t in made if config.eval_share == 0 or _split(t.id, config) == split])


def of_path(path: Path, config: TerminalConfig) -> list[Task] | None:
    """Return the tasks of a folder of task folders, or of one; None for anything else."""
    try:
        folder.find(path)
    except FormatError:
        return None
    return _folders(path, config)


def generated(config: TerminalConfig, split: str) -> Iterator[Task]:
    """Yield generated tasks; each is made anew from its seed when it is played."""
    generator.check(config.families)
    count = config.train_tasks if split == "train" else config.eval_tasks
    for index in range(count):
        recipe = generator.Recipe(config.seed, split, index, config.families, config.level)
        made = generator.make(recipe, config.image)
        yield _task(made, config, {"recipe": recipe.as_dict()})


def folder_of(task: Task, config: TerminalConfig) -> TaskFolder:
    """Return what a task is about, from its metadata."""
    if recipe := task.metadata.get("recipe"):
        return generator.make(generator.Recipe.from_dict(recipe), config.image)
    path = task.metadata.get("path")
    if not isinstance(path, str):
        raise FormatError(f"task {task.id!r} names no task folder", found=str(task.metadata),
                          allowed="metadata with `path` or `recipe`")
    return folder.read(Path(path))


def _folders(path: Path, config: TerminalConfig) -> list[Task]:
    made = []
    for inner in folder.find(path):
        read = folder.read(inner)
        read.refuse_unsupported()
        if read.build_folder is not None and not config.build:
            raise FormatError(f"task {read.name!r} has to be built", found=str(read.build_folder),
                              do="set plugin.terminal.build = true")
        made.append(_task(read, config, {"path": str(inner.resolve())}))
    names = [task.id for task in made]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise FormatError("two task folders have one name", found=", ".join(doubled))
    return made


def _task(read: TaskFolder, config: TerminalConfig, where: dict[str, Any]) -> Task:
    about = {k: v for k, v in read.metadata.items() if isinstance(v, str | int | float | bool)}
    return Task(read.name, tuple(messages(read, config)),
                metadata={**about, "format": read.format, **where})


def _split(name: str, config: TerminalConfig) -> str:
    """By name, so that a task stays in its split when others come or go."""
    part = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
    return "eval" if part < config.eval_share else "train"
