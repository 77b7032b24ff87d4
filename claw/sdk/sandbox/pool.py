"""Sandboxes that are open before they are asked for.

Owns: how many live at once, and the warm ones that wait.
Does not own: cleaning a used one. A fresh container costs less than trusting that one is clean, so
each is taken once and closed.
"""

import atexit
import json
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict

from claw.errors import ClawError
from claw.sdk.sandbox.spec import Sandbox, SandboxError, Spec

OPENERS = 4
TAKE_S = 600.0


class Pool:
    """At most `limit` sandboxes at once, `warm` of them waiting for each spec that was taken.

    Closes what is left at `close`, at the end of a `with` block, or when the process ends.
    """

    def __init__(self, limit: int = 32, warm: int = 2) -> None:
        if not 0 <= warm <= limit or limit < 1:
            raise SandboxError("a pool needs a limit of at least 1 and no more warm ones than that",
                               found=f"limit {limit}, warm {warm}")
        self._limit, self._warm = limit, warm
        self._changed = threading.Condition()
        self._waiting: dict[str, list[Future[Sandbox]]] = {}
        self._num_out = 0
        self._is_closed = False
        self._openers = ThreadPoolExecutor(OPENERS, "sandbox")
        _pools.add(self)

    @contextmanager
    def take(self, spec: Spec | None = None, *, wait_s: float = TAKE_S) -> Iterator[Sandbox]:
        """Yield a sandbox of one's own, and close it afterwards."""
        box = self._take(spec or Spec(), time.monotonic() + wait_s)
        try:
            yield box
        finally:
            try:
                box.close()
            finally:
                self._give_back()

    def prepare(self, spec: Spec, count: int = 0) -> None:
        """Have `count` (else `warm`) of them open soon, as far as the limit allows."""
        with self._changed:
            self._fill(spec, count or self._warm)

    def _take(self, spec: Spec, end: float) -> Sandbox:
        with self._changed:
            while not self._is_closed and not self._may_take(spec):
                if not self._changed.wait(end - time.monotonic()):
                    raise SandboxError("no sandbox came free in time",
                                       found=f"{self._num_out} of {self._limit} are in use")
            self._refuse_closed()
            future = self._waiting[_key(spec)].pop(0)
            self._num_out += 1
            self._fill(spec, self._warm)
        try:
            return future.result()
        except BaseException:
            self._give_back()
            raise

    def _may_take(self, spec: Spec) -> bool:
        """Whether one waits, or there is room for it; another spec's warm one makes room."""
        if not self._waiting.get(_key(spec)):
            if self._num_live() >= self._limit:
                self._drop_another(spec)
            self._fill(spec, 1)
        return bool(self._waiting[_key(spec)])

    def _drop_another(self, spec: Spec) -> None:
        for key, futures in self._waiting.items():
            if futures and key != _key(spec):
                self._openers.submit(_discard, futures.pop())
                return

    def _num_live(self) -> int:
        return self._num_out + sum(map(len, self._waiting.values()))

    def _fill(self, spec: Spec, count: int) -> None:
        from claw.sdk.sandbox import open_sandbox

        futures = self._waiting.setdefault(_key(spec), [])
        while len(futures) < count and self._num_live() < self._limit and not self._is_closed:
            futures.append(self._openers.submit(open_sandbox, spec))

    def _give_back(self) -> None:
        with self._changed:
            self._num_out -= 1
            self._changed.notify_all()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise SandboxError("the pool is closed")

    def close(self) -> None:
        """Close the warm ones and take no more; those in use are closed by who has them."""
        with self._changed:
            self._is_closed = True
            futures = [f for waiting in self._waiting.values() for f in waiting]
            self._waiting.clear()
            self._changed.notify_all()
        for future in futures:
            if not future.cancel():
                _discard(future)
        self._openers.shutdown()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _discard(future: "Future[Sandbox]") -> None:
    with suppress(ClawError):
        future.result().close()


def _key(spec: Spec) -> str:
    return json.dumps(asdict(spec), sort_keys=True)


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()
