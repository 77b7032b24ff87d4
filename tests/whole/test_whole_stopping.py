"""How a run ends: asked by a person, or with its launcher killed before it was up."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from system import System, until
from talk import CORRECTION, ask


@pytest.fixture
def idle(whole_model: Path, tmp_path: Path) -> Iterator[System]:
    """A run that is not started yet."""
    made = System(tmp_path, whole_model)
    try:
        yield made
    finally:
        made.stop()


def test_the_doctor_says_who_waits_for_whom_and_who_is_silent(system: System) -> None:
    def said() -> tuple[int, dict[str, str]]:
        done = system.claw("doctor", "--run", str(system.run))
        lines = (line[2:].split(maxsplit=1) for line in done.stdout.splitlines())
        return done.returncode, {name: text for name, text in lines}

    code, lines = said()
    assert code == 0 and list(lines) == ["launcher", "actor", "worker-0", "trainer", "runner"]
    assert "waits for requests; serves v0" in lines["worker-0"]
    assert re.search(r"waits for samples for \d+ s: 0 of 4$", lines["trainer"])
    pid = system.pids()["worker-0"]
    os.kill(pid, signal.SIGSTOP)
    try:
        asking = Thread(target=ask, args=(system.client(), [{"role": "user", "content": "Hm?"}]))
        asking.start()
        assert until(lambda: "; 1 requests wait for a worker" in said()[1]["worker-0"], 60, 0.5)
        code, lines = said()
        assert code == 1 and f"it was stopped: kill -CONT {pid}" in lines["worker-0"]
        assert re.match(r"silent for \d+ s: ", lines["worker-0"])
        assert "waits for the answers to 1 requests" in lines["runner"]
    finally:
        os.kill(pid, signal.SIGCONT)
    asking.join(60)
    assert not asking.is_alive() and until(lambda: said()[0] == 0, 60, 0.5), said()


def test_ctrl_c_saves_and_says_where_and_how_to_go_on(system: System) -> None:
    messages = [{"role": "user", "content": "Say something."}]
    said = ask(system.client(), messages)
    ask(system.client(), [*messages, {"role": "user", "content": CORRECTION}])
    system.launcher.send_signal(signal.SIGINT)
    assert system.launcher.wait(45) == 130
    assert f"saved in {system.run}\n" in system.said()
    assert f"claw train --resume {system.run}\n" in system.said()
    assert "Traceback" not in system.said()
    assert not system.processes()
    assert system.rows("SELECT state FROM turns WHERE id=?", said.turn_id)
    assert not system.rows("SELECT id FROM turns WHERE state='open'")
    for name in ("actor", "worker-0", "trainer", "runner"):
        log = (system.run / "logs" / f"{name}.log").read_text()
        assert "Traceback" not in log, f"{name}: {log[-2000:]}"


def test_commands_on_a_run_that_has_ended_say_so(system: System) -> None:
    assert system.claw("versions", "--run", str(system.run)).returncode == 0
    done = system.claw("rollback", "0", "--run", str(system.run))
    assert done.returncode == 2
    assert "not running" in done.stderr and str(system.run) in done.stderr
    doctor = system.claw("doctor", "--run", str(system.run))
    assert doctor.returncode == 1
    assert f"not running; continue with claw train --resume {system.run}\n" in doctor.stdout
    turns = system.rows("SELECT COUNT(*), state FROM turns GROUP BY state ORDER BY state")
    assert turns
    assert f"turns: {', '.join(f'{n} {state}' for n, state in turns)}\n" in doctor.stdout


def test_a_launcher_killed_while_its_processes_start_leaves_none(idle: System) -> None:
    idle.launch(*idle.words)
    assert until(lambda: (idle.run / "run.json").exists() and idle.pids(), 60, 0.05)
    os.kill(idle.launcher.pid, signal.SIGKILL)
    idle.launcher.wait()
    assert len(idle.processes()) == 4
    assert until(lambda: not idle.processes(), 60, 0.5), idle.processes()


def test_ctrl_c_while_it_starts_leaves_none(idle: System) -> None:
    idle.launch(*idle.words)
    assert until(lambda: (idle.run / "run.json").exists() and idle.pids(), 60, 0.05)
    idle.launcher.send_signal(signal.SIGINT)
    assert idle.launcher.wait(60) == 130
    assert not idle.processes()


def test_a_wrong_setting_ends_before_anything_starts(idle: System) -> None:
    done = idle.claw(*idle.words, "train.lrr=1")
    assert done.returncode == 2 and "did you mean" in done.stderr
    assert not idle.run.exists()
