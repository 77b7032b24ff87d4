"""What must hold after a process was killed or stood still, whichever and wherever it was.

Owns: no answered turn lost, none trained twice, the newest good version serves, nothing left.
Does not own: what was done to the run, and that it recovered (the tests).
"""

import json
from collections import Counter
from pathlib import Path

from system import System, until

from claw.engine import versions


def lost(system: System, answered: list[str]) -> dict[str, tuple[str, str]]:
    """Turns whose answer a client has and that are not there, or have not come to their end."""
    states = {id: (state, reason or "") for id, state, reason in system.rows(
        "SELECT id, state, reason FROM turns")}
    found = {id: states.get(id, ("gone", "")) for id in answered}
    return {id: (state, reason) for id, (state, reason) in found.items()
            if state not in ("trained", "skipped") or not reason
            or reason.startswith(("interrupted", "failed", "judge_failed"))}


def lost_nothing(system: System, answered: list[str]) -> None:
    assert not lost(system, answered)


def trained_twice(system: System) -> list[str]:
    """Turns of which the journal says that more than one sample was trained."""
    per_turn = Counter(id for (id,) in system.rows(
        "SELECT turn_id FROM samples WHERE state='trained'"))
    assert per_turn, "nothing was trained"
    return [id for id, times in per_turn.items() if times > 1]


def trained_nothing_twice(system: System) -> None:
    """By the journal, and by what the trainer itself says it has stepped on."""
    assert not trained_twice(system)
    leased = system.rows("SELECT COUNT(*) FROM samples JOIN leases ON lease_id = leases.id "
                         "WHERE leases.state='acked'")[0][0]
    forgotten = system.count("turns WHERE state = 'forgotten'")  # their samples are gone
    taken = sum(int(m["rollout/samples"]) for m in system.metrics("gate/refused"))
    # less: killed before it said so
    assert taken <= leased + forgotten, "a sample was in two steps"
    rows = [(id, version, json.loads(body)) for id, version, body in system.rows(
        "SELECT id, version, body FROM leases WHERE state='acked'")]
    made = {version: id for id, version, update in rows if update}  # others changed nothing
    assert len(made) == sum(bool(update) for *_, update in rows)
    stepped = [int(m["train/version"]) for m in system.metrics("gate/refused")]
    assert len(set(stepped)) == len(stepped)
    assert set(stepped) <= set(made)
    steps = sorted(update["step"] for *_, update in rows if update)
    assert steps == list(range(1, len(steps) + 1))
    for id, version, _ in rows:
        states = {s for (s,) in system.rows("SELECT state FROM samples WHERE lease_id=?", id)}
        assert states <= {"trained", "dropped"}, (id, version, states)


def serves_the_newest_good_version(system: System) -> None:
    """The one that the workers serve is the newest published one, and its files are whole."""
    def numbers() -> tuple[int, int]:
        [[newest]] = system.rows("SELECT MAX(number) FROM versions WHERE status='published'")
        return int(newest), int(system.status()["served_version"])

    assert until(lambda: len(set(numbers())) == 1, 60, 0.5), numbers()
    [(body,)] = system.rows("SELECT body FROM versions WHERE number=?", numbers()[0])
    version = json.loads(body)
    versions.check_version(Path(version["path"]), version["checksum"])


def left(system: System, temporary: Path) -> list[str]:
    """What a run that has ended left: processes, sockets, temporary files, half versions."""
    processes = [f"process {pid}: {words}" for pid, words in system.processes().items()]
    sockets = [p for p in system.run.rglob("*") if p.is_socket() or p.is_fifo()]
    named = [p for p in (system.run / "run.json",) if p.exists()]
    halves = [p for p in (system.run / "versions").rglob("*") if p.name.endswith(".part")]
    return processes + [str(p) for p in (*sorted(temporary.rglob("*")), *sockets, *named, *halves)]
