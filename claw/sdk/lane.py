"""One thread for one environment.

Owns: calling plugin code that blocks, always on the same thread, with a deadline.
Does not own: what the code does.

Some libraries refuse to be used from another thread than the one that opened them, so a pool will
not do; and a thread that never comes back must not keep the process from ending, so it is a daemon.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any

MAX_WAITING = 8
"""calls that may wait behind one that does not come back"""


class Lane:
    """`await lane.call(function, ...)` for sync and async functions; `close()` lets it end."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_WAITING)
        self._num_calls = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., Any], *args: Any, deadline_s: float) -> Any:
        """Return what `function` returns; raise TimeoutError when it takes too long."""
        async with asyncio.timeout(deadline_s):
            if inspect.iscoroutinefunction(function):
                return await function(*args)
            result = await self._on_thread(function, args)
            return await result if inspect.isawaitable(result) else result

    @property
    def is_busy(self) -> bool:
        """Whether a call has not come back yet."""
        return self._num_calls > 0

    def close(self) -> None:
        """Let the thread end after what it is doing."""
        try:
            self._jobs.put_nowait(None)
        except queue.Full:
            return  # it is stuck; being a daemon it ends with the process

    def _on_thread(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def job() -> None:
            self._num_calls += 1
            try:
                result, error = function(*args), None
            except BaseException as raised:  # it belongs to the caller, whatever it is
                result, error = None, raised
            self._num_calls -= 1
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, result, error)

        self._jobs.put_nowait(job)
        return future

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():  # its deadline has passed
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | SystemExit | KeyboardInterrupt):
        future.set_exception(RuntimeError(f"plugin code raised {error!r}"))
    else:
        future.set_exception(error)
