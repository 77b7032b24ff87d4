"""What a swap can do wrong without a word, done on purpose: each is caught and named."""

import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from worker_doubles import (
    Driver,
    backend_of,
    canary_of,
    full_version,
    load,
    lora_version,
    plain,
    publish,
    request,
)

from claw.engine import tensors
from claw.engine.versions import VersionError
from claw.engine.worker.adapters import Adapters, LoraLinear
from claw.engine.worker.prefix import Prefixes
from claw.engine.worker.weights import FullWeights

TWO = ("model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.down_proj.weight")


@pytest.fixture
def driver(model_dir):
    return Driver(backend_of(model_dir))


@pytest.fixture
def version(other_dir, tmp_path):
    return full_version(tmp_path / "v1", 1, other_dir, canary_of(plain(other_dir), 32))


def refused(driver, version, *words):
    """Loading is refused with these words; what is sampled after is what was sampled before."""
    before, = driver.run(request([5, 6, 7]))
    with pytest.raises(VersionError) as caught:
        load(driver.backend, version)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    after, = driver.run(request([5, 6, 7]))
    assert after.ids.tolist() == before.ids.tolist() and set(after.versions) == {0}
    np.testing.assert_allclose(after.logps, before.logps, atol=1e-6)
    return caught.value


def spoilt_copy(monkeypatch, change):
    """The worker places what `change` makes of the version's tensors."""
    read = FullWeights.read

    def spoilt(self, folder, manifest):
        return change((yield from read(self, folder, manifest)))

    monkeypatch.setattr(FullWeights, "read", spoilt)


def test_two_layers_whose_weights_are_swapped_are_caught_and_the_first_is_named(
    driver, version, monkeypatch
):
    spoilt_copy(monkeypatch, lambda t: t | {TWO[0]: t[TWO[1]], TWO[1]: t[TWO[0]]})
    refused(driver, version, "2 differ", TWO[0])


def test_one_skipped_tensor_is_caught_however_small_its_change(
    driver, model_dir, tmp_path, monkeypatch
):
    other = plain(model_dir)
    with torch.no_grad():
        other.get_parameter(TWO[1])[0, 0] += 1e-4
    other.save_pretrained(tmp_path / "other")
    version = full_version(tmp_path / "v1", 1, tmp_path / "other", canary_of(other, 32))
    spoilt_copy(monkeypatch, lambda t: {n: w for n, w in t.items() if n != TWO[1]})
    refused(driver, version, "1 differ", TWO[1])
    monkeypatch.undo()
    assert load(driver.backend, version).mismatch_max < 1e-4


def test_layers_that_were_swapped_when_the_version_was_written_are_caught_and_named(
    driver, other_dir, tmp_path
):
    folder = tmp_path / "v1"
    full_version(folder, 1, other_dir, canary_of(plain(other_dir), 32))
    (folder / "manifest.json").unlink()
    held = load_file(folder / "model.safetensors")
    wrong = held | {TWO[0]: held[TWO[1]], TWO[1]: held[TWO[0]]}
    save_file(wrong, folder / "model.safetensors")
    checksums = {n: tensors.checksum(t.numpy().tobytes()) for n, t in held.items()}
    version = publish(folder, 1, "full", checksums=checksums)
    refused(driver, version, "the trainer's tensors", TWO[0],
            f"instead of {checksums[TWO[0]]}")


def test_a_tensor_that_was_not_written_is_named(driver, other_dir, tmp_path):
    folder = tmp_path / "v1"
    full_version(folder, 1, other_dir)
    (folder / "manifest.json").unlink()
    held = load_file(folder / "model.safetensors")
    checksums = {n: tensors.checksum(t.numpy().tobytes()) for n, t in held.items()}
    save_file({n: t for n, t in held.items() if n != TWO[0]}, folder / "model.safetensors")
    refused(driver, publish(folder, 1, "full", checksums=checksums), f"{TWO[0]} is missing")


def test_an_adapter_that_binds_no_module_is_caught_and_the_layer_named(
    driver, model_dir, tmp_path, monkeypatch
):
    def loose(self, name):
        return self.layers.setdefault(
            name, LoraLinear(self.model.get_submodule(name), self.routing))

    monkeypatch.setattr(Adapters, "_layer", loose)
    version = lora_version(tmp_path / "v1", 1, model_dir)
    refused(driver, version, "not bound", "model.layers.0.mlp.down_proj")
    assert not driver.backend.held.adapters.keys


def test_an_adapter_with_one_tensor_left_as_it_was_is_caught_and_named(
    driver, model_dir, tmp_path, monkeypatch
):
    put = Adapters.load

    def half(self, key, folder, names):
        put(self, key, folder, names)
        held = self.layers["model.layers.1.self_attn.v_proj"].held
        held[key].b.mul_(1 + 1e-5)

    monkeypatch.setattr(Adapters, "load", half)
    refused(driver, lora_version(tmp_path / "v1", 1, model_dir), "adapter's tensor",
            "model.layers.1.self_attn.v_proj.lora_B")


def test_a_prefix_cache_that_older_weights_filled_is_caught(driver, version, monkeypatch):
    monkeypatch.setattr(Prefixes, "clear", lambda self: None)
    error = refused(driver, version, "canary disagrees", "nats apart", "kept of older weights")
    assert re.search(r"token (1[7-9]|2\d|3[01]):", str(error)), "behind the half that was kept"
    monkeypatch.undo()
    driver.backend.prefixes.clear()
    assert load(driver.backend, version).mismatch_max < 1e-4


def test_adapters_that_are_told_apart_by_nobody_s_prefix_are_caught(
    driver, model_dir, tmp_path, monkeypatch
):
    find = Prefixes.find

    def any_weights(self, session, weights, ids):
        entry = self._entries.get(session)
        return find(self, session, entry.weights if entry else weights, ids)

    monkeypatch.setattr(Prefixes, "find", any_weights)
    version = lora_version(tmp_path / "v1", 1, model_dir, length=32)
    refused(driver, version, "canary disagrees", "kept of older weights")


def test_the_difference_is_told_with_the_refusal_and_with_the_load(driver, other_dir, tmp_path):
    ids, logps = canary_of(plain(other_dir), 32)
    for number, shift in ((1, 0.25), (2, 0.02)):
        shifted = logps.copy()
        shifted[1, 20] += shift
        version = full_version(tmp_path / f"v{number}", number, other_dir, (ids, shifted))
        expected = pytest.approx((shift, shift / logps.size), abs=1e-4)
        if number == 1:
            error = refused(driver, version, "sequence 1, token 21: 0.25 nats")
            assert error.mismatch == expected
        else:
            loaded = load(driver.backend, version)
            assert (loaded.mismatch_max, loaded.mismatch_mean) == expected
