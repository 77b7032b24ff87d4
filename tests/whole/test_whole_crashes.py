"""SIGKILL at any process, the launcher included: nothing accepted is lost, nothing trains twice."""

import os
import signal
import time

import pytest
from kept import lost_nothing, trained_nothing_twice
from system import System, until
from talk import CORRECTION, Person, ask, people

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SERVES = ("actor", "runner")
"""an answer that is on the way may break with these"""


def test_every_process_may_be_killed_while_people_talk(system: System) -> None:
    with people(system, 3) as talkers:
        until(lambda: system.status()["served_version"] >= 2, 60, 1.0)
        for name in ("trainer", "worker-0", "runner", "actor"):
            _kill_and_recover(system, name, talkers)
    assert not [f for person in talkers for f in person.failures]
    heard = [h for person in talkers for h in person.heard]
    assert all(h.finish in ("stop", "length") for h in heard)
    system.settle()
    lost_nothing(system, [h.turn_id for h in heard])
    trained_nothing_twice(system)


def _kill_and_recover(system: System, name: str, talkers: list[Person]) -> None:
    """Kill one process; afterwards people are answered again and the policy learns on."""
    version, pid = system.status()["version"], system.kill(name)
    assert until(lambda: system.pids()[name] != pid, 20), f"{name} was not started again"
    since = {person: len(person.heard) for person in talkers}
    assert until(lambda: all(len(p.heard) > since[p] + 1 for p in talkers), 60, 0.5), (
        name, [p.failures[-2:] for p in talkers])
    assert until(lambda: _version(system) > version, 60, 1.0), f"no step after {name} died"
    for person in talkers:
        assert name in SERVES or not person.failures, (name, person.failures)
        person.failures.clear()


def _version(system: System) -> int:
    return int(system.status()["version"])


def test_the_launcher_is_killed_and_the_run_is_resumed(system: System) -> None:
    system.settle()
    before = system.status()["version"]
    client, turns = system.client(), []
    for i in range(2):
        messages = [{"role": "user", "content": f"Last question {i}, number {time.time()}."}]
        turns.append(ask(client, messages).turn_id)
        ask(client, [*messages, {"role": "user", "content": CORRECTION}])
    os.kill(system.launcher.pid, signal.SIGKILL)
    assert system.launcher.wait() == -signal.SIGKILL
    assert until(lambda: not system.processes(), 20), system.processes()
    state = [s for id in turns for (s,) in system.rows("SELECT state FROM turns WHERE id=?", id)]
    assert len(state) == 2 and "trained" not in state, "the kill came too late to show anything"

    system.resume()
    again = ask(system.client(), [{"role": "user", "content": "Back?"}])
    assert again.version in (before, before + 1)  # the queued samples may have trained already
    assert until(lambda: _version(system) == before + 1, 60, 0.5)
    system.settle()
    for id in turns:
        assert system.rows("SELECT state, reason FROM turns WHERE id=?", id) == [
            ("trained", f"v{before + 1}")]
    rows = {row["number"]: row for row in system.status()["versions"]}
    assert sorted(rows) == list(range(before + 2)) and rows[before + 1]["parent"] == before
    trained_nothing_twice(system)
    assert system.rows("PRAGMA integrity_check") == [("ok",)]
