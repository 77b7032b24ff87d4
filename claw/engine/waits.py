"""`claw doctor --run DIR`: a line for each process of a run: alive or not, and what it waits for.

Owns: the words, and the verdict whether something is wrong.
Does not own: the figures (the actor's status), what is done about it (the launcher).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw.config import RunConfig
from claw.engine import control, report, wire
from claw.engine.pulse import state_of
from claw.engine.rundir import RunDir
from claw.errors import ClawError

ASK_S = 5.0
"""how long the actor may take to answer"""
HUNG = 3
"""heartbeats that a process may miss before it is called silent"""
STATES = {"T": "it was stopped: kill -CONT {pid}", "t": "a debugger holds it: pid {pid}",
          "Z": "it has ended: pid {pid}", "D": "it waits for a disk or a device: pid {pid}"}
"""what the system says of a process that does not answer"""


@dataclass
class Found:
    """What is known of a run."""

    config: RunConfig
    pids: dict[str, int]
    status: dict[str, Any] = field(default_factory=dict)
    """of the actor; empty when it does not answer"""
    why: str = ""
    """why there is no status"""

    @property
    def patience_s(self) -> float:
        return max(HUNG * self.config.wire.heartbeat_s, 2.0)


@dataclass(frozen=True)
class Line:
    """What is said of one process."""

    name: str
    text: str
    is_well: bool = True


def show(path: Path) -> int:
    """Print the lines; return 0 when every process is well, else 1."""
    lines = list(look(path))
    for line in lines:
        mark = " " if line.is_well else "!"
        report.say(report.escape(f"{mark} {line.name:<11} {line.text}"))
    return 0 if all(line.is_well for line in lines) else 1


def look(path: Path) -> Iterator[Line]:
    """Ask a run, and the system, how each of its processes is."""
    run, config = RunDir.open(path)
    about = run.read_json("run.json")
    launcher = int(about.get("pid") or 0)
    if not run.is_held() or not state_of(launcher):
        yield from _dead(path)
        return
    if not about.get("addresses"):
        yield Line("launcher", f"pid {launcher}, is starting the processes")
        return
    yield _launcher(launcher)
    found = Found(config, {n: int(p) for n, p in (about.get("processes") or {}).items()})
    keys = wire.keys_of(config.wire.keys)
    try:
        found.status = control.ask(about["addresses"]["runners"], "status", timeout_s=ASK_S,
                                   keys=keys)
    except ClawError as error:
        found.why = error.what
    for name in found.pids:
        yield _process(name, found)
    known = {worker["name"] for worker in found.status.get("workers") or ()}
    for name in sorted(known - set(found.pids)):
        yield Line(name, "elsewhere: " + _worker(name, found))


def _launcher(pid: int) -> Line:
    if (state := state_of(pid)) in STATES:
        return Line("launcher", f"{STATES[state].format(pid=pid)}; what dies now stays dead", False)
    return Line("launcher", f"pid {pid}, starts again what dies or hangs")


def _dead(path: Path) -> Iterator[Line]:
    """What waits in a run that does not run."""
    from claw.engine.actor.journal import Journal

    yield Line("launcher", f"not running; continue with claw train --resume {path}", False)
    try:
        journal = Journal(path, read_only=True)
    except ClawError as error:
        yield Line("journal", error.what, False)
        return
    turns: dict[str, int] = {}
    for (_, state), count in journal.states().items():
        turns[state] = turns.get(state, 0) + count
    journal.close()
    said = ", ".join(f"{count} {state}" for state, count in sorted(turns.items()))
    yield Line("journal", f"turns: {said or 'none'}", False)


def _process(name: str, found: Found) -> Line:
    """One process that the launcher started."""
    pid = found.pids[name]
    state = state_of(pid)
    if not state:
        return Line(name, f"gone (pid {pid}); the launcher starts it again", False)
    kind = name.partition("-")[0]
    silent_s = _silent_s(name, kind, found)
    if state in STATES and state != "D":
        return Line(name, f"{_silence(silent_s)}{STATES[state].format(pid=pid)}"
                    + _held_up(kind, found), False)
    if kind == "actor":
        return Line(name, _actor(pid, found), bool(found.status))
    if not found.status:
        return Line(name, f"pid {pid}, alive; nothing more is known without the actor")
    if silent_s is None:
        return Line(name, f"pid {pid}, alive; waits to be ready (it loads)")
    if silent_s > found.patience_s:
        more = STATES.get(state, "pid {pid} runs: see its log").format(pid=pid)
        return Line(name, _silence(silent_s) + more + _held_up(kind, found), False)
    say = {"worker": _worker, "trainer": _trainer, "runner": _runner}[kind]
    return Line(name, f"pid {pid}, " + say(name, found))


def _silent_s(name: str, kind: str, found: Found) -> float | None:
    """For how long the actor has not heard of a process; None: never, or it cannot be asked."""
    status = found.status
    if kind == "worker":
        heard = {w["name"]: w["silent_s"] for w in status.get("workers") or ()}
        return (heard | dict(status.get("lost_workers") or {})).get(name)
    if kind == "trainer":
        silent_s = (status.get("trainer") or {}).get("silent_s")
        return None if silent_s is None else float(silent_s)
    return min(status.get("runners") or (), default=None) if kind == "runner" else None


def _silence(silent_s: float | None) -> str:
    return "" if silent_s is None else f"silent for {silent_s:.0f} s: "


def _held_up(kind: str, found: Found) -> str:
    """Who waits for a process that does not answer."""
    waiting = int((found.status.get("samples") or {}).get("waiting") or 0)
    requests = int(found.status.get("queue") or 0) + sum(
        int(w["running"]) for w in found.status.get("workers") or ())
    return {
        "actor": "; all others wait for it", "runner": "; clients wait for it",
        "worker": f"; {requests} requests wait for a worker",
        "trainer": f"; {waiting} samples wait for it",
    }[kind]


def _actor(pid: int, found: Found) -> str:
    if not found.status:
        return f"pid {pid}, does not answer: {found.why}" + _held_up("actor", found)
    turns = found.status.get("turns") or {}
    judging = (found.status.get("judging") or {}).get("waiting") or 0
    return (f"pid {pid}, waits for messages; {turns.get('waiting', 0)} turns wait for what follows "
            f"them, {turns.get('judging', 0)} for a judge ({judging} not asked yet)")


def _worker(name: str, found: Found) -> str:
    [worker] = [w for w in found.status["workers"] if w["name"] == name]
    numbers = ", ".join(f"v{n}" for *_, n in worker["versions"])
    if not worker["running"]:
        return f"waits for requests; serves {numbers}"
    return (f"samples for {worker['running']} of {worker['room']} requests; serves {numbers}; "
            f"{found.status.get('queue', 0)} wait for a worker")


def _trainer(name: str, found: Found) -> str:
    about, samples, train = found.status["trainer"], found.status["samples"], found.config.train
    state, step = about.get("state"), about.get("step", 0)
    since = float(about.get("seconds") or 0.0) + float(about["silent_s"])
    if state == "training":
        return f"trains step {step + 1} for {since:.0f} s, of {samples['leased']} samples"
    if state == "held":
        return (f"held for {since:.0f} s: no worker serves its last version; waits for a person: "
                "claw rollback")
    if state == "no room":
        return f"waits for room on the disk for {since:.0f} s: its last step could not be saved"
    if paused := float(found.status.get("paused_until") or 0.0):
        until = time.strftime("%m-%d %H:%M", time.localtime(paused))
        return f"waits for the end of a pause at {until}; {samples['waiting']} samples wait"
    said = f"waits for samples for {since:.0f} s: {samples['waiting']} of {train.batch_size}"
    if not samples["waiting"]:
        return said
    return said + (f", the oldest {samples['oldest_s']:.0f} s (a step begins at "
                   f"{train.max_wait_s:g} s, whatever their number)")


def _runner(name: str, found: Found) -> str:
    running = sum(int(w["running"]) for w in found.status["workers"])
    waiting = int(found.status.get("queue") or 0)
    if not running + waiting:
        return "waits for clients, or for its environments"
    return f"waits for the answers to {running + waiting} requests"
