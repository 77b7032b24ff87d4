"""A picture in the size, the patches and the positions that transformers itself gives it."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from seeing import encoded, image_id, inputs, picture, plain, processor, prompt

from claw.engine.pictures import BadPicture, lens_of
from claw.errors import ClawError


@pytest.mark.parametrize(("width", "height"), [
    (40, 24), (8, 8), (9, 30), (200, 100), (641, 13), (64, 64),
])
def test_patches_are_those_of_transformers_own_processor(
    tiny_qwen3_vl_dir: Path, width: int, height: int
) -> None:
    lens, image = lens_of(tiny_qwen3_vl_dir), picture(1, width, height)
    assert lens is not None
    wanted = processor(tiny_qwen3_vl_dir)(images=[image, picture(2)], return_tensors="np")
    found, sizes = lens.patches([lens.pixels(encoded(image)), lens.pixels(encoded(picture(2)))])
    np.testing.assert_array_equal(sizes, wanted["image_grid_thw"])
    np.testing.assert_array_equal(found, wanted["pixel_values"])


@pytest.mark.parametrize("mode", ["RGBA", "L", "P", "LA"])
def test_other_modes_are_read_as_transformers_reads_them(
    tiny_qwen3_vl_dir: Path, mode: str
) -> None:
    image = picture(3).convert(mode)
    if "A" in mode:
        image.putalpha(90)
    lens = lens_of(tiny_qwen3_vl_dir)
    assert lens is not None
    data = encoded(image)
    again = Image.open(io.BytesIO(data))
    wanted = processor(tiny_qwen3_vl_dir)(images=[again], return_tensors="np")["pixel_values"]
    np.testing.assert_array_equal(lens.patches([lens.pixels(data)])[0], wanted)


def test_positions_are_those_of_the_models_own_rope(tiny_qwen3_vl_dir: Path) -> None:
    images = [picture(1), picture(2, 16, 56), picture(3, 64, 16)]
    ids = prompt(tiny_qwen3_vl_dir, "ab", images[0], "c", images[1], images[2], "after")
    given = inputs(tiny_qwen3_vl_dir, ids, images)
    model = plain(tiny_qwen3_vl_dir)
    wanted, _ = model.model.get_rope_index(
        given["input_ids"], mm_token_type_ids=given["mm_token_type_ids"],
        image_grid_thw=given["image_grid_thw"])
    lens = lens_of(tiny_qwen3_vl_dir)
    assert lens is not None
    pixels = [lens.pixels(encoded(i)) for i in images]
    places = lens.places(np.array(ids), pixels)
    np.testing.assert_array_equal(lens.positions(places, pixels), wanted[:, 0].numpy())
    assert torch.equal(torch.from_numpy(places >= 0), given["mm_token_type_ids"][0].bool())


def test_a_sampled_picture_token_is_no_picture(tiny_qwen3_vl_dir: Path) -> None:
    lens = lens_of(tiny_qwen3_vl_dir)
    assert lens is not None
    pixels, token = [lens.pixels(encoded(picture(1)))], image_id(tiny_qwen3_vl_dir)
    ids = np.array([*prompt(tiny_qwen3_vl_dir, "a", picture(1), "b"), token, 40, token])
    places = lens.places(ids, pixels)
    assert (places[-3:] == -1).all() and places.max() == lens.num_tokens(pixels[0]) - 1


@pytest.mark.parametrize(("change", "words"), [
    (lambda ids, at: np.delete(ids, at[0]), "14 tokens stand for pictures; they have 15"),
    (lambda ids, at: np.insert(ids, at[4], 40), "do not follow each other"),
])
def test_a_prompt_without_its_pictures_tokens_is_found(tiny_qwen3_vl_dir, change, words) -> None:
    lens = lens_of(tiny_qwen3_vl_dir)
    pixels = [lens.pixels(encoded(picture(1)))]
    ids = np.array(prompt(tiny_qwen3_vl_dir, "a", picture(1), "b"))
    at = np.flatnonzero(ids == image_id(tiny_qwen3_vl_dir))
    with pytest.raises(ValueError, match=words):
        lens.places(change(ids, at), pixels)


def test_what_is_no_picture_is_refused_before_it_costs_anything(tiny_qwen3_vl_dir: Path) -> None:
    lens = lens_of(tiny_qwen3_vl_dir)
    assert lens is not None
    huge = Image.new("1", (6000, 6000))
    for data, words in [
        (b"GIF89a", "neither PNG nor JPEG"), (encoded(huge), "6000 x 6000 pixels"),
        (encoded(picture(1))[:90], "cannot be decoded"), (encoded(picture(1, 9, 2400)), "200 to 1"),
    ]:
        with pytest.raises(BadPicture, match=words):
            lens.pixels(data)


def test_a_text_model_has_no_lens_and_a_vision_model_must_say_its_sizes(
    tiny_llama_dir: Path, tiny_qwen3_vl_dir: Path, tmp_path: Path
) -> None:
    assert lens_of(tiny_llama_dir) is None
    (tmp_path / "config.json").write_text((tiny_qwen3_vl_dir / "config.json").read_text())
    with pytest.raises(ClawError, match=r"preprocessor_config.json lacks size, patch_size"):
        lens_of(tmp_path)
