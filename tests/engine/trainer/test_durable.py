"""What lies on the disk: versions, checkpoints, resuming, going back."""

import resource
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench import config, lease, near, trainer
from safetensors.numpy import load_file
from some_samples import batch
from tiny import tiny_llama

from claw.engine import versions
from claw.engine.trainer import checkpoint, durable, heldout, weights
from claw.engine.trainer.batch import lay
from claw.engine.trainer.trainer import Trainer
from claw.errors import ClawError, UsageError
from claw.records import Version, VersionStatus


def fast(rank: int, **sections: Any) -> Any:
    train = {"lr": 1e-2, "keep_versions": 2} | sections.pop("train", {})
    gate = {"max_rise": 50.0}
    return config(lora={"rank": rank, "dropout": 0.1 if rank else 0.0}, train=train, gate=gate,
                  **sections)


def weights_of(t: Trainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in t.policy.parameters.items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


@pytest.mark.parametrize("rank", [0, 4])
def test_a_resumed_run_takes_bitwise_the_same_next_step(
    tiny_llama_dir: Path, tmp_path: Path, rank: int
) -> None:
    c = fast(rank, loss={"teacher": "ema", "hint_choice": "random"}, train={"warmup_steps": 5})
    t = trainer(tiny_llama_dir, tmp_path, c)
    for i in range(2):
        t.train(lease(near(t.policy, batch(3, seed=i)), f"lease_{i}"))
    samples = near(t.policy, batch(3, seed=9))
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "copy" / "checkpoints")
    went_on, _, _ = t.train(lease(samples, "lease_9"))
    np.random.rand(3)
    torch.rand(3)  # a restart finds the generators somewhere else
    again = trainer(tiny_llama_dir, tmp_path / "copy", c, resume=True)
    assert again.learner.progress.last_lease == "lease_1" and again.learner.progress.step == 2
    resumed, _, _ = again.train(lease(samples, "lease_9"))
    assert resumed.loss.total == went_on.loss.total and resumed.lr == went_on.lr
    assert resumed.grad_norm == went_on.grad_norm
    assert same(weights_of(again), weights_of(t))
    assert all(torch.equal(a, t.policy.ema[n]) for n, a in again.policy.ema.items())


@pytest.mark.parametrize("rank", [0, 4])
def test_a_version_is_a_checked_folder_that_loads_like_any_other(
    tiny_qwen3_dir: Path, tmp_path: Path, rank: int
) -> None:
    from transformers import AutoModelForCausalLM

    t = trainer(tiny_qwen3_dir, tmp_path, fast(rank))
    _, version, why = t.train(lease(near(t.policy, batch(3))))
    folder = tmp_path / "versions/default/default/1"
    assert not why and version.path == str(folder)
    manifest = versions.check_version(folder, version.checksum)
    assert (manifest.number, manifest.parent, manifest.step) == (1, 0, 1)
    assert manifest.kind == version.kind == ("lora" if rank else "full")
    if rank:
        from peft import PeftModel

        base = AutoModelForCausalLM.from_pretrained(tiny_qwen3_dir)
        plain = PeftModel.from_pretrained(base, folder)
    else:
        plain = AutoModelForCausalLM.from_pretrained(folder)
    canary = load_file(folder / "canary.safetensors")
    ids = torch.as_tensor(canary["ids"]).long()
    assert canary["ids"].dtype == np.int32 and canary["logps"].dtype == np.float32
    with torch.no_grad():
        logps = plain(input_ids=ids).logits[:, :-1].log_softmax(-1)
    wanted = logps.gather(2, ids[:, 1:, None])[:, :, 0].numpy()
    np.testing.assert_allclose(canary["logps"], wanted, atol=2e-5)


def test_a_half_written_version_is_not_seen_and_is_taken_away(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(4))
    shelf = tmp_path / "versions/default/default"
    shutil.copytree(shelf / "0", shelf / "1")
    (shelf / "1" / "manifest.json").unlink()
    (shelf / ".2.part").mkdir()
    with pytest.raises(versions.VersionError, match="no manifest"):
        weights.load(t.policy, shelf / "1")
    again = trainer(tiny_llama_dir, tmp_path, fast(4), resume=True)
    assert [v.number for v in again.learner.progress.versions] == [0]
    assert sorted(p.name for p in shelf.iterdir()) == ["0"]


