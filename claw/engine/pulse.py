"""Signs of life: a process of a run tells its launcher that it gets on, and the launcher listens.

Owns: the pipe between the two, and which silence means that a process hangs.
Does not own: killing and starting again (launch), who is gone for a peer on the wire (the links).

A thread of the process writes a byte each BEAT_S, so a long forward does not look like death. What
works in it (an event loop, a thread with a model, the loop that trains) comes by `mark`; once one
of them has not for longer than its limit, the byte says STUCK. So a process that is stopped falls
silent, one that is stuck says so, and one that is busy does neither.

Both ends count only time in which they ran themselves: after a suspend, or when the machine stood
still, nobody has been silent.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

BEAT_S = 0.5
ASLEEP_S = 2.0
"""a longer time between two looks was not spent awake; it counts as so much"""
START_S = 60.0
"""the least silence that is allowed to a process that loads: importing can hold every thread up"""
STARVED = 3
"""times as long may be silent who is not stopped: others may have all the processor"""
PIPE = "CLAW_PULSE"
STARTS, WORKS, STUCK = b"s", b".", b"!"

LOOP, WORK = "loop", "work"
"""parts: a loop that only passes messages on, and what computes"""

_ages: dict[str, float] = {}


# --- in the process --------------------------------------------------------------------------


def mark(part: str) -> None:
    """This part of the process gets on. It is watched from its first mark on."""
    _ages[part] = 0.0


def rest(*parts: str) -> None:
    """Nothing is expected of these parts any more: an end has limits of its own."""
    for part in parts:
        _ages.pop(part, None)


def begin(config: dict[str, Any]) -> None:
    """Beat for the launcher, if it gave this process a pipe. `config`: all settings of the run."""
    given = os.environ.pop(PIPE, "")
    if given:
        os.set_inheritable(int(given), False)
        os.set_blocking(int(given), False)
        wire = config["wire"]
        limits = {LOOP: float(wire["dead_after_s"]), WORK: float(wire["stuck_after_s"])}
        threading.Thread(target=_beat, args=(int(given), limits), name="pulse", daemon=True).start()


def _beat(pipe: int, limits: dict[str, float]) -> None:
    before, said = time.monotonic(), False
    while True:
        time.sleep(BEAT_S)
        before, passed_s = _awake(before)
        late = [part for part in list(_ages) if _grown(part, passed_s) > limits[part]]
        if late and not said:
            log.error("no progress for %g s (%s); every thread is here:", limits[late[0]],
                      ", ".join(late))
            faulthandler.dump_traceback(sys.stderr)
        said = bool(late)
        with suppress(BlockingIOError):  # a launcher that does not listen has enough to read
            try:
                os.write(pipe, STUCK if late else WORKS if _ages else STARTS)
            except BrokenPipeError:
                return  # the launcher is gone: the process ends by other means


def _grown(part: str, passed_s: float) -> float:
    """Age a part, unless it has come to rest meanwhile."""
    if part in _ages:
        _ages[part] += passed_s
    return _ages.get(part, 0.0)


def _awake(before: float) -> tuple[float, float]:
    """Return the time now, and how much of what passed since `before` this process was awake."""
    now = time.monotonic()
    return now, min(now - before, ASLEEP_S)


# --- in the launcher -------------------------------------------------------------------------


class Ear:
    """Hears one process."""

    def __init__(self) -> None:
        self._read, self.pipe = os.pipe()
        """`pipe`: what the process writes to; closed here once it has it"""
        os.set_blocking(self._read, False)
        self._last, self._silent_s, self._looked = STARTS, 0.0, time.monotonic()

    def started(self) -> None:
        """The process has its end of the pipe."""
        os.close(self.pipe)

    def close(self) -> None:
        os.close(self._read)

    def trouble(self, pid: int, dead_after_s: float) -> str:
        """Why the process is taken for hung; empty while it is not."""
        self._looked, passed_s = _awake(self._looked)
        self._silent_s += passed_s
        with suppress(BlockingIOError):
            if heard := os.read(self._read, 65536):
                self._last, self._silent_s = heard[-1:], 0.0
        if self._last == STUCK:
            return "it makes no progress; its log says where it stands"
        limit_s = max(dead_after_s, START_S) if self._last == STARTS else dead_after_s
        if self._silent_s <= limit_s:
            return ""
        state = state_of(pid)
        if state == "T":
            return f"it was stopped, {self._silent_s:.0f} s ago"
        if state == "t" or self._silent_s <= STARVED * limit_s:
            return ""  # a debugger holds it, or others have the processor
        return f"it is silent for {self._silent_s:.0f} s"


def state_of(pid: int) -> str:
    """The letter that the system has for a process's state; R where it tells none; "" for none."""
    if pid <= 0:
        return ""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    try:
        os.kill(pid, 0)
    except PermissionError:
        return "R"
    except OSError:
        return ""
    return "R"
