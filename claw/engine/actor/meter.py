"""What each person used lately, and whether they may ask for more now.

Owns: counts of the last minute and the last day, and the refusal when one is over its limit.
Does not own: the limits (engine.people), how many requests the workers take (policy).

A request is counted when it begins, with the longest reply that it may get, and corrected when it
ends: so many at once cannot all slip in under one limit. After a restart the day is read from the
journal; what was forgotten there, or broke off, no longer counts.
"""

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from claw.engine.actor.journal import Journal
from claw.engine.people import People
from claw.records import DEFAULT_OWNER
from claw.sdk.app import EngineError

MINUTE_S, DAY_S = 60.0, 86400.0


@dataclass(eq=False)
class Charge:
    """The tokens of one request."""

    at: float
    tokens: int


@dataclass(eq=False)
class Use:
    """Of one person."""

    charges: deque[Charge] = field(default_factory=deque)
    """of the last day, oldest first"""

    def tokens(self) -> int:
        return sum(charge.tokens for charge in self.charges)


class Meter:
    """Counts per person, whether they have a limit or not: what they use is shown."""

    def __init__(
        self, people: People, journal: Journal, clock: Callable[[], float] = time.time
    ) -> None:
        self._people, self._journal, self._clock = people, journal, clock
        self._uses: dict[str, Use] = {}

    def begin(self, owner: str, tokens: int) -> Charge | None:
        """Count a request of at most so many tokens; EngineError 429: not now, 403: paused.

        None: the run's own key, which has no limit, or nobody of the run's people.
        """
        person = self._people.named(owner)
        if person is None or owner == DEFAULT_OWNER:
            return None
        if person.is_paused:
            raise EngineError(403, "The budget of this key is paused; the administrator of the run "
                              "lets it go on.", type="permission_error", code="budget_paused")
        use, now = self._use(owner), self._clock()
        minute = [c.at for c in use.charges if c.at > now - MINUTE_S]
        if 0 < person.requests_per_minute <= len(minute):
            raise _refusal(f"{person.requests_per_minute} requests a minute", "requests",
                           minute[0] + MINUTE_S - now)
        if 0 < person.tokens_per_day <= (used := use.tokens()):
            raise _refusal(f"{person.tokens_per_day} tokens a day, and {used} are used", "tokens",
                           _until(use, used - person.tokens_per_day) + DAY_S - now)
        use.charges.append(Charge(now, tokens))
        return use.charges[-1]

    def used(self, owner: str) -> int:
        """Tokens of the last day."""
        return self._use(owner).tokens()

    def _use(self, owner: str) -> Use:
        if owner not in self._uses:
            self._uses[owner] = self._recall(owner)
        use, oldest = self._uses[owner], self._clock() - DAY_S
        while use.charges and use.charges[0].at <= oldest:
            use.charges.popleft()
        return use

    def _recall(self, owner: str) -> Use:
        """The day as the journal has it."""
        tokens: dict[str, Charge] = {}
        for id, at, shape in self._journal.read(
            "SELECT t.id, t.created, a.shape FROM turns t JOIN traces tr ON tr.id=t.trace_id"
            " JOIN arrays a ON a.record=t.id AND a.name IN ('prompt_ids', 'completion.ids')"
            " WHERE tr.owner=? AND t.created>? ORDER BY t.created", owner, self._clock() - DAY_S,
        ):
            tokens.setdefault(id, Charge(at, 0)).tokens += int(json.loads(shape)[0])
        return Use(deque(tokens.values()))


def _until(use: Use, over: int) -> float:
    """When the request was made whose end brings the sum under the limit: `over` is what is too
    much."""
    gone = 0
    for charge in use.charges:
        gone += charge.tokens
        if gone > over:
            return charge.at
    return use.charges[-1].at


def _refusal(limit: str, of: str, wait_s: float) -> EngineError:
    return EngineError(429, f"This key may use {limit}. Try again in {max(wait_s, 1):.0f} s.",
                       type=of, code="rate_limit_exceeded", retry_after_s=max(wait_s, 1.0))
