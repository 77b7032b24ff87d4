"""Where tasks come from: the instances in this package, or rows.

Owns: task ids, splits, and the private row that a task carries.
Does not own: files (`rows`), columns (`families`).
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claw.sdk import Task, UsageError

from . import families, rows
from .instance import Instance, RowError
from .prompt import messages
from .settings import SweConfig

SHIPPED = Path(__file__).parent / "shipped"
PUBLIC = ("instance_id", "repo", "repo_name", "version", "base_commit", "problem_statement",
          "hints_text", "prompt", "source", "image_name", "docker_image", "test_framework")
"""columns that are no part of the answer"""


def of_split(config: SweConfig, split: str) -> Iterator[Task]:
    """Return the tasks of `train` or `eval`; unfit rows are refused before the first."""
    made = _tasks(config.instances, config)
    return iter([t for t in made if config.eval_share == 0 or _split(t.id, config) == split])


def of_path(path: Path, config: SweConfig) -> list[Task] | None:
    """Return the tasks of a file of rows; None for anything else."""
    return _tasks(str(path), config) if path.suffix in rows.ENDINGS and path.is_file() else None


def instance_of(task: Task) -> Instance:
    """Return what a task is about, from the row that it carries."""
    about = task.metadata
    if not isinstance(task.answer, dict) or "row" not in about:
        raise RowError(f"task {task.id!r} carries no row", found=str(about)[:200])
    return families.read({**about["row"], **task.answer}, family=str(about["family"]),
                         base=Path(about["base"]))


def shipped() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of the instances in this package: a folder each."""
    for folder in sorted(p for p in SHIPPED.iterdir() if p.is_dir()):
        row = json.loads((folder / "instance.json").read_text(encoding="utf-8"))
        for column, name in (("problem_statement", "problem.md"), ("patch", "gold.patch"),
                             ("test_patch", "tests.patch")):
            row[column] = (folder / name).read_text(encoding="utf-8")
        yield str(folder), row


def _tasks(where: str, config: SweConfig) -> list[Task]:
    found = shipped() if where == "shipped" else rows.read(where, config.instances_split)
    base = "" if where == "shipped" or where.startswith(rows.HUB) else str(
        Path(where).expanduser().resolve().parent)
    made = [_task(place, row, base, config) for place, row in found]
    made = [t for t in made if t is not None]
    names = [task.id for task in made]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise RowError("two rows have one id", found=", ".join(doubled[:5]))
    if unknown := sorted({*config.only} - {*names}):
        raise UsageError("there is no such instance", found=", ".join(unknown[:5]),
                         allowed="plugin.swe.only names ids")
    return made


def _task(place: str, row: dict[str, Any], base: str, config: SweConfig) -> Task | None:
    try:
        read = families.read(row, family=config.family, base=Path(base))
    except RowError as error:
        raise RowError(error.what, found=f"{place}: {error.found}", allowed=error.allowed,
                       do=error.do) from error
    if read.id in config.skip or (config.only and read.id not in config.only):
        return None
    return Task(
        read.id, tuple(messages(read, config)),
        metadata={"family": read.family, "base": base,
                  "row": _plain({k: v for k, v in row.items() if k in PUBLIC})},
        answer=_plain({k: v for k, v in row.items() if k not in PUBLIC}),
    )


def _plain(value: Any) -> Any:
    """A row as JSON keeps it: dates and the like become text."""
    return json.loads(json.dumps(value, default=str))


def _split(name: str, config: SweConfig) -> str:
    """By name, so that a task stays in its split when others come or go."""
    part = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32
    return "eval" if part < config.eval_share else "train"
