"""The nine groups of the conformance kit, and running them.

Owns: the table of groups and their order.
Does not own: any check (each group's file), printing (`claw plugin check`), pytest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from claw.errors import UsageError
from claw.sdk import registry
from claw.sdk.registry import Plugin
from claw.sdk.testing import environment, judging, registering, tasks
from claw.sdk.testing.criteria import Report, told
from claw.sdk.testing.groups import GROUPS
from claw.sdk.testing.subject import Subject

Group = Callable[[Subject], Awaitable[None]]
CHECKS: dict[str, Group] = {
    "registers": registering.registers,
    "imports": registering.imports,
    "tasks": tasks.tasks,
    "starts": environment.starts,
    "ends": environment.ends,
    "judged": judging.judged,
    "together": environment.together,
    "stored": judging.stored,
    "settings": registering.settings,
}
OF_TASKS = ("tasks", "starts", "ends", "judged", "together", "stored")
assert tuple(CHECKS) == GROUPS


def check(
    plugin: str | Plugin, settings: dict[str, Any] | None = None, *,
    groups: Iterable[str] = GROUPS, max_tasks: int = 3,
) -> Report:
    """Run groups of checks on a plugin, and return every criterion that was looked at.

    `settings` are the plugin's own, as in `[plugin.NAME]`; the first `max_tasks` tasks are played.
    """
    subject = Subject(plugin, settings, max_tasks)
    asyncio.run(_run(subject, list(groups)))
    found = [f.version for f in registry.installed() if f.name == subject.name]
    version = found[0] if found and subject.is_installed else ""
    return Report(subject.name, version, subject.criteria)


async def _run(subject: Subject, names: list[str]) -> None:
    for name in names:
        if name not in CHECKS:
            raise UsageError("no such group of checks", found=name, allowed=", ".join(GROUPS))
        if not _can_load(subject):
            if name == "registers":
                await CHECKS[name](subject)
            continue
        if name in OF_TASKS and not subject.has_tasks:
            subject.hold(f"{GROUPS.index(name) + 1}.{name}", "it plays no tasks", None)
            continue
        try:
            await CHECKS[name](subject)
        except Exception as error:  # whatever a plugin raises is a finding about the plugin
            subject.hold(f"{GROUPS.index(name) + 1}.{name}", "the checks could be made", False,
                         actual=told(error))


def _can_load(subject: Subject) -> bool:
    try:
        return subject.plugin is not None
    except UsageError:
        return False
