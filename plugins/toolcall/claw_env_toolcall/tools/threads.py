"""Blocking calls, each on a thread of its own.

Owns: that no call waits for another one, and a bound on threads that never come back.
Does not own: deadlines (the caller's).

asyncio's own pool has a few threads: on two cores the seventh call would wait for the first.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .tool import ToolError

MAX_THREADS = 256
"""calls that run at once in this process, those included whose deadline has passed"""

T = TypeVar("T")
_room = threading.BoundedSemaphore(MAX_THREADS)


async def on_thread(function: Callable[..., T], *args: Any, **named: Any) -> T:
    """Return what `function` returns. Cancelled, it leaves the thread to end by itself."""
    room = _room
    if not room.acquire(blocking=False):
        raise ToolError(f"{MAX_THREADS} calls are running already", "busy")
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args, **named)
        except BaseException as raised:  # it belongs to the caller, whatever it is
            error = raised
        finally:
            room.release()
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, future, result, error)

    # a daemon: what never comes back must not keep the process from ending
    threading.Thread(target=work, name="tool", daemon=True).start()
    return await future


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():  # its deadline has passed
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # an exit or an interrupt of a tool ends the call, not the process
        future.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))
