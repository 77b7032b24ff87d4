"""One answer as a stream of events, heard by one asker or, after a retry, by several.

Owns: keeping the events until every asker has them. Does not own: making them (`gateway.py`).
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from claw.sdk.app import EngineError


@dataclass(eq=False)
class Answer:
    """The events `turn.start`, `turn.text`..., `turn.done` or `turn.error` of one turn."""

    turn_id: str
    reports: bool = False
    """whether each token is told with its log-prob"""
    tells_calls: bool = False
    """whether tool calls are told piece by piece"""
    one_call: bool = False
    """whether the reply ends with its first tool call"""
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """bounded by the reply's max_tokens"""
    task: asyncio.Task[None] | None = None
    askers: int = 0
    over_at: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, type: str, /, **fields: Any) -> None:
        self.events.append((type, fields))
        if type in ("turn.done", "turn.error"):
            self.over_at = time.monotonic()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def fail(self, error: EngineError) -> None:
        if not self.over_at:
            self.add("turn.error", **error_fields(error))

    async def hear(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield all events from the start until the answer is over.

        When the last asker leaves early, the generation is cancelled.
        """
        self.askers += 1
        given = 0
        try:
            while True:
                changed = self._changed
                while given < len(self.events):
                    given += 1
                    yield self.events[given - 1]
                if self.over_at:
                    return
                await changed.wait()  # the generation has a deadline
        finally:
            self.askers -= 1
            if not self.askers and not self.over_at and self.task is not None:
                self.task.cancel()


def error_fields(error: EngineError) -> dict[str, Any]:
    return {
        "status": error.status, "message": error.message, "type": error.type,
        "code": error.code, "param": error.param, "retry_after_s": error.retry_after_s,
    }
