"""What plugin authors see: `claw plugin new|list|check`, `claw env list|inspect|check`.

Owns: the words and tables, finding the tasks that a name or a path means.
Does not own: templates (sdk.scaffold), the checks and proofs (sdk.testing).
"""

import asyncio
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from claw.config import RunConfig
from claw.engine.report import cut, read_config, say
from claw.errors import UsageError, nearest
from claw.records import Message, Task
from claw.sdk import registry
from claw.sdk.registry import Plugin

FIRST_WORDS = 60
"""characters of a task's request in a list"""
SPLITS = ("train", "eval")


# --- plugins -------------------------------------------------------------------------------------


def new_plugin(typed: str, into: Path, *, force: bool) -> None:
    """Write a working plugin, and say what to type next."""
    from claw.sdk.scaffold.names import Names
    from claw.sdk.scaffold.write import write

    names = Names.of(typed)
    folder = write(names, into, force=force, say=lambda line: say(escape(line)))
    say(f"\npip install -e {escape(str(folder))}\n"
        f"claw plugin check {names.name}\n"
        f"claw train --plugin {names.name}")


def list_plugins() -> None:
    """Print the installed plugins, without importing any."""
    rows = [f"{f.name:<12} {f.distribution} {f.version}" for f in registry.installed()]
    say(escape("\n".join(rows)) or "no plugin is installed; begin one: claw plugin new NAME")


def check_plugin(name: str, words: list[str], *, max_tasks: int, as_json: bool) -> bool:
    """Run the conformance kit; return whether the plugin passed."""
    from claw.sdk.testing import check

    if name not in [f.name for f in registry.installed()]:
        registry.load(name)  # says what there is
    config = read_config(words, "", "")
    report = check(name, config.plugin.get(name), max_tasks=max_tasks)
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return report.passed
    for criterion in report.criteria:
        say(escape("\n".join(criterion.lines())))
    counts = f"{len(report.criteria)} criteria, {len(report.broken())} broken"
    say(f"\n{name} {report.version}: {'passed' if report.passed else 'failed'} ({counts})")
    return report.passed


# --- tasks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """The tasks that a name or a path means, and the plugin that plays them."""

    plugin: Plugin
    settings: Any
    config: RunConfig
    tasks: Iterable[tuple[str, Task]]
    """(split, task); the split of tasks in a folder is its name"""


def find_tasks(target: str, plugin: str, words: list[str], split: str) -> Found:
    """Return the tasks of a plugin by its name, or of a file or folder by its path."""
    names = [f.name for f in registry.installed()]
    is_path = bool(plugin) or (target not in names and (os.sep in target or Path(target).exists()))
    if is_path:
        return _read(Path(target), [plugin] if plugin else names, words)
    if split and split not in SPLITS:
        raise UsageError("no such split", found=split, allowed=", ".join(SPLITS),
                         do=nearest(split, list(SPLITS)))
    loaded = registry.load(target)
    if not loaded.has("claw_tasks"):
        raise UsageError(f"plugin {target!r} plays no tasks", found="it has no claw_tasks")
    config = read_config(words, target, "")
    settings = loaded.settings(config.plugin.get(target, {}))
    return Found(loaded, settings, config, _of_splits(loaded, settings, split))


def _of_splits(plugin: Plugin, settings: Any, split: str) -> Iterator[tuple[str, Task]]:
    for name in [split] if split else SPLITS:
        for task in plugin.hook.claw_tasks(config=settings, split=name) or ():
            yield name, task


def _read(path: Path, names: list[str], words: list[str]) -> Found:
    """Ask each plugin that reads task folders; exactly one may know this one."""
    if not path.exists():
        raise UsageError("no such plugin, file or folder", found=str(path),
                         allowed=f"installed: {', '.join(names) or 'none'}")
    found, asked = [], []
    for name in names:
        loaded = registry.load(name)
        if not loaded.has("claw_read_tasks"):
            continue
        asked.append(name)
        config = read_config(words, name, "")
        settings = loaded.settings(config.plugin.get(name, {}))
        tasks = loaded.hook.claw_read_tasks(path=path, config=settings)
        if tasks is not None:
            found.append(Found(loaded, settings, config, [(path.name, task) for task in tasks]))
    if len(found) != 1:
        raise UsageError(
            f"{'more than one' if found else 'no'} plugin reads these tasks",
            found=f"{path}; asked: {', '.join(asked) or 'none, no plugin here reads folders'}"
            if not found else ", ".join(one.plugin.name for one in found),
            allowed="a format that exactly one of them knows",
            do="install the plugin of this format (pip install claw-env-terminal reads Harbor's)"
            if not found else "name one with --plugin",
        )
    return found[0]


