"""Forgetting a conversation: what goes, and which versions have learned from it.

Owns: finding the conversation, the versions it has influenced, removing it from the journal.
Does not own: memory of a running actor (`parts.py`), going back to an older version (the trainer).
"""

from dataclasses import dataclass
from typing import Any

from claw.engine.actor.journal import Journal
from claw.records import Version, VersionStatus

RESPONSE = "chatcmpl-"
_GOOD = (VersionStatus.PUBLISHED, VersionStatus.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Influence:
    """Where what was learned from some turns is now."""

    learned: tuple[int, ...] = ()
    """versions whose step trained one of the turns"""
    carried: tuple[int, ...] = ()
    """published versions that are made from one of those, themselves included"""
    back_to: int | None = None
    """the newest version before them; None when nothing was learned"""
    in_step: int = 0
    """samples that a step has in hand just now"""

    def fields(self) -> dict[str, Any]:
        return {"learned": list(self.learned), "carried": list(self.carried),
                "back_to": self.back_to, "in_step": self.in_step}


def traces(journal: Journal, name: str, owner: str) -> list[str]:
    """Return the conversations of a session name, trace id, turn id or response id, and those of
    the sub-agents that were asked for in them: what these say is made of the same words."""
    return journal.descendants(_named(journal, name, owner))


def _named(journal: Journal, name: str, owner: str) -> list[str]:
    if found := journal.traces_named(name, owner):
        return found
    rows = journal.read(
        "SELECT tr.id FROM turns t JOIN traces tr ON tr.id = t.trace_id"
        " WHERE t.id=? AND tr.owner=?",
        name.removeprefix(RESPONSE), owner,
    )
    return [id for (id,) in rows]


def influence(journal: Journal, trace_ids: list[str], owner: str) -> Influence:
    """Return which versions have learned from these conversations."""
    learned: set[int] = set()
    in_step = 0
    for trace_id in trace_ids:
        rows = journal.read(
            "SELECT s.state, l.version FROM samples s JOIN turns t ON t.id = s.turn_id"
            " LEFT JOIN leases l ON l.id = s.lease_id"
            " WHERE t.trace_id=? AND s.state IN ('trained', 'leased')", trace_id,
        )
        learned |= {int(v) for state, v in rows if state == "trained" and v is not None}
        in_step += sum(state == "leased" for state, _ in rows)
    versions = {v.number: v for v in journal.versions() if v.owner == owner}
    tainted = {n for n in versions if _descends(versions, n, learned)}
    served = {n for n in tainted if versions[n].status is VersionStatus.PUBLISHED}
    before = [n for n, v in versions.items() if v.status in _GOOD and n not in tainted
              and learned and n < min(learned)]
    return Influence(tuple(sorted(learned)), tuple(sorted(served)),
                     max(before, default=0) if learned else None, in_step)


def _descends(versions: dict[int, Version], number: int, learned: set[int]) -> bool:
    at: int | None = number
    while at is not None:
        if at in learned:
            return True
        at = versions[at].parent if at in versions else None
    return False


def forget(journal: Journal, trace_ids: list[str]) -> int:
    """Remove these conversations and all derived from them; return the number of turns."""
    return sum(journal.forget(trace_id) for trace_id in trace_ids)
