"""What the processes of a run are given of the launcher's environment."""

import pytest

from claw import config
from claw.engine.launch import environment


def test_a_key_is_in_the_environment_of_whoever_uses_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MY_ENDPOINT", "MY_JUDGE", "SOMETHING"):
        monkeypatch.setenv(name, "x")
    run = config.load(overrides=(
        "serve.api_key_env=MY_ENDPOINT", "judge.api_key_env=MY_JUDGE", "judge.kind=model",
        "judge.base_url=http://127.0.0.1:1/v1"))
    names = {process: {"MY_ENDPOINT", "MY_JUDGE", "SOMETHING"} & set(environment(run, process))
             for process in ("actor", "worker-0", "trainer", "runner")}
    assert names.pop("actor") == {"MY_JUDGE", "SOMETHING"}
    assert set(map(frozenset, names.values())) == {frozenset({"SOMETHING"})}
