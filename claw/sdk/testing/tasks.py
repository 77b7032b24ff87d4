"""Group 3: its tasks can be listed, named, stored, and keep their answers to themselves."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from claw.records import Task
from claw.sdk.testing.attempt import Attempt
from claw.sdk.testing.messages import text_of
from claw.sdk.testing.subject import MAX_LISTED, Subject

MIN_LEAK = 4
"""characters of an answer that is looked for in the first messages; shorter ones occur by chance"""


async def tasks(s: Subject) -> None:
    """Group 3."""
    said = "it has tasks"
    found = await s.attempt("3.some", said, _listed(s))
    if found is None:
        return
    if not s.hold("3.some", said, bool(found), expected="at least one task in train or eval",
                  actual="none", do="return some from claw_tasks(config, split)"):
        return
    again = await s.attempt("3.stable", "tasks are listed twice alike", _listed(s))
    _ids(s, found, again or [])
    for task in found[: s.max_tasks]:
        _round_trip(s, task)
        await _secret(s, task)


async def _listed(s: Subject) -> list[Task]:
    return [*s.listed("train"), *s.listed("eval")]


def _ids(s: Subject, found: list[Task], again: list[Task]) -> None:
    named = all(isinstance(task, Task) and isinstance(task.id, str) and task.id for task in found)
    if not s.hold("3.named", "every task is a Task with an id", named, expected="Task(id=...)",
                  actual=found[0]):
        return
    twice = [id for id, count in Counter(task.id for task in found).items() if count > 1]
    s.hold("3.unique", f"ids are unique over both splits (first {MAX_LISTED} of each)", not twice,
           expected="each id once", actual=twice[:5],
           do="name the split in the id, or keep held-out tasks out of train")
    ids, ids_again = [task.id for task in found], [task.id for task in again]
    moved = [a for a, b in zip(ids, ids_again, strict=False) if a != b]
    s.hold("3.stable", "listing the tasks again gives the same ids in the same order",
           ids == ids_again, expected=f"{len(ids)} ids", actual=moved[:5] or len(ids_again),
           do="draw tasks from a seed of the settings")


def _round_trip(s: Subject, task: Task) -> None:
    said = "a task survives JSON"
    plain = dataclasses.asdict(task)
    try:
        back = json.loads(json.dumps(plain, allow_nan=False))
    except (TypeError, ValueError) as error:
        s.hold("3.json", said, False, task=task.id, expected="plain values only", actual=error)
        return
    same = _plain(plain) == back
    s.hold("3.json", said, same, task=task.id, expected=plain, actual=back,
           do="text keys, lists, numbers and text only")


def _plain(value: Any) -> Any:
    """Tuples become lists, as JSON makes them; nothing else changes."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


async def _secret(s: Subject, task: Task) -> None:
    said = "the private answer is not in the first messages"
    secrets = [text for text in _texts(task.answer) if len(text) >= MIN_LEAK]
    if not secrets or task.metadata.get("answer_shown"):
        s.hold("3.secret", said, None, task=task.id)
        return
    first = await s.attempt("3.secret", said, _first(s, task), task.id)
    if first is None:
        return
    seen = "\n".join(text_of(message) for message in [*task.messages, *first])
    leaks = [text for text in secrets if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", seen)]
    s.hold("3.secret", said, not leaks, task=task.id, expected="no part of task.answer",
           actual=leaks[:3],
           do='where it must be shown (a choice of several): metadata={"answer_shown": True}')


async def _first(s: Subject, task: Task) -> list[Any]:
    attempt = Attempt(s.plugin, s.settings, task)
    try:
        return await attempt.start()
    finally:
        await attempt.close()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
