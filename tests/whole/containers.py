"""Containers that a run's runner owns, on the real engine."""

from system import System

from claw.sdk.sandbox import engine, owner


def containers(pid: int) -> list[str]:
    """Containers that a process of this number owns."""
    found = engine.api().containers(all=True, filters={"label": owner.OWNER})
    return [c["Id"] for c in found if str(pid) in c["Labels"][owner.OWNER].split()]


class Containers:
    """How many containers a run's runner held at once, seen at each look.

    Looked at while the run goes on: between two steps, when enough turns wait, there are none.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._runner = 0
        self.most = 0

    def look(self) -> None:
        self._runner = self._runner or _runner_of(self._system)
        if self._runner:
            self.most = max(self.most, len(containers(self._runner)))

    def left(self) -> list[str]:
        return containers(self._runner)


def _runner_of(system: System) -> int:
    """The number of the runner's process; 0 while there is none."""
    try:
        return system.pids().get("runner", 0)
    except (OSError, ValueError):  # the run folder is not there yet, or is being written
        return 0
