"""Versions change while requests run: no request is dropped, every token is its version's own."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_batching import PROMPTS, check_numbers
from worker_doubles import (
    Driver,
    backend_of,
    canary_of,
    full_version,
    load,
    lora_version,
    plain,
    plain_lora,
    publish,
    request,
    rewrite,
    score_request,
)

from claw.engine.versions import Manifest, VersionError
from claw.engine.worker import weights
from claw.engine.worker.backend import Busy, Unfinished
from claw.engine.worker.held import MAX_HELD
from claw.engine.worker.loader import check
from claw.records import Version


def stamped(got, number):
    return np.flatnonzero(got.versions == number)


def check_spans(got, prompt, models):
    """Each token has the log-prob that the version stamped on it gives."""
    for number, model in models.items():
        ids = np.array([*prompt, *got.ids])
        with torch.no_grad():
            truth = torch.log_softmax(model(torch.tensor(ids[None])).logits[0].float(), -1).numpy()
        at = stamped(got, number)
        np.testing.assert_allclose(
            got.logps[at], truth[len(prompt) - 1 + at, got.ids[at]], atol=1e-4)


# --- full weights ----------------------------------------------------------------------------


def test_a_full_swap_happens_between_tokens_and_each_token_is_exact_for_its_stamp(
    model_dir, other_dir, tmp_path
):
    driver = Driver(backend_of(model_dir, slots=3))
    driver.backend.read_tokens = 8
    requests = [request(p, max_tokens=30, session=f"s{i}") for i, p in enumerate(PROMPTS[:4])]
    driver.submit(*requests, score := score_request(PROMPTS[4]))
    driver.step(9)
    version = full_version(tmp_path / "v1", 1, other_dir, canary_of(plain(other_dir)))
    loaded = load(driver.backend, version)
    assert loaded.mismatch_max < 1e-4
    driver.finish()
    models = {0: plain(model_dir), 1: plain(other_dir)}
    swapped = 0
    for prompt, r in zip(PROMPTS, requests, strict=False):
        got = driver.got[r.id]
        assert len(got.ids) == 30 and set(got.versions) <= {0, 1}
        assert (np.diff(got.versions) >= 0).all()
        swapped += len(set(got.versions)) == 2
        check_spans(got, prompt, models)
    assert swapped >= 2, "requests ran across the swap"
    assert driver.got[score.id].end.version == 1


def test_a_swap_drops_prefixes_that_the_old_weights_computed(model_dir, other_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    first, = driver.run(request(PROMPTS[1], session="a"))
    load(driver.backend, full_version(tmp_path / "v1", 1, other_dir))
    prompt = [*PROMPTS[1], *first.ids.tolist(), 5]
    second, = driver.run(request(prompt, session="a"))
    assert second.end.cached_tokens == 0
    check_numbers(plain(other_dir), prompt, second)


def test_the_first_weights_and_older_versions_come_back(model_dir, other_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    load(driver.backend, full_version(tmp_path / "v1", 1, other_dir))
    load(driver.backend, Version("default", "default", 0, None, ""))
    got, = driver.run(request(PROMPTS[1]))
    assert set(got.versions) == {0}
    check_numbers(plain(model_dir), PROMPTS[1], got)


# --- adapters --------------------------------------------------------------------------------


def test_new_requests_use_the_new_adapter_and_running_ones_finish_on_theirs(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir, slots=6))
    v1, v2 = (lora_version(tmp_path / f"v{n}", n, model_dir) for n in (1, 2))
    requests = []
    for version in (None, v1, v2):
        if version:
            assert load(driver.backend, version).mismatch_max < 1e-4
        for _ in range(2):
            requests.append(request(PROMPTS[len(requests)], max_tokens=25))
            driver.submit(requests[-1])
        driver.step(3)
    assert set(driver.backend.held.adapters.keys) == {("default", "default", 1),
                                                 ("default", "default", 2)}
    driver.finish()
    models = {0: plain(model_dir), 1: plain_lora(model_dir, v1), 2: plain_lora(model_dir, v2)}
    for i, (prompt, r) in enumerate(zip(PROMPTS, requests, strict=False)):
        got, number = driver.got[r.id], i // 2
        assert set(got.versions) == {number} and len(got.ids) == 25
        check_spans(got, prompt, {number: models[number]})
    newest = {("default", "default", 2)}
    adapters = driver.backend.held.adapters
    assert set(adapters.keys) == newest, "the old one is gone"
    assert all(set(layer.held) == newest for layer in adapters.layers.values())


def test_rank_stabilised_and_patterned_adapters_score_as_in_peft(model_dir, tmp_path):
    for n, options in enumerate((dict(use_rslora=True), dict(alpha_pattern={"q_proj": 32}),
                                 dict(rank_pattern={"v_proj": 2}),
                                 dict(target_modules="all-linear")), start=1):
        loaded = load(backend_of(model_dir), lora_version(tmp_path / f"{n}", n, model_dir,
                                                          **options))
        assert loaded.mismatch_max < 1e-4


def test_a_hundred_adapter_swaps_leave_one_behind(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    versions = [lora_version(tmp_path / f"v{n}", n, model_dir) for n in (1, 2)]
    long = request(PROMPTS[0], max_tokens=120)
    load(driver.backend, versions[0])
    driver.submit(long)
    for i in range(100):
        driver.step()
        load(driver.backend, versions[(i + 1) % 2])
        assert len(driver.backend.held.adapters.keys) <= 2
    driver.finish()
    got = driver.got[long.id]
    assert set(got.versions) == {1} and len(got.ids) == 120
    assert len(driver.backend.held.adapters.keys) == 1


def test_a_version_waits_while_too_many_older_ones_are_in_use(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir, slots=MAX_HELD + 1))
    versions = [lora_version(tmp_path / f"v{n}", n, model_dir) for n in range(1, MAX_HELD + 2)]
    for version in versions[:MAX_HELD]:
        load(driver.backend, version)
        driver.submit(request(PROMPTS[0], max_tokens=10 * version.number))
        driver.step()
    with pytest.raises(Busy):
        load(driver.backend, versions[-1])
    driver.step(12)
    load(driver.backend, versions[-1])
    driver.finish()


def test_going_back_to_the_base_serves_without_an_adapter(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    load(driver.backend, lora_version(tmp_path / "v1", 1, model_dir))
    load(driver.backend, Version("default", "default", 0, None, "", kind="lora"))
    got, = driver.run(request(PROMPTS[1]))
    assert set(got.versions) == {0}
    check_numbers(plain(model_dir), PROMPTS[1], got)
    assert not driver.backend.held.adapters.keys


# --- piece by piece ---------------------------------------------------------------------------


def pieces_of(driver, version, steps=1):
    """Load it as the worker does, with steps between; how many pieces came before the last."""
    manifest = check(version)
    for num in range(200):
        try:
            driver.backend.load(version, manifest)
            return num
        except Unfinished:
            driver.step(steps)
    raise AssertionError("the version does not come in")


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_requests_get_exact_tokens_of_the_old_weights_between_the_pieces_of_a_version(
    kind, model_dir, other_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr(weights, "PIECE_BYTES", 4096)
    driver = Driver(backend_of(model_dir))
    version = (lora_version(tmp_path / "v1", 1, model_dir) if kind == "lora" else
               full_version(tmp_path / "v1", 1, other_dir, canary_of(plain(other_dir))))
    running = request(PROMPTS[1], max_tokens=60, session="a")
    driver.submit(running)
    driver.step(2)
    assert pieces_of(driver, version) > (2 if kind == "lora" else 10)
    driver.finish()
    got = driver.got[running.id]
    models = {0: plain(model_dir)} | ({} if kind == "lora" else {1: plain(other_dir)})
    assert set(got.versions) == set(models)
    check_spans(got, PROMPTS[1], models)
    after, = driver.run(request(PROMPTS[2]))
    assert set(after.versions) == {1}


def test_an_adapter_that_comes_in_outlives_the_requests_that_end_meanwhile(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    load(driver.backend, lora_version(tmp_path / "v1", 1, model_dir))
    driver.submit(request(PROMPTS[0], max_tokens=2), request(PROMPTS[1], max_tokens=4))
    version = lora_version(tmp_path / "v2", 2, model_dir)
    pieces_of(driver, version, steps=3)
    got, = driver.run(request(PROMPTS[2]))
    assert set(got.versions) == {2}
    check_spans(got, PROMPTS[2], {2: plain_lora(model_dir, version)})


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_newer_version_takes_the_place_of_one_that_comes_in(
    kind, model_dir, other_dir, tmp_path
):
    driver = Driver(backend_of(model_dir))
    if kind == "lora":
        first, second = (lora_version(tmp_path / f"v{n}", n, model_dir) for n in (1, 2))
    else:
        first, second = (full_version(tmp_path / f"v{n}", n, source, canary_of(plain(source)))
                         for n, source in ((1, model_dir), (2, other_dir)))
    manifest = check(first)
    for _ in range(3):
        with pytest.raises(Unfinished):
            driver.backend.load(first, manifest)
        driver.step()
    load(driver.backend, second)
    got, = driver.run(request(PROMPTS[1]))
    assert set(got.versions) == {2}
    if kind == "lora":
        assert set(driver.backend.held.adapters.keys) == {("default", "default", 2)}
    else:
        check_numbers(plain(other_dir), PROMPTS[1], got)


def test_versions_of_two_adapters_come_in_one_after_the_other(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    mine = lora_version(tmp_path / "v1", 1, model_dir)
    theirs = replace(lora_version(tmp_path / "v2", 2, model_dir), owner="ann")
    manifests = {"default": check(mine), "ann": Manifest(**asdict(check(
        lora_version(tmp_path / "v3", 2, model_dir))) | {"owner": "ann"})}
    waiting = [mine, theirs]
    for _ in range(100):  # both are asked for in turn, as the worker does
        for version in list(waiting):
            try:
                driver.backend.load(version, manifests[version.owner])
            except Busy:
                continue
            waiting.remove(version)
    assert not waiting
    assert set(driver.backend.held.adapters.keys) == {("default", "default", 1),
                                                 ("ann", "default", 2)}


# --- refusals --------------------------------------------------------------------------------


def refused(driver, version, *words):
    """The version is refused for this reason, and the previous weights serve on."""
    before = driver.run(request(PROMPTS[0]))[0]
    with pytest.raises(VersionError) as caught:
        load(driver.backend, version)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    after = driver.run(request(PROMPTS[0]))[0]
    assert after.ids.tolist() == before.ids.tolist()
    np.testing.assert_allclose(after.logps, before.logps, atol=1e-6)
    assert after.versions.tolist() == before.versions.tolist()


def spoilt(folder, change, number=1):
    """Change the tensors of a version and publish it again: its checksums are right."""
    (folder / "manifest.json").unlink()
    file = next(p for p in folder.glob("*model.safetensors"))
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    kind = "lora" if file.name.startswith("adapter") else "full"
    return publish(folder, number, kind)


def test_incomplete_and_corrupt_versions_are_refused_by_name(model_dir, other_dir, tmp_path):
    driver = Driver(backend_of(model_dir))

    def fresh(name):
        return full_version(tmp_path / name, 1, other_dir), tmp_path / name

    version, folder = fresh("a")
    (folder / "manifest.json").unlink()
    refused(driver, version, "manifest.json", "incomplete")
    version, folder = fresh("b")
    (folder / "model.safetensors").unlink()
    refused(driver, version, "model.safetensors", "missing")
    version, folder = fresh("c")
    raw = bytearray((folder / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (folder / "model.safetensors").write_bytes(raw)
    refused(driver, version, "model.safetensors", "corrupt")
    version, folder = fresh("d")
    (folder / "model.safetensors").write_bytes(raw[:-100])
    refused(driver, version, "model.safetensors", "size")
    version, folder = fresh("e")
    rewrite(folder / "manifest.json", lambda m: m.update(step=99))
    refused(driver, version, "not the announced one")
    version, folder = fresh("f")
    (folder / "manifest.json").write_text("{")
    refused(driver, Version("default", "default", 1, 0, "", path=str(folder)), "not readable")


def test_other_architectures_are_refused_by_the_tensor(model_dir, other_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    name = "model.layers.1.self_attn.q_proj.weight"
    for i, (change, words) in enumerate((
        (lambda t: t.pop(name), (name, "missing")),
        (lambda t: t.update({name: t[name][:8].clone()}), (name, "[8, 32]", "[32, 32]")),
        (lambda t: t.update({"model.layers.9.x": torch.ones(1)}), ("model.layers.9.x",)),
    )):
        folder = tmp_path / str(i)
        full_version(folder, 1, other_dir)
        refused(driver, spoilt(folder, change), *words)


def test_the_canary_catches_one_wrong_layer_and_says_where(model_dir, other_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    full_version(tmp_path / "v", 1, other_dir, canary_of(plain(other_dir)))

    def change(tensors):
        tensors["model.layers.0.mlp.down_proj.weight"] *= 1.5

    refused(driver, spoilt(tmp_path / "v", change), "sequence", "token", "nats")


def test_the_canary_catches_weights_that_are_no_numbers(model_dir, other_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    full_version(tmp_path / "v", 1, other_dir, canary_of(plain(other_dir)))
    refused(driver, spoilt(
        tmp_path / "v", lambda t: t["model.norm.weight"].fill_(float("nan"))), "nan nats")


def test_the_canary_catches_an_adapter_whose_update_was_lost(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    lora_version(tmp_path / "v", 1, model_dir)

    def change(tensors):
        for name in tensors:
            if "lora_B" in name:
                tensors[name] *= 0

    refused(driver, spoilt(tmp_path / "v", change), "canary", "nats")
    assert not driver.backend.held.adapters.keys


@pytest.mark.parametrize(("change", "words"), [
    (lambda t: t.clear(), ("binds no layer",)),
    (lambda t: [t.update({n.replace("self_attn", "attention"): t.pop(n)}) for n in list(t)],
     ("no such layer", "attention")),
    (lambda t: t.update({"strange": torch.ones(1)}), ("strange",)),
    (lambda t: t.pop("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"),
     ("A or B is missing", "layers.0.self_attn.q_proj")),
    (lambda t: [t.update({n: w[:, :5].clone()}) for n, w in list(t.items()) if "lora_A" in n],
     ("another shape",)),
])
def test_adapters_that_do_not_bind_are_refused(change, words, model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    lora_version(tmp_path / "v", 1, model_dir)
    refused(driver, spoilt(tmp_path / "v", change), *words)
    assert not driver.backend.held.adapters.keys


def test_adapters_with_parts_that_are_not_served_are_refused(model_dir, tmp_path):
    driver = Driver(backend_of(model_dir))
    for n, options in enumerate((dict(use_dora=True), dict(modules_to_save=["norm"]))):
        folder = tmp_path / str(n)
        version = lora_version(folder, 1, model_dir, canary=False, **options)
        refused(driver, version, next(iter(options)))
