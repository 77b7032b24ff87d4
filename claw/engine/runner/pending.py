"""One request that waits for its answers.

Owns: a bounded inbox with a deadline on every wait.
Does not own: the socket, what the answers mean.
"""

import asyncio
from collections import deque

from claw.engine.wire import Message
from claw.sdk import EngineError

MAX_WAITING = 8192
"""answers that may wait for a slow reader before its request ends"""


def unavailable(why: str, retry_after_s: float = 5.0) -> EngineError:
    """The 503 of a run whose actor cannot be asked now."""
    return EngineError(
        503, why, type="server_error", code="engine_unavailable", retry_after_s=retry_after_s
    )


class Pending:
    """What was sent, kept so that it can be sent again, and what came back."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.may_be_lost = False
        """sent over a connection; what is sent without one waits in the socket for the next"""
        self._waiting: deque[Message] = deque()
        self._error: EngineError | None = None
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, message: Message) -> None:
        """Take one answer; a reader that leaves too many waiting loses its request."""
        if len(self._waiting) >= MAX_WAITING:
            self.fail(unavailable("the answer was read too slowly"))
        elif self._error is None:
            self._waiting.append(message)
            self._news.set()

    def fail(self, error: EngineError) -> None:
        """End the request; answers that came before are still read."""
        self._error = self._error or error
        self._news.set()

    async def following(self, until: float) -> Message:
        """Return the next answer; raise TimeoutError when `until` (the loop's clock) has passed."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._wake_at(until)
            self._news.clear()
            await self._news.wait()
            if not self._waiting and asyncio.get_running_loop().time() >= until:
                raise TimeoutError
        return self._waiting.popleft()

    def close(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _wake_at(self, until: float) -> None:
        """One timer serves all waits until the same time: an answer has one for each token."""
        if self._timer is None or self._timer.when() != until:
            self.close()
            self._timer = asyncio.get_running_loop().call_at(until, self._news.set)
