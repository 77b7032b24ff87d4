"""How a run ends: asked by a person, or with its launcher killed before it was up."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

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
