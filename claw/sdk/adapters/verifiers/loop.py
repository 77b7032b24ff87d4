"""One event loop for all episodes of the process, in a thread of its own.

Owns: running a package's coroutines where they cannot hold up the runner.
Does not own: what they do.

Reward functions and tools are often plain functions that compute for seconds. On the runner's own
loop they would stop its heartbeat; and a package's semaphores belong to one loop, so a loop per
episode will not do.
"""

import asyncio
import functools
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """`await loop.run(coroutine)` from any other loop; a cancelled wait cancels the work."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns, computed over there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """The same for a thread that has no loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)


@functools.cache
def shared() -> Loop:
    """The loop of this process."""
    return Loop("verifiers")
