"""Tokens that a worker samples under pictures are those of transformers' own forward."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from seeing import encoded, image_id, picture, plain, plain_logps, prompt
from worker_doubles import (
    Driver,
    backend_of,
    load,
    lora_version,
    make_model,
    publish,
    request,
)

from claw.engine.pictures import lens_of
from claw.engine.wire import Message, pack
from claw.engine.worker import guard
from claw.engine.worker.backend import RequestError
from claw.records import Sampling

A, B, C = picture(1), picture(2, 16, 56), picture(3, 64, 32)


@pytest.fixture(scope="module")
def model(tiny_qwen3_vl_dir: Path):
    return plain(tiny_qwen3_vl_dir)


def shows(folder: Path, *pieces, **more):
    """A request whose prompt is text and pictures."""
    lens = lens_of(folder)
    pixels = tuple(lens.pixels(encoded(p)) for p in pieces if not isinstance(p, str))
    return replace(request(prompt(folder, *pieces), **more), pictures=pixels)


def check(model, folder: Path, asked, got, images, temperature=1.0, start=0) -> None:
    ids = [*asked.prompt_ids.tolist(), *got.ids.tolist()]
    truth = plain_logps(model, folder, ids, images, temperature)[len(asked.prompt_ids) - 1 :]
    rows = np.arange(start, len(got.ids))
    np.testing.assert_allclose(got.logps[start:], truth[rows, got.ids[start:]], atol=1e-4)
    order = np.argsort(-truth, axis=1, kind="stable")[:, :4]
    np.testing.assert_allclose(
        got.topk_logps[start:], np.take_along_axis(truth, order, 1)[start:], atol=1e-4)


def test_log_probs_under_pictures_are_those_of_a_plain_forward(model, tiny_qwen3_vl_dir) -> None:
    folder = tiny_qwen3_vl_dir
    asked = shows(folder, "What is in ", A, " and in ", B, C, "?", seed=3, logprobs_k=4)
    [got] = Driver(backend_of(folder)).run(asked)
    assert len(got.ids) == 12
    check(model, folder, asked, got, [A, B, C])
    blind = plain_logps(model, folder, [*asked.prompt_ids.tolist(), *got.ids.tolist()], [B, A, C])
    differ = np.abs(got.logps - blind[len(asked.prompt_ids) - 1 :][np.arange(12), got.ids])
    assert differ.max() > 0.1, "which picture is where must matter"


def test_a_crowded_batch_reads_pictures_in_pieces_beside_text(model, tiny_qwen3_vl_dir) -> None:
    folder = tiny_qwen3_vl_dir
    driver = Driver(backend_of(folder))
    driver.backend.read_tokens = 5  # a picture has 15 tokens and more
    cases = [(("x", A, "y"), [A]), (("only words, and many of them",), []),
             (("b", B, C, "z"), [B, C]), (("again ", C, "w"), [C]), (("k",), [])]
    requests = []
    for i, (pieces, _) in enumerate(cases):
        temperature = (1.0, 0.0, 0.7, 1.0, 1.3)[i]
        requests.append(shows(folder, *pieces, seed=i, logprobs_k=4, temperature=temperature))
        driver.submit(requests[-1])
        driver.step(2)
    driver.finish()
    for asked, (_, images) in zip(requests, cases, strict=True):
        check(model, folder, asked, driver.got[asked.id], images, asked.sampling.temperature)


def test_a_kept_prefix_is_found_by_its_pictures_and_never_under_others(
    model, tiny_qwen3_vl_dir
) -> None:
    folder = tiny_qwen3_vl_dir
    driver = Driver(backend_of(folder))
    words = "Some words that are the same "
    first = shows(folder, words, A, " end", session="s", seed=1, logprobs_k=4)
    driver.run(first)
    more = shows(folder, words, A, " end, and more ", C, "!", session="s", seed=2, logprobs_k=4)
    [got] = driver.run(more)
    assert got.end.cached_tokens == len(first.prompt_ids)
    check(model, folder, more, got, [A, C])
    other = picture(77)  # of the same size: the same ids
    swapped = shows(folder, words, other, " end, and more ", C, "!", session="s", seed=2,
                    logprobs_k=4)
    assert swapped.prompt_ids.tolist() == more.prompt_ids.tolist()
    [got] = driver.run(swapped)
    assert got.end.cached_tokens == len(prompt(folder, words)) + 1  # to the picture's begin
    check(model, folder, swapped, got, [other, C])


def test_a_picture_token_in_a_reply_is_a_token_like_any_other(model, tiny_qwen3_vl_dir) -> None:
    folder = tiny_qwen3_vl_dir
    asked = shows(folder, "see ", A, "?", seed=1, logprobs_k=4, max_tokens=6)
    sampled = np.array([*asked.prompt_ids, image_id(folder), 40, image_id(folder)], np.int32)
    asked = replace(asked, prompt_ids=sampled)  # as a second attempt continues the first
    [got] = Driver(backend_of(folder)).run(asked)
    check(model, folder, asked, got, [A])


@pytest.mark.parametrize("steps", [1, 6])
def test_new_weights_look_again(model, tiny_qwen3_vl_dir, tmp_path, steps) -> None:
    """They come while a picture is being read, and while the reply is sampled."""
    folder = tiny_qwen3_vl_dir
    changed = plain(folder)
    for name, weight in changed.named_parameters():
        if "merger" in name or name.endswith("mlp.down_proj.weight"):
            weight.data.mul_(1.3)
    changed.save_pretrained(tmp_path / "v")
    version = publish(tmp_path / "v", 1, "full")
    driver = Driver(backend_of(folder))
    asked = shows(folder, "see ", A, B, "?", seed=3, logprobs_k=4, max_tokens=20)
    driver.submit(asked)
    if steps == 1:
        driver.backend.read_tokens = 2
    driver.step(steps)
    [slot] = driver.backend.batch.slots
    assert 0 < slot.filled < len(asked.prompt_ids) or steps > 1
    load(driver.backend, version)
    driver.finish()
    got = driver.got[asked.id]
    start = int(np.argmax(got.versions == 1))
    assert (start == 0) == (steps == 1) and start < 20
    check(changed, folder, asked, got, [A, B], start=start)


def test_an_adapter_is_served_over_pictures(tiny_qwen3_vl_dir, tmp_path, monkeypatch) -> None:
    import worker_doubles
    from peft import PeftModel

    folder = tiny_qwen3_vl_dir
    monkeypatch.setattr(worker_doubles, "plain", plain)
    version = lora_version(tmp_path / "v", 1, folder, target_modules=(
        r".*language_model.*\.(q_proj|v_proj|down_proj)"))
    backend = backend_of(folder)
    load(backend, version)
    asked = shows(folder, "see ", A, "?", seed=3, logprobs_k=4)
    [got] = Driver(backend).run(asked)
    assert (got.versions == 1).all()
    adapted = PeftModel.from_pretrained(plain(folder), version.path).eval()
    check(adapted.get_base_model(), folder, asked, got, [A])


def test_pictures_that_do_not_fit_the_prompt_never_reach_the_model(
    tiny_qwen3_vl_dir, tmp_path
) -> None:
    folder = tiny_qwen3_vl_dir
    sees = backend_of(folder).limits
    blind = backend_of(make_model(tmp_path / "text")).limits
    ids = np.array(prompt(folder, "x", A, "y"), np.int32)
    pixels = lens_of(folder).pixels(encoded(A))

    def refused(limits, *pictures, prompt_ids=ids, number=1) -> str:
        arrays = {"prompt_ids": prompt_ids} | {f"pictures.{i}": p for i, p in enumerate(pictures)}
        message = Message("generate", "1", {"sampling": pack(Sampling())[0], "pictures": number},
                          arrays)
        with pytest.raises(RequestError) as error:
            guard.read_generate(message, limits, 10.0)
        assert error.value.code == "bad_request"
        return str(error.value)

    assert "takes no pictures" in refused(blind, pixels)
    assert "array pictures.1 is missing" in refused(sees, pixels, number=2)
    assert "allowed: whole numbers from 0 to 64" in refused(sees, pixels, number=65)
    assert "got float32" in refused(sees, pixels.astype(np.float32))
    assert "no size of this model's pictures" in refused(sees, pixels[:-1])
    assert "they have 15" in refused(sees, pixels, prompt_ids=ids[:9])
