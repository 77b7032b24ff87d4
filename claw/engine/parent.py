"""Which process started this one: a process of a run ends when its launcher is gone.

Owns: the pid to compare `os.getppid()` with, SIGTERM when the launcher dies.
Does not own: looking, and ending.

The launcher writes its pid into the spec, since it may be gone before a child has loaded far enough
to ask who its parent is; the parent would then be the system's first process, which never ends.
Looking begins when a process has loaded, which takes a while; until then the signal ends it.
"""

import ctypes
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
_launcher = 0


def note(spec: dict[str, Any]) -> None:
    """Take the launcher's pid from a spec, if it names one; first thing in a process."""
    global _launcher
    _launcher = int(spec.get("launcher") or 0)
    if _launcher and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != _launcher:  # it died before this was asked for
            sys.exit("the launcher is gone")


def pid() -> int:
    """Return the pid of the process that started this one."""
    return _launcher or os.getppid()
