"""Groups 6 and 8: judges tell gold from nothing, the same again, and from a stored trace too."""

import dataclasses
import json
from typing import Any

from claw.records import Task
from claw.sdk.judging import Case, Verdict
from claw.sdk.testing.attempt import Played, judges, play, play_gold, silent
from claw.sdk.testing.environment import GARBAGE
from claw.sdk.testing.proof import NOTHING, SOLVED, no_gold
from claw.sdk.testing.subject import Subject

MAX_TRACE = 16 << 20
MAX_MESSAGE = 1 << 20
"""bytes of JSON; observations are cut, not stored whole"""


async def judged(s: Subject) -> None:
    """Group 6."""
    made = await s.attempt("6.judges", "claw_judges returns judges", _made(s))
    if made is None:
        return
    for judge in made:
        fits = isinstance(getattr(judge, "name", None), str) and callable(
            getattr(judge, "judge", None))
        s.hold("6.judges", "a judge has a name and an async judge(case)", fits, actual=judge)
    for task in s.tasks():
        await _gold(s, task)
        await _other(s, task, "nothing", silent)
        await _other(s, task, "garbage", lambda _: GARBAGE)


async def _made(s: Subject) -> list[Any]:
    return judges(s.plugin, s.settings)


async def _gold(s: Subject, task: Task) -> None:
    said = "the gold solution passes"
    if not s.plugin.has("claw_gold"):
        s.hold("6.gold", said, None, task=task.id, actual=no_gold(s.plugin),
               do="implement claw_gold")
        return
    played = await s.attempt("6.gold", said, _gold_played(s, task), task.id)
    if played is None or played[0] is None:
        if played is not None:
            s.hold("6.gold", said, None, task=task.id, actual=no_gold(s.plugin))
        return
    one = played[0]
    s.hold("6.gold", said, one.outcome is not None and one.outcome >= SOLVED, task=task.id,
           expected=f"an outcome of {SOLVED:g}", actual=_why(one))


async def _gold_played(s: Subject, task: Task) -> tuple[Played | None]:
    return (await play_gold(s.plugin, s.settings, task),)


async def _other(s: Subject, task: Task, name: str, policy: Any) -> None:
    said = f"a policy that says {name} is judged, and fails"
    played = await s.attempt("6.fails", said, play(s.plugin, s.settings, task, policy),
                             task.id)
    if played is None or not judges(s.plugin, s.settings):
        return
    outcome = played.outcome
    s.hold("6.fails", said, outcome is not None and outcome <= NOTHING, task=task.id,
           expected=f"an outcome of {NOTHING:g} or less", actual=_why(played),
           required=name == "nothing")


def _why(played: Played) -> str:
    if played.outcome is None:
        return "no judge gave a number for the last turn"
    reasons = [v.reason for v in played.verdicts[-1].values() if v.reason]
    return f"{played.outcome:g} ({'; '.join(reasons) or 'no reason given'})"


# --- 8: stored -----------------------------------------------------------------------------------


async def stored(s: Subject) -> None:
    """Group 8."""
    for task in s.tasks():
        said = "an episode can be stored and read again"
        played = await s.attempt("8.stored", said, _played(s, task), task.id)
        if played is None:
            continue
        try:
            text = json.dumps(_plain(played), allow_nan=False)
        except (TypeError, ValueError) as error:
            s.hold("8.stored", said, False, task=task.id, actual=error,
                   expected="messages and verdicts of plain values")
            continue
        s.hold("8.stored", said, True, task=task.id)
        _sizes(s, task, text, played)
        await _again(s, task, played, json.loads(text))


async def _played(s: Subject, task: Task) -> Played:
    found = await play_gold(s.plugin, s.settings, task)
    return found or await play(s.plugin, s.settings, task, silent)


def _plain(played: Played) -> dict[str, Any]:
    return {
        "task": dataclasses.asdict(played.task),
        "turns": [
            {"request": list(case.request), "reply": case.reply,
             "next_state": list(case.next_state),
             "verdicts": {name: _verdict(v) for name, v in verdicts.items()}}
            for case, verdicts in zip(played.cases, played.verdicts, strict=True)
        ],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(verdict)))
    return plain


def _sizes(s: Subject, task: Task, text: str, played: Played) -> None:
    largest = max(len(json.dumps(message)) for message in played.messages)
    s.hold("8.size", "messages and the whole episode have a reasonable size",
           largest <= MAX_MESSAGE and len(text) <= MAX_TRACE, task=task.id,
           expected=f"{MAX_MESSAGE} bytes a message, {MAX_TRACE} an episode",
           actual=f"{largest} and {len(text)}", do="cut observations, keep head and tail")


async def _again(s: Subject, task: Task, played: Played, back: dict[str, Any]) -> None:
    said = "judged again from the stored episode, the verdicts are the same"
    same, stored_task = "", Task(**(back["task"] | {
        "messages": tuple(back["task"]["messages"]), "tools": tuple(back["task"]["tools"]),
    }))
    for index, turn in enumerate(back["turns"]):
        case = Case(
            played.cases[index].turn_id, tuple(turn["request"]), turn["reply"],
            tuple(turn["next_state"]), stored_task, index == len(back["turns"]) - 1,
            {"index": index},
        )
        for judge in judges(s.plugin, s.settings):
            verdict = await s.attempt("8.again", said, judge.judge(case), task.id)
            if verdict is None:
                return
            before = turn["verdicts"][judge.name]
            if _verdict(verdict) != before and not _abstains(verdict):
                same = same or f"turn {index}, judge {judge.name}: {before}, then {verdict}"
    s.hold("8.again", said, not same, task=task.id, actual=same,
           expected="the same, or an abstention with a reason where the environment is needed")


def _abstains(verdict: Verdict) -> bool:
    return verdict.vote is None and verdict.number is None and bool(verdict.reason)


