"""Prove one task: the gold solution gets an outcome of 1, a policy that says nothing gets no more
than 0.

Owns: what counts as proved, and the words for what is wrong.
Does not own: which tasks, how many at once, printing (`claw env check`).
"""

from dataclasses import dataclass

from claw.records import Task
from claw.sdk.registry import Plugin
from claw.sdk.testing.attempt import Played, play, play_gold, silent
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
    played = silence = None
    try:
        played = await play_gold(plugin, settings, task)
        if played is None:
            return Proof(task.id, problem=no_gold(plugin))
        silence = await play(plugin, settings, task, silent)
    except Exception as error:  # a task that breaks is a finding, and stops no other
        return Proof(task.id, played.outcome if played else None, problem=told(error))
    return Proof(task.id, played.outcome, silence.outcome, _problem(played, silence))


def no_gold(plugin: Plugin) -> str:
    """Why there is no gold solution, and how there would be one."""
    if plugin.has("claw_gold"):
        return "claw_gold returned None for this task: nothing says how it is solved"
    return f"plugin {plugin.name!r} has no claw_gold hook: nothing says how its tasks are solved"


def _problem(gold: Played, empty: Played) -> str:
    if gold.outcome is None or empty.outcome is None:
        return "no judge gave an outcome (Verdict.number of the last turn)"
    if gold.outcome < SOLVED:
        return f"the gold solution got {gold.outcome:g}, not {SOLVED:g}{_why(gold)}"
    if empty.outcome > NOTHING:
        return (f"a policy that says nothing got {empty.outcome:g}, more than {NOTHING:g}"
                f"{_why(empty)}")
    return ""


def _why(played: Played) -> str:
    """What the judges said of the last turn."""
    last = played.verdicts[-1].values() if played.verdicts else ()
    reasons = [verdict.reason for verdict in last if verdict.reason]
    return f": {'; '.join(reasons)}" if reasons else ""
