"""The disk of a run fills up while people talk: it says so, loses nothing, and goes on."""

from pathlib import Path

import disks
import pytest
from kept import lost_nothing, serves_the_newest_good_version, trained_nothing_twice
from system import System, until
from talk import people

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(400)]


def test_a_full_disk_stops_learning_and_accepting_until_there_is_room(
    whole_model: Path, tmp_path: Path
) -> None:
    with disks.small(tmp_path, 48) as disk:
        system = System(disk, whole_model, "serve.session_idle_s=2.0", "train.max_wait_s=1.0",
                        "rollout.max_tokens=12")
        try:
            system.start()
            with people(system, 2, tokens=12) as talkers:
                assert until(lambda: system.steps() >= 1, 90, 0.5)
                pids, rest = system.pids(), disk / "rest"
                fill(rest)
                assert until(lambda: any("the journal cannot be written" in words
                                         for p in talkers for _, words in p.failures), 90, 0.5)
                assert system.status()["workers"], "it answers still"
                rest.unlink()
                steps, heard = system.steps(), {p: len(p.heard) for p in talkers}
                assert until(lambda: all(len(p.heard) > heard[p] + 2 for p in talkers), 90, 0.5)
                assert until(lambda: system.steps() > steps, 90, 0.5)
            assert system.pids() == pids, "a process died of it"
            system.settle()
            lost_nothing(system, [h.turn_id for p in talkers for h in p.heard])
            trained_nothing_twice(system)
            serves_the_newest_good_version(system)
            said = (system.run / "logs" / "actor.log").read_text()
            assert "nothing new is accepted" in said and "free space on that disk" in said
        finally:
            system.stop()


def fill(file: Path) -> None:
    """Take all room that the file's disk has."""
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"0" * 4096)
        except OSError:
            pass
