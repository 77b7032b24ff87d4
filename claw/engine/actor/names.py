"""By which mark do clients name their conversations, and do those that could?

Owns: the counters, the warning. Does not own: reading the marks (the plugin), matching by content
(`session.py`).
"""

from collections import Counter

from claw.engine.actor import speech
from claw.sdk.app import Ask

NOT_NAMED = "content"
"""the rule for a client that names nothing: the messages themselves"""
_WEAK = (NOT_NAMED, "user")
"""marks that do not tell one conversation of a client from another"""


class Names:
    """Counts requests by the mark that named their conversation."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._num_unnamed = 0

    def count(self, ask: Ask) -> None:
        by = mark_of(ask)
        self.counts[by] += 1
        self._num_unnamed += by in _WEAK and _is_openclaw(ask)

    def warning(self) -> str:
        """Return a warning when an agent that has session ids does not send them."""
        if not self._num_unnamed:
            return ""
        return (f"{self._num_unnamed} requests of OpenClaw named no session, so that a rewritten "
                "history becomes a new conversation; set compat.sendSessionAffinityHeaders, or "
                "install the plugin: claw serve --openclaw prints both")


def mark_of(ask: Ask) -> str:
    """Return by which mark a request names its conversation."""
    return ask.named_by or ("name" if ask.session else NOT_NAMED)


def _is_openclaw(ask: Ask) -> bool:
    return any("openclaw:attempt" in speech.text(m.get("content"))[:200] for m in ask.messages[:1])
