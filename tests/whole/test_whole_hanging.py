"""A process that is stopped and stays so is replaced by its launcher, while people talk."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kept import lost_nothing, serves_the_newest_good_version, trained_nothing_twice
from system import System, until
from talk import Person, people

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DEAD_AFTER_S = 8.0


@pytest.fixture(scope="module")
def system(whole_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    made = System(tmp_path_factory.mktemp("runs"), whole_model, "serve.session_idle_s=2.0",
                  f"wire.dead_after_s={DEAD_AFTER_S}", "train.max_wait_s=1.0")
    try:
        yield made.start()
    finally:
        made.stop()


def test_whoever_stands_still_is_replaced_and_nothing_is_lost(system: System) -> None:
    with people(system, 3) as talkers:
        assert until(lambda: system.steps() >= 2, 90, 0.5), "nobody taught anything"
        for name in ("worker-0", "trainer", "runner", "actor"):
            _stop_and_recover(system, name, talkers)
    heard = [h for person in talkers for h in person.heard]
    assert all(h.finish in ("stop", "length") for h in heard)
    system.settle()
    lost_nothing(system, [h.turn_id for h in heard])
    trained_nothing_twice(system)
    serves_the_newest_good_version(system)


def _stop_and_recover(system: System, name: str, talkers: list[Person]) -> None:
    """Stop one for good; another takes its place, people are answered, the policy learns on."""
    stopped = system.pids()[name]
    os.kill(stopped, signal.SIGSTOP)
    if name == "trainer":  # nobody waits for it
        since = _answers(talkers)
        assert until(lambda: min(_since(talkers, since)) > 1, 60, 0.2)
    assert until(lambda: system.pids()[name] != stopped, 120), f"{name} was not replaced"
    assert not Path(f"/proc/{stopped}").exists()
    assert f"{name} hangs: it was stopped" in system.said()
    steps, since = system.steps(), _answers(talkers)
    assert until(lambda: min(_since(talkers, since)) > 1, 90, 0.5), (
        name, [p.failures[-2:] for p in talkers])
    assert until(lambda: system.steps() > steps, 90, 0.5), f"no step after {name} stood still"


def _answers(talkers: list[Person]) -> list[int]:
    return [len(person.heard) for person in talkers]


def _since(talkers: list[Person], before: list[int]) -> list[int]:
    return [now - then for now, then in zip(_answers(talkers), before, strict=True)]