def test_a_version_whose_step_did_not_become_durable_is_made_again(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(4))
    samples = near(t.policy, batch(3))
    first, _, _ = t.train(lease(samples))
    newest = checkpoint.newest(tmp_path / "checkpoints" / "default")
    shutil.rmtree(newest)  # killed just before it was written
    again = trainer(tiny_llama_dir, tmp_path, fast(4), resume=True)
    assert again.learner.progress.step == 0 and again.learner.progress.last_lease == ""
    assert not (tmp_path / "versions/default/default/1").exists()
    second, version, _ = again.train(lease(samples))
    assert (second.loss.total, version.number) == (first.loss.total, 1)


def flip_a_bit(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[-5] ^= 1
    file.write_bytes(raw)


SPOIL = {
    "no manifest": lambda p: (p / "manifest.json").unlink(),
    "half a manifest": lambda p: (p / "manifest.json").write_bytes(
        (p / "manifest.json").read_bytes()[:20]),
    "half a file": lambda p: (p / "tensors.safetensors").write_bytes(b"short"),
    "a flipped bit": lambda p: flip_a_bit(p / "tensors.safetensors"),
    "a flipped bit of the state": lambda p: flip_a_bit(p / "state.json"),
}


@pytest.mark.parametrize("how", SPOIL)
def test_a_damaged_checkpoint_is_passed_over(
    tiny_llama_dir: Path, tmp_path: Path, how: str
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(4))
    t.train(lease(near(t.policy, batch(2))))
    folder = tmp_path / "checkpoints" / "default"
    before, newest = sorted(folder.iterdir())
    assert checkpoint.newest(folder) == newest
    SPOIL[how](newest)
    assert checkpoint.newest(folder) == before
    again = trainer(tiny_llama_dir, tmp_path, fast(4), resume=True)
    _, version, _ = again.train(lease(near(again.policy, batch(2)), "lease_2"))
    # version 1 of a finished step serves already; one that was never finished was never told
    assert version.number == (1 if how == "no manifest" else 2)


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew_over_its_versions(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(4))
    t.train(lease(near(t.policy, batch(2))))
    for folder in (tmp_path / "checkpoints" / "default").iterdir():
        flip_a_bit(folder / "tensors.safetensors")
    with pytest.raises(ClawError, match="has another sha256"):
        trainer(tiny_llama_dir, tmp_path, fast(4), resume=True)
    assert sorted(p.name for p in (tmp_path / "versions/default/default").iterdir()) == ["0", "1"]


def test_the_newest_two_checkpoints_and_the_versions_asked_for_stay(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(4))
    for i in range(5):
        t.train(lease(near(t.policy, batch(2, seed=i)), f"lease_{i}"))
    shelf = tmp_path / "versions/default/default"
    assert sorted(p.name for p in shelf.iterdir()) == ["0", "4", "5"]
    assert [v.number for v in t.learner.progress.versions] == [0, 4, 5]
    assert len(list((tmp_path / "checkpoints" / "default").iterdir())) == 2


def test_the_version_that_is_trained_stays_however_many_are_refused_after_it(
    tmp_path: Path,
) -> None:
    shelf = weights.Shelf(tmp_path)
    known = [Version("default", "default", n, None, "") for n in range(9)]
    for v in known:
        shelf.path(v.number).mkdir(parents=True)
    kept = weights.prune(shelf, known, keep=3, current=known[2])
    assert [v.number for v in kept] == [0, 2, 6, 7, 8]
    assert sorted(int(p.name) for p in shelf.folder.iterdir()) == [0, 2, 6, 7, 8]


def test_a_new_run_does_not_start_over_an_old_one(tiny_llama_dir: Path, tmp_path: Path) -> None:
    trainer(tiny_llama_dir, tmp_path, fast(4))
    with pytest.raises(UsageError, match="has a checkpoint already"):
        trainer(tiny_llama_dir, tmp_path, fast(4))
    with pytest.raises(UsageError, match="of another model"):
        trainer(tiny_llama_dir, tmp_path, fast(8), resume=True)


def taught(folder: Path) -> Path:
    """A tiny model that knows the held-out texts, so that there is something to unlearn."""
    from transformers import AutoModelForCausalLM

    texts = heldout.encode(tiny_llama(folder, initializer_range=0.02))
    lm = AutoModelForCausalLM.from_pretrained(folder)
    adam = torch.optim.Adam(lm.parameters(), lr=1e-2)
    micro = lay(texts)
    for _ in range(30):
        logits = micro.at_replies(lm(input_ids=micro.ids_BL).logits)
        torch.nn.functional.cross_entropy(logits, micro.reply_ids_T).backward()
        adam.step()
        adam.zero_grad()
    lm.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("rank", [0, 4])
def test_the_gate_refuses_a_version_that_unlearned_and_the_parent_trains_on(
    tmp_path: Path, rank: int
) -> None:
    c = config(lora={"rank": rank}, train={"lr": 1e-3}, gate={"max_rise": 0.5})
    t = trainer(taught(tmp_path / "model"), tmp_path, c)
    t.train(lease(near(t.policy, batch(3)), "lease_0"))
    before, moments = weights_of(t), {n: x.clone() for n, x in t.optim.tensors().items()}
    t.optim.train = t.optim.train.model_copy(update={"lr": 3.0})  # breaks the model
    update, version, why = t.train(lease(near(t.policy, batch(3, seed=7)), "lease_1"))
    assert "held-out" in why and version.status == VersionStatus.REFUSED and version.note == why
    assert (update.step, version.number, version.parent) == (2, 2, 1)
    assert same(weights_of(t), before) and same(t.optim.tensors(), moments)
    assert t.learner.progress.current.number == 1 and t.learner.progress.last_lease == "lease_1"
    assert versions.read_manifest(Path(version.path)).canary is None
    t.optim.train = c.train
    _, version, why = t.train(lease(near(t.policy, batch(3, seed=8)), "lease_2"))
    assert (version.number, version.parent, why) == (3, 1, "")


def test_a_resumed_trainer_still_knows_what_its_last_step_left_out_and_why(
    tmp_path: Path,
) -> None:
    folder = taught(tmp_path / "model")
    c = config(lora={"rank": 4}, train={"lr": 1e-3}, gate={"max_rise": 0.5})
    t = trainer(folder, tmp_path, c)
    idle = replace(batch(1, seed=50)[0], hints=(), has_advantage=False)
    t.train(lease([*near(t.policy, batch(2)), idle], "lease_0"))
    again = trainer(folder, tmp_path, c, resume=True)
    assert again.learner.progress.left_out == {idle.id: "nothing_to_train"}
    assert again.learner.progress.last_why == ""
    again.optim.train = c.train.model_copy(update={"lr": 3.0})  # breaks the model
    _, _, why = again.train(lease(near(again.policy, batch(3, seed=7)), "lease_1"))
    last = trainer(folder, tmp_path, c, resume=True).learner.progress
    assert why and (last.last_lease, last.last_why, last.left_out) == ("lease_1", why, {})


def test_the_gate_also_asks_earlier_liked_turns(tiny_llama_dir: Path, tmp_path: Path) -> None:
    t = trainer(tiny_llama_dir, tmp_path, config(lora={"rank": 4}, gate={"max_rise": 0.5}))
    liked = [replace(s, advantages=np.ones_like(s.advantages)) for s in near(t.policy, batch(2))]
    t.learner.gate.keep([*liked, replace(liked[0], advantages=-liked[0].advantages)])
    assert len(t.learner.gate.replay) == 2
    assert t.learner.gate.check(t.policy).why == ""
    t.learner.gate.replay.clear()
    t.learner.gate.keep([replace(s, logps=s.logps + 1.0) for s in liked])
    verdict = t.learner.gate.check(t.policy)
    assert "people liked" in verdict.why and "held-out" not in verdict.why


def test_a_skipped_step_is_said_and_no_version_is_made(
    tiny_llama_dir: Path, tmp_path: Path
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(4))
    update, version, why = t.train(lease(batch(2, mask=np.zeros(4, bool))))
    assert (update.step, version.number, why) == (0, 0, "nothing to train")
    assert t.learner.progress.last_lease == ""


@pytest.mark.parametrize("rank", [0, 4])
def test_going_back_is_a_new_version_and_moments_start_again(
    tiny_llama_dir: Path, tmp_path: Path, rank: int
) -> None:
    t = trainer(tiny_llama_dir, tmp_path, fast(rank, loss={"teacher": "ema"}))
    first = weights_of(t)
    for i in range(2):
        t.train(lease(near(t.policy, batch(2, seed=i)), f"lease_{i}"))
    version = t.roll_back("default", "default", 0)
    assert (version.number, version.parent, version.status) == (3, 0, VersionStatus.PUBLISHED)
    assert same(weights_of(t), first) and not t.optim.adam.state
    assert all(torch.equal(x, first[n]) for n, x in t.policy.ema.items())
    for owner, to in (("default", 9), ("mallory", 0)):
        with pytest.raises(ClawError, match="no such version"):
            t.roll_back(owner, "default", to)
    again = trainer(tiny_llama_dir, tmp_path, fast(rank, loss={"teacher": "ema"}), resume=True)
    assert same(weights_of(again), first) and again.learner.progress.current.number == 3


def test_the_canary_is_of_one_length_and_inside_the_texts(tiny_llama_dir: Path) -> None:
    texts = heldout.encode(tiny_llama_dir)
    ids = heldout.canary(texts)
    assert ids.shape == (heldout.CANARY_TEXTS, heldout.CANARY_LENGTH) and ids.dtype == np.int32
    assert all(len(p) and len(a) for p, a in texts)


def test_an_owner_cannot_leave_the_folder(tmp_path: Path) -> None:
    for name in ("..", "a/b", "", ".hidden"):
        with pytest.raises(UsageError, match="not a name"):
            weights.Shelf(tmp_path, owner=name)


@pytest.mark.parametrize("rank", [0, 4])
def test_the_manifest_knows_every_tensor_as_the_trainer_holds_it(
    tiny_llama_dir: Path, tmp_path: Path, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a version whose tensors were exchanged or spoilt on the way to the disk serves nowhere."""
    t = trainer(tiny_llama_dir, tmp_path, fast(rank))
    t.train(lease(near(t.policy, batch(3)), "lease_0"))
    folder = t.learner.shelf.path(1)
    manifest = versions.check_version(folder)
    (file,) = manifest.weight_files
    assert set(manifest.tensors) == set(load_file(folder / file))
    a, b = sorted(n for n in manifest.tensors if "q_proj" in n and "lora_B" not in n)[:2]
    write = weights.durable.save_tensors
    plain = type(t.policy.lm).save_pretrained

    def exchanged(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        is_version = a in tensors  # checkpoints are written with the same words
        return {**tensors, a: tensors[b], b: tensors[a]} if is_version else tensors

    monkeypatch.setattr(weights.durable, "save_tensors", lambda f, x: write(f, exchanged(x)))
    monkeypatch.setattr(type(t.policy.lm), "save_pretrained", lambda lm, f, **more: plain(
        lm, f, **more, state_dict=exchanged(lm.state_dict())))
    t.train(lease(near(t.policy, batch(3, seed=7)), "lease_1"))
    with pytest.raises(versions.VersionError, match="the trainer's tensors") as caught:
        versions.check_version(t.learner.shelf.path(2))
    assert a in str(caught.value)


def test_a_step_that_finds_no_room_on_the_disk_is_undone_and_made_again(
    tiny_llama_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("claw.engine.trainer.trainer.NO_ROOM_S", 0.0)
    c = fast(4, loss={"teacher": "ema"})
    t = trainer(tiny_llama_dir, tmp_path / "full", c)
    shutil.copytree(tmp_path / "full", tmp_path / "free")
    samples = near(t.policy, batch(3))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(Exception, match=r"too large|os error 27") as caught:
            t.train(lease(samples))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert durable.is_no_room(caught.value)
    t._wait_for_room(caught.value)
    assert t.link.sent[-1].type == "trainer.hello", "its lease is put back"
    assert [one["last_lease"] for one in t.link.sent[-1]["learners"]] == [""]
    again, version, why = t.train(lease(samples))
    free = trainer(tiny_llama_dir, tmp_path / "free", c, resume=True)
    wanted, _, _ = free.train(lease(samples))
    assert (version.number, why) == (1, "") and again.loss.total == wanted.loss.total
    assert same(weights_of(t), weights_of(free))
    assert not list((tmp_path / "full").rglob("*.part"))