def list_tasks(target: str, plugin: str, words: list[str], split: str, limit: int) -> None:
    """Print split, id and first words of every task."""
    found = find_tasks(target, plugin, words, split)
    rows = [(name, task.id, _request(task)) for name, task in _first(found.tasks, limit)]
    wide = max((len(id) for _, id, _ in rows), default=0)
    for name, id, text in rows:
        say(escape(f"{name:<6} {id:<{wide}}  {cut(text, FIRST_WORDS)}"))
    say(f"{len(rows)} tasks" if rows else "no tasks")


def inspect_task(target: str, plugin: str, words: list[str], id: str, *, answer: bool) -> None:
    """Start the task's environment, and print what the policy sees first."""
    found = find_tasks(target, plugin, words, "")
    split, task = _named(found, id)
    messages, tools = asyncio.run(_begin(found, task))
    say(escape(f"task     {task.id} ({split})\nmetadata {json.dumps(task.metadata, default=repr)}"))
    for tool in tools:
        say(escape(f"tool     {json.dumps(tool.get('function', tool))}"))
    for message in messages:
        say(escape(f"\n[{message['role']}]\n{_text(message)}"))
    if answer:
        say(escape(f"\nanswer   {json.dumps(task.answer, default=repr)}"))


def _named(found: Found, id: str) -> tuple[str, Task]:
    known = []
    for split, task in found.tasks:
        if task.id == id:
            return split, task
        known.append(task.id)
    raise UsageError(f"no task {id!r}", found=nearest(id, known) or f"{len(known)} others",
                     do="see its ids: claw env list")


async def _begin(found: Found, task: Task) -> tuple[list[Message], list[dict[str, Any]]]:
    from claw.sdk.testing.attempt import Attempt

    attempt = Attempt(found.plugin, found.settings, task)
    try:
        return await attempt.start(), list(getattr(attempt.env, "tools", ()))
    finally:
        await attempt.close()


def prove_tasks(
    target: str, plugin: str, words: list[str], split: str, limit: int, *, as_json: bool
) -> bool:
    """Prove tasks, `rollout.parallel` at once; return whether every one is proved."""
    found = find_tasks(target, plugin, words, split)
    proofs = asyncio.run(_proofs(found, limit, quiet=as_json))
    if not proofs:
        raise UsageError("no tasks to prove", found=target, do=f"claw env list {target}")
    broken = sum(bool(proof["problem"]) for proof in proofs)
    if as_json:
        print(json.dumps({"plugin": found.plugin.name, "passed": not broken, "tasks": proofs}))
    else:
        say(f"\n{len(proofs)} tasks, {broken} not proved")
    return not broken


async def _proofs(found: Found, limit: int, *, quiet: bool) -> list[dict[str, Any]]:
    from claw.sdk.testing import prove

    proofs: list[dict[str, Any]] = []
    tasks = iter(_first(found.tasks, limit))

    async def work() -> None:
        while (item := next(tasks, None)) is not None:
            proof = await prove(found.plugin, found.settings, item[1])
            proofs.append({"split": item[0], **asdict(proof)})
            if not quiet:
                say(escape(_proof_line(proofs[-1])))

    async with asyncio.TaskGroup() as running:
        for _ in range(found.config.rollout.parallel):
            running.create_task(work())
    return proofs


def _proof_line(proof: dict[str, Any]) -> str:
    mark = "FAIL" if proof["problem"] else "ok  "
    gold, empty = ("-" if proof[n] is None else f"{proof[n]:g}" for n in ("gold", "empty"))
    line = f"{mark} {proof['split']:<6} {proof['task']}  gold {gold}  empty {empty}"
    return f"{line}\n       {proof['problem']}" if proof["problem"] else line


def _first(tasks: Iterable[tuple[str, Task]], limit: int) -> Iterable[tuple[str, Task]]:
    return itertools.islice(tasks, limit) if limit else tasks


def _request(task: Task) -> str:
    return _text(task.messages[-1]) if task.messages else str(task.metadata)


def _text(message: Message) -> str:
    content = message.get("content")
    said = content if isinstance(content, str) else json.dumps(content, default=repr)
    return "".join(c if c.isprintable() or c == "\n" else " " for c in said)


