"""Who owns a container: the labels of this process, and whether another's process still lives."""

import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

OWNER = "claw.owner"
"""boot id, process namespace, process id and its start time: nothing else has all four"""
UNTIL = "claw.until"
"""seconds of the epoch past which nobody may still need it"""
SNAPSHOT = "claw.snapshot"
"""the owner of an image that goes with its process"""
SLACK_S = 60.0


@cache
def _me(pid: int) -> str:
    return f"{_boot()} {_namespace()} {pid} {_start_of(pid)}"


def me() -> str:
    """Return this process's name."""
    return _me(os.getpid())


def labels(lifetime_s: float) -> dict[str, str]:
    """Return the labels of something that this process owns for so long."""
    return {OWNER: me(), UNTIL: str(int(time.time() + lifetime_s))}


def is_abandoned(found: Mapping[str, str], key: str = OWNER) -> bool:
    """Say whether nobody can need it any more.

    Of an owner on another machine, or in another container, nothing is known but the time.
    """
    name = found.get(key, "")
    if not name:
        return False
    boot, namespace, pid, start = (name.split(" ") + [""] * 4)[:4]
    if boot == _boot() and namespace == _namespace() and pid.isdigit():
        return _start_of(int(pid)) != start
    until = found.get(UNTIL, "")
    return until.isdigit() and time.time() > int(until) + SLACK_S


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


@cache
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "unknown"


def _start_of(pid: int) -> str:
    """The start time of a living process; empty for a dead one, a zombie included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
