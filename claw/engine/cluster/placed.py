"""A process of the run on another machine, which the launcher handles like one of its own.

Owns: where it stands (asked for, admitted, started, ended), its log as it comes here.
Does not own: the seat there (seat), the rules of starting again (launch).

Nothing here waits for a node while the launcher tends its processes: one question is out at a time,
and `poll` looks whether its answer came. A node that does not answer for long counts as gone.
"""

import json
import logging
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw.engine.cluster.cluster import CALL_S, Cluster
from claw.engine.cluster.seat import MAX_LOG
from claw.engine.launch import Child
from claw.engine.rundir import private

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""between two looks at a process"""
GONE = -int(signal.SIGKILL)
"""the exit code of one whose node is gone"""


@dataclass
class PlacedChild(Child):
    """One process of the run, on whichever node has room."""

    cluster: Cluster | None = None
    resources: dict[str, float] = field(default_factory=dict)
    ready: Path | None = None

    def start(self) -> None:
        assert self.cluster is not None, "given when it is made"
        is_first = self.popen is None
        self.popen = Placed(self, self.cluster, may_wait=not is_first)  # type: ignore[assignment]

    def kill_if_hung(self, dead_after_s: float) -> None:
        """The seat does; see `Seat.look`."""


class Placed:
    """What a Popen is for a process here."""

    def __init__(self, child: PlacedChild, cluster: Cluster, *, may_wait: bool) -> None:
        """`may_wait`: for room, as others work on; without it, no room is an error."""
        self.child, self.cluster, self.may_wait = child, cluster, may_wait
        self.pid, self.node, self.host = 0, "", ""
        self.returncode: int | None = None
        self._admitted: Path | None = None
        self._logged, self._stops = 0, False
        self._seat = cluster.seat(child.resources)
        self._ask(self._seat.enrol.remote(cluster.keys.public), self._enrolled,
                  cluster.config.place_s, self._no_room)

    def _ask(self, answer: Any, then: Callable[[Any], None], limit_s: float,
             late: Callable[[], None]) -> None:
        self._answer, self._then, self._late = answer, then, late
        self._until = time.monotonic() + limit_s
        self._next = 0.0

    # --- as Popen ----------------------------------------------------------------------------

    def poll(self) -> int | None:
        """The exit code, or None while it runs, or is about to."""
        if self.returncode is None and time.monotonic() >= self._next:
            try:
                self._look()
            except self.cluster.ray.exceptions.RayError as error:
                self._say(f"the node of {self.child.name} is gone: {error}")
                self._end(GONE)
        return self.returncode

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.child.name, timeout)
            time.sleep(0.05)
        return code

    def send_signal(self, number: int) -> None:
        self._stops = True
        if number == signal.SIGKILL or not self.pid:
            self.kill()
        elif self.returncode is None:
            self._seat.signal.remote(int(number))

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it whatever it does; a node that does not answer is left to Ray."""
        if self.returncode is None:
            self._end(GONE)

    # --- what happens there ------------------------------------------------------------------

    def _look(self) -> None:
        ready, _ = self.cluster.ray.wait([self._answer], timeout=0)
        if ready:
            self._then(self.cluster.ray.get(ready[0], timeout=CALL_S))
        elif time.monotonic() > self._until:
            self._late()

    def _enrolled(self, where: dict[str, Any]) -> None:
        self.node, self.host = where["node"], where["host"]
        name = f"{self.node[:12]}-{where['pid']}"
        self._admitted = self.cluster.admit(name, where["public"])
        log.info("%s is placed on %s (node %s)", self.child.name, self.host, self.node[:12])
        spec = self.child.spec.read_text(encoding="utf-8")
        started = self._seat.start.remote(self.child.name, self.child.module, spec)
        self._ask(started, self._started, self.cluster.config.start_s, self._silent)

    def _started(self, pid: int) -> None:
        self.pid = pid
        self._ask_how()

    def _ask_how(self) -> None:
        limit_s = self.cluster.dead_after_s
        self._ask(self._seat.look.remote(self._logged, limit_s), self._heard, limit_s, self._silent)

    def _heard(self, how: dict[str, Any]) -> None:
        self._logged += len(how["log"])
        self._write(how["log"])
        if how["ready"] and self.child.ready is not None and not self.child.ready.exists():
            self.child.ready.write_text(json.dumps({"address": ""}))
        has_more = len(how["log"]) == MAX_LOG
        if how["code"] is not None and not has_more:
            self._end(int(how["code"]))
            return
        self._ask_how()
        self._next = 0.0 if has_more else time.monotonic() + LOOK_S

    def _no_room(self) -> None:
        error = self.cluster.no_room(self.child.name, self.child.resources)
        if not self.may_wait:
            self._end(GONE)
            raise error
        log.error("%s", error)
        self._say(str(error))
        self._end(GONE)  # and it is asked for again

    def _silent(self) -> None:
        self._say(f"the node of {self.child.name} does not answer: {self.host}")
        self._end(GONE)

    def _end(self, code: int) -> None:
        self.returncode = code
        if self._admitted is not None:
            self._admitted.unlink(missing_ok=True)
        self.cluster.vacate(self._seat)

    def _say(self, text: str) -> None:
        if not self._stops:
            self._write(f"launcher: {text[:2000]}\n".encode())

    def _write(self, raw: bytes) -> None:
        with open(self.child.log, "ab", opener=private) as out:
            out.write(raw)
