"""What a person does not want to be learned from: a time, or a conversation.

Owns: pauses and excluded conversations, in the journal, and whether a turn falls under one.
Does not own: what becomes of such a turn (it is skipped with the reason given here).

What is said in a pause is answered as always and teaches nothing, then or later; no step starts
until the pause is over.
"""

import json
import time
from collections.abc import Callable

from claw.engine.actor.journal import Journal
from claw.records import Turn

PAUSED, NEVER = "paused", "never_learn"
MAX_PAUSE_S = 366 * 86400.0
MAX_PAUSES = 1000
"""newest pauses that are remembered; a turn is judged within hours of being said"""


class Consent:
    """The pauses and excluded conversations of a run."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self._journal, self._clock = journal, clock
        self._pauses: list[tuple[str, float, float]] = [
            (str(owner), float(begin), float(end))
            for owner, begin, end in json.loads(journal.meta("pauses") or "[]")
        ]
        self._never: set[str] = set(json.loads(journal.meta("never") or "[]"))

    def pause(self, owner: str, seconds: float) -> float:
        """Learn nothing of this owner for so long, from now; 0 ends a pause. Return its end."""
        now = self._clock()
        until = now + min(max(seconds, 0.0), MAX_PAUSE_S)
        # one that runs now ends here, and the new one takes over
        kept = [(o, b, min(e, now) if o == owner else e) for o, b, e in self._pauses]
        if seconds > 0:
            kept.append((owner, now, until))
        self._pauses = kept[-MAX_PAUSES:]
        self._journal.put_meta("pauses", json.dumps(self._pauses))
        return until if seconds > 0 else 0.0

    def paused_until(self, owner: str) -> float:
        """Return when the owner's pause ends; 0 while there is none."""
        now = self._clock()
        return max((e for o, b, e in self._pauses if o == owner and b <= now < e), default=0.0)

    def exclude(self, trace_id: str, *, is_excluded: bool = True) -> None:
        """Never learn from this conversation (or do again)."""
        (self._never.add if is_excluded else self._never.discard)(trace_id)
        self._journal.put_meta("never", json.dumps(sorted(self._never)))

    def excludes(self, trace_id: str) -> bool:
        return trace_id in self._never

    def refusal(self, turn: Turn) -> str:
        """Return why nothing may be learned of a turn, or nothing: it may."""
        if turn.trace_id in self._never:
            return NEVER
        was_paused = any(
            o == turn.owner and b <= turn.created < e for o, b, e in self._pauses
        )
        return PAUSED if was_paused or self.paused_until(turn.owner) else ""
