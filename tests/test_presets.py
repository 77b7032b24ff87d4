"""Presets are one more layer of settings."""

from pathlib import Path

import pytest

from claw import config as settings
from claw import presets
from claw.engine.report import play, read_config
from claw.errors import UsageError


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_is_a_run_that_can_be_honoured(name: str) -> None:
    config = settings.load(None, (), presets.values(name))
    assert config.lora.rank and config.train.gradient_checkpointing


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no such preset") as caught:
        presets.values("24g")
    assert "8gb, 16gb, 24gb, 80gb" in str(caught.value)


def test_a_preset_is_above_the_plugin_and_below_the_file_and_the_command_line(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[worker]\nslots = 3\n")
    found = read_config([str(file), "train.micro_tokens=100"], "toolcall", "", "16gb")
    plain = read_config([], "toolcall", "")
    assert found.lora.quantize == "nf4" and plain.lora.quantize == "none"
    assert found.train.gradient_checkpointing
    assert (found.worker.slots, found.train.micro_tokens) == (3, 100)
    assert found.train.lr == plain.train.lr != settings.RunConfig().train.lr


def test_a_run_that_is_continued_takes_no_preset(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no effect on a run that is continued"):
        play([], plugin="", model="", resume=tmp_path, preset="8gb")
