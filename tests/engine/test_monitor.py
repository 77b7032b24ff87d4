"""Metrics always reach the file, and never the run."""

import json
import math
import resource
from pathlib import Path

import pytest

from claw.config import TrackConfig
from claw.engine.monitor import Monitor
from claw.errors import UsageError


def test_every_record_is_a_line_and_what_json_cannot_say_is_null(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, TrackConfig(), {})
    monitor.log({"train/loss": 0.5, "why": "x"}, 1)
    monitor.log({"train/loss": math.nan, "train/grad_norm": math.inf}, 2)
    first, second = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (first["step"], first["train/loss"], first["why"]) == (1, 0.5, "x")
    assert second["train/loss"] is None and second["train/grad_norm"] is None


def test_a_tracker_that_is_not_installed_is_an_error_at_start(tmp_path: Path) -> None:
    for name in ("wandb", "tensorboard", "trackio"):
        try:
            __import__(name)
        except ImportError:
            with pytest.raises(UsageError, match=f"pip install {name}"):
                Monitor(tmp_path, TrackConfig(to=(name,)), {})


def test_an_outlet_that_fails_goes_quiet_and_the_others_go_on(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, TrackConfig(), {})
    seen = []

    def broken(record: dict, step: int) -> None:
        raise OSError("the network is away")

    monitor.outlets = {"broken": broken, "list": lambda r, s: seen.append(s), **monitor.outlets}
    monitor.log({"a": 1.0}, 1)
    monitor.log({"a": 2.0}, 2)
    assert seen == [1, 2] and "broken" not in monitor.outlets
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_folder_that_is_gone_does_not_end_the_run(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path / "gone", TrackConfig(), {})
    monitor.log({"a": 1.0}, 1)
    monitor.close()
    monitor.log({"a": 1.0}, 2)


def test_a_line_that_finds_no_room_is_lost_and_the_next_one_is_not(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, TrackConfig(), {})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        monitor.log({"train/loss": 0.5}, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monitor.log({"train/loss": 0.4}, 2)
    [line] = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert line["step"] == 2
