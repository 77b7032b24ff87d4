"""What the launcher gives to its processes, and when a run is over."""

import json
from pathlib import Path

import pytest

from claw import config as settings
from claw.engine.launch import Child, Launcher, environment
from claw.engine.rundir import RunDir


class Endless(Exception):
    """Raised by a test where the launcher goes on."""


def watched(tmp_path: Path, *, address: str, done: str) -> None:
    """Watch a run whose processes are there, until the launcher ends or has looked three times."""
    config = settings.parse({"runs": str(tmp_path), "plugin_name": "toolcall"})
    run = RunDir.create(config)
    launcher = Launcher(config, run, tmp_path)
    launcher.children = {
        name: Child(name, "", tmp_path, tmp_path, is_done=name == done)
        for name in ("actor", "worker-0", "trainer", "runner")
    }
    (run.path / "specs").mkdir(exist_ok=True)
    (run.path / "specs" / "runner.ready").write_text(json.dumps({"address": address}))
    launcher._app_address(until=float("inf"))
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise Endless

    launcher.watch(look, interval_s=0)


def test_a_run_of_tasks_is_over_after_the_last_step(tmp_path: Path) -> None:
    watched(tmp_path, address="", done="trainer")


def test_a_run_that_serves_people_goes_on_after_the_last_step(tmp_path: Path) -> None:
    with pytest.raises(Endless):
        watched(tmp_path, address="http://127.0.0.1:1", done="trainer")


def test_a_run_is_over_when_its_runner_has_no_task_left(tmp_path: Path) -> None:
    watched(tmp_path, address="", done="runner")


def test_a_run_whose_processes_all_work_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Endless):
        watched(tmp_path, address="", done="")


def test_a_key_is_in_the_environment_of_whoever_uses_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MY_ENDPOINT", "MY_JUDGE", "SOMETHING"):
        monkeypatch.setenv(name, "x")
    run = settings.load(overrides=(
        "serve.api_key_env=MY_ENDPOINT", "judge.api_key_env=MY_JUDGE", "judge.kind=model",
        "judge.base_url=http://127.0.0.1:1/v1"))
    names = {process: {"MY_ENDPOINT", "MY_JUDGE", "SOMETHING"} & set(environment(run, process))
             for process in ("actor", "worker-0", "trainer", "runner")}
    assert names.pop("actor") == {"MY_JUDGE", "SOMETHING"}
    assert set(map(frozenset, names.values())) == {frozenset({"SOMETHING"})}
