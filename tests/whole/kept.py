"""What must hold after a process was killed or stood still, whichever and wherever it was.

Owns: no answered turn lost, none trained twice, the newest good version serves, nothing left.
Does not own: what was done to the run, and that it recovered (the tests).
"""

import json
from collections import Counter
from pathlib import Path

from system import System, until

from claw.engine import versions


def lost_nothing(system: System, answered: list[str]) -> None:
    """Every turn whose answer a client has is there and has come to its end."""
    states = {id: (state, reason) for id, state, reason in system.rows(
        "SELECT id, state, reason FROM turns")}
    for id in answered:
        state, reason = states[id]
        assert state in ("trained", "skipped"), (id, state)
        assert reason and not reason.startswith(("interrupted", "failed", "judge_failed")), (
            id, reason)


def trained_nothing_twice(system: System) -> None:
    """By the journal, and by what the trainer itself says it has stepped on."""
    per_turn = Counter(id for (id,) in system.rows(
        "SELECT turn_id FROM samples WHERE state='trained'"))
    assert per_turn and set(per_turn.values()) == {1}
    leased = system.rows("SELECT COUNT(*) FROM samples JOIN leases ON lease_id = leases.id "
                         "WHERE leases.state='acked'")[0][0]
    taken = sum(int(m["rollout/samples"]) for m in system.metrics("gate/refused"))
    assert taken <= leased, "a sample was in two steps"  # less: killed before it said so
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


def left_nothing(system: System, temporary: Path) -> None:
    """Of a run that has ended: no process, no socket, no temporary file."""
    assert not system.processes()
    assert not sorted(temporary.rglob("*"))
    kinds = [p for p in system.run.rglob("*") if p.is_socket() or p.is_fifo()]
    assert not kinds and not (system.run / "run.json").exists()
    halves = [p for p in (system.run / "versions").rglob("*") if p.name.endswith(".part")]
    assert not halves, "a version that was not finished stays"
