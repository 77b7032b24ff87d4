"""Which process of a run hangs: real processes that stand still, are stuck, load, or work on."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claw import config as settings
from claw.engine import pulse
from claw.engine.launch import Child, Launcher
from claw.engine.rundir import RunDir

Start = Callable[..., Launcher]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a launcher with one process that does as it is told."""
    monkeypatch.setattr(pulse, "START_S", 3.0)
    launchers = []

    def started(does: str, dead_after_s: float = 1.0, stuck_after_s: float = 1.5) -> Launcher:
        config = settings.parse({"runs": str(tmp_path), "wire": {
            "dead_after_s": dead_after_s, "stuck_after_s": stuck_after_s}})
        run = RunDir.create(config)
        launcher = Launcher(config, run, tmp_path)
        spec = run.write_json("specs/hanging.json", {
            "config": settings.resolved(config), "does": does, "mark": str(tmp_path)})
        env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([*sys.path, str(_HERE)])}
        child = Child("hanging", "hanging", spec, run.path / "logs" / "hanging.log", env=env)
        launcher.children = {"hanging": child}
        launchers.append(launcher)
        child.start()
        return launcher

    yield started
    for launcher in launchers:
        launcher.kill()


_HERE = Path(__file__).parent


def pid(launcher: Launcher) -> int:
    popen = launcher.children["hanging"].popen
    assert popen is not None
    return popen.pid


def tend(launcher: Launcher, holds: Callable[[], bool], limit_s: float = 30.0) -> bool:
    """Tend until something holds; False: the time is over."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        launcher.tend()
        if holds():
            return True
        time.sleep(0.1)
    return False


def works(launcher: Launcher) -> bool:
    ear = launcher.children["hanging"].ear
    return ear is not None and ear._last == pulse.WORKS


def test_a_process_that_was_stopped_is_killed_and_started_again(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = start("work")
    first = pid(launcher)
    assert tend(launcher, lambda: works(launcher))
    os.kill(first, signal.SIGSTOP)
    assert tend(launcher, lambda: pid(launcher) != first and works(launcher))
    assert not Path(f"/proc/{first}").exists()
    assert "hanging hangs: it was stopped" in caplog.text


def test_a_process_that_is_stuck_is_replaced_and_says_where_it_stood(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = start("stick")
    first = pid(launcher)
    assert tend(launcher, lambda: pid(launcher) != first)
    assert "it makes no progress" in caplog.text
    log = launcher.children["hanging"].log.read_text()
    assert "no progress for 1.5 s (work)" in log and "hanging.py" in log


def test_a_process_that_works_or_loads_longer_than_any_limit_is_left_alone(start: Start) -> None:
    for does in ("work", "load"):
        launcher = start(does, dead_after_s=1.5, stuck_after_s=2.0)
        first = pid(launcher)
        assert not tend(launcher, lambda at=launcher, was=first: pid(at) != was, 5.0)
        launcher.kill()
        (launcher.run.path / "config.json").unlink()


def test_what_a_hung_process_had_started_ends_with_it(start: Start, tmp_path: Path) -> None:
    def others() -> set[int]:
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(tmp_path).encode() in words and b"-c" in words:
                found.add(int(folder.name))
        return found

    launcher = start("fork")
    first = pid(launcher)
    assert tend(launcher, lambda: works(launcher) and bool(others()))
    before = others()
    os.kill(first, signal.SIGSTOP)
    assert tend(launcher, lambda: pid(launcher) != first and not before & others())


def test_nobody_was_silent_while_the_launcher_slept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    ear = pulse.Ear()
    os.write(ear.pipe, pulse.WORKS)
    assert ear.trouble(os.getpid(), 5.0) == ""
    now += 8 * 3600  # a night, of which this process saw one moment
    assert ear.trouble(os.getpid(), 5.0) == ""
    for _ in range(100):  # an evening at which it looks on
        now += 1.0
        said = ear.trouble(os.getpid(), 5.0)
    assert said == "it is silent for 102 s"
    ear.started()
    ear.close()


def test_one_who_is_only_starved_has_longer_than_one_who_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    found = {}
    for state in "TRt":
        monkeypatch.setattr(pulse, "state_of", lambda pid, s=state: s)
        now, ear = 0.0, pulse.Ear()
        os.write(ear.pipe, pulse.WORKS)
        while not ear.trouble(1, 10.0) and now < 60.0:
            now += 0.5
        found[state] = now
        ear.started()
        ear.close()
    assert found == {"T": 10.5, "R": 30.5, "t": 60.0}


def test_a_process_without_a_launcher_beats_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pulse.PIPE, raising=False)
    pulse.begin({})
