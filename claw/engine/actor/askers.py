"""Whose turns were they, and why has nothing been learned yet? Counted over a person's newest ones.

Owns: the counts by rule, by mark and by what became of them, and the cause in words.
Does not own: the rules (`kind.py`), the marks (`names.py`), the list of turns (`views.py`).
"""

import json
from collections import Counter
from typing import Any

from claw.engine.actor.journal import Journal
from claw.records import TurnKind, TurnState

NEWEST = 5000
"""turns that are counted"""
LEARNS = (TurnState.QUEUED, TurnState.TRAINED)
MAY_LEARN = (TurnState.OPEN, TurnState.WAITING, TurnState.JUDGING)


def counted(journal: Journal, owner: str) -> dict[str, Any]:
    """Return how a person's newest requests were understood, and what became of them."""
    kinds, named, placed, left = (Counter[str]() for _ in range(4))
    of_kind, states = Counter[str](), Counter[str]()
    for kind, state, reason, render in journal.read(
        "SELECT t.kind, t.state, t.reason, t.render FROM turns t JOIN traces tr ON"
        " tr.id=t.trace_id WHERE tr.owner=? AND t.state!=? ORDER BY t.rowid DESC LIMIT ?",
        owner, str(TurnState.FORGOTTEN), NEWEST,
    ):
        made = json.loads(render)
        of_kind[kind] += 1
        states[state] += 1
        kinds[made.get("kind") or f"{kind}: not noted"] += 1
        placed[made.get("place") or "not noted"] += 1
        named[made.get("named_by") or "not noted"] += 1
        if state == TurnState.SKIPPED:
            left[reason.split(":")[0]] += 1
    total = of_kind.total()
    return {
        "total": total, "main": of_kind[TurnKind.MAIN], "side": of_kind[TurnKind.SIDE],
        "kinds": dict(kinds.most_common()), "named_by": dict(named.most_common()),
        "found_by": dict(placed.most_common()), "skipped": dict(left.most_common()),
        "trouble": _trouble(of_kind, states, kinds, left),
    }


def _trouble(
    of_kind: Counter[str], states: Counter[str], kinds: Counter[str], left: Counter[str]
) -> str:
    """Why none of the requests taught anything; nothing while one did, or still may."""
    total = of_kind.total()
    if not total or any(states[state] for state in LEARNS):
        return ""
    if not of_kind[TurnKind.MAIN]:
        return (f"{total} requests, none trainable: every one was a side turn ({_said(kinds)}). "
                "Look at the turn type that the client sends.")
    if any(states[state] for state in MAY_LEARN):
        return ""
    return f"{total} requests, none trainable: {_said(left)}."


def _said(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {_WHY.get(what, what)}" for what, n in counts.most_common())


_WHY = {
    "side": "side turns", "no_next_state": "that nothing followed",
    "abstained": "on which the judge abstained", "paused": "said in a pause",
    "never_learn": "of conversations that are never learned from",
    "quarantine": "held back until you have looked", "interrupted": "interrupted",
    "cancelled": "cancelled by the client",
}
"""reasons of skipped turns in words"""
