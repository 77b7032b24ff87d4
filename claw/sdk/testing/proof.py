"""Prove one task: the gold solution gets an outcome of 1, a policy that says nothing gets no more
than 0.

Owns: what counts as proved, and the words for what is wrong.
Does not own: which tasks, how many at once, printing (`claw env check`).
"""

from dataclasses import dataclass

from claw.records import Task
from claw.sdk.registry import Plugin
from claw.sdk.testing.attempt import play, play_gold, silent
from claw.sdk.testing.criteria import told

SOLVED = 1.0
NOTHING = 0.0


@dataclass(frozen=True, slots=True)
class Proof:
    """What the two policies got. `problem` is empty when the task is proved."""

    task: str
    gold: float | None = None
    empty: float | None = None
    problem: str = ""


async def prove(plugin: Plugin, settings: object, task: Task) -> Proof:
    """Play both policies; whatever fails is told in `problem`."""
    gold = empty = None
    try:
        played = await play_gold(plugin, settings, task)
        if played is None:
            return Proof(task.id, problem=no_gold(plugin))
        gold = played.outcome
        empty = (await play(plugin, settings, task, silent)).outcome
    except Exception as error:  # a task that breaks is a finding, and stops no other
        return Proof(task.id, gold, empty, told(error))
    return Proof(task.id, gold, empty, _problem(gold, empty))


def no_gold(plugin: Plugin) -> str:
    """Why there is no gold solution, and how there would be one."""
    if plugin.has("claw_gold"):
        return "claw_gold returned None for this task: nothing says how it is solved"
    return f"plugin {plugin.name!r} has no claw_gold hook: nothing says how its tasks are solved"


def _problem(gold: float | None, empty: float | None) -> str:
    if gold is None or empty is None:
        return "no judge gave an outcome (Verdict.number of the last turn)"
    if gold < SOLVED:
        return f"the gold solution got {gold:g}, not {SOLVED:g}"
    if empty > NOTHING:
        return f"a policy that says nothing got {empty:g}, more than {NOTHING:g}"
    return ""
