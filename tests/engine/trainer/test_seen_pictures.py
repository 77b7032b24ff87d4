"""A step over prompts with pictures is what the formulas say of transformers' own forward."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import truth
from bench import as_float64, config, near, one, policy
from PIL import Image
from seeing import Looking, encoded, picture, plain, plain_logps, prompt
from some_samples import sample

from claw.config import GateConfig
from claw.engine.pictures import lens_of
from claw.engine.trainer import model, score
from claw.engine.trainer.gate import Gate
from claw.errors import UsageError
from claw.records import Sample

Piece = str | Image.Image
A, B, C = picture(1), picture(2, 16, 56), picture(3, 64, 32)
SHOWN: list[tuple[Piece, ...]] = [
    ("What is ", A, "?"), ("First ", B, " then ", A, " and ", C, "?"), ("only words here",),
    (C, "look"),
]


def samples_of(folder: Path) -> list[Sample]:
    """With pictures and without, each with hinted prompts that show the same."""
    lens = lens_of(folder)
    assert lens is not None
    made = []
    for seed, pieces in enumerate(SHOWN):
        pixels = tuple(lens.pixels(encoded(p)) for p in pieces if not isinstance(p, str))
        ids = np.array(prompt(folder, *pieces), np.int32)
        hints = tuple(np.array(prompt(folder, *pieces, hint), np.int32)
                      for hint in ("be brief", "say what moved")[: seed % 2 + 1])
        made.append(sample(seed, prompt_ids=ids, hints=hints, pictures=pixels,
                           images=tuple(f"{i:064x}" for i in range(len(pixels)))))
    return made


def looking(lm: Any, folder: Path, samples: list[Sample]) -> Looking:
    return Looking(lm, folder, {
        tuple(ids.tolist()): [p for p in pieces if not isinstance(p, str)]
        for s, pieces in zip(samples, SHOWN, strict=True) for ids in (s.prompt_ids, *s.hints)})


@pytest.mark.parametrize("method", ["hybrid", "grpo"])
@pytest.mark.parametrize("rank", [0, 4])
def test_a_step_with_pictures_has_the_loss_and_gradients_of_a_plain_forward(
    tiny_qwen3_vl_dir: Path, rank: int, method: str
) -> None:
    folder = tiny_qwen3_vl_dir
    c = config(lora={"rank": rank}, train={"method": method, "micro_tokens": 160},
               loss={"kl_coef": 0.1, "w_opd": 1.3})
    p = policy(folder, c)
    samples = near(p, samples_of(folder))
    student = as_float64(p, "current")
    looks = [looking(lm, folder, samples) for lm in (
        student, as_float64(p, "current").requires_grad_(False),
        as_float64(p, "base").requires_grad_(False))]
    done, optim = one(p, samples, c)
    wanted = truth.loss(*looks, samples, c)
    wanted.backward()
    assert not done.skipped and not done.left_out
    assert done.loss.total == pytest.approx(float(wanted.detach()), rel=5e-5, abs=5e-6)
    gradients = {n: g.grad for n, g in student.named_parameters() if g.requires_grad}
    assert gradients.keys() == optim.seen.keys()
    scale = max(float(g.abs().max()) for g in gradients.values() if g is not None)
    for name, grad in gradients.items():
        torch.testing.assert_close(
            optim.seen[name].double(), torch.zeros(1).double() if grad is None else grad,
            rtol=2e-3, atol=2e-4 * scale, msg=name)
    towers = [float(optim.seen[n].abs().max()) for n in optim.seen if "visual" in n]
    assert max(towers, default=0.0) > 0 if rank == 0 else not towers


def test_log_probs_of_replies_under_pictures_are_those_of_a_plain_forward(
    tiny_qwen3_vl_dir: Path
) -> None:
    folder = tiny_qwen3_vl_dir
    p = model.load(folder, config())
    samples = samples_of(folder)
    found = score.logps(p, [(s.prompt_ids, s.reply_ids, *s.pictures) for s in samples], 200)
    lm = plain(folder)
    for s, logps, pieces in zip(samples, found, SHOWN, strict=True):
        ids = [*s.prompt_ids.tolist(), *s.reply_ids.tolist()]
        images = [x for x in pieces if not isinstance(x, str)]
        rows = plain_logps(lm, folder, ids, images)[len(s.prompt_ids) - 1 :]
        np.testing.assert_allclose(logps, rows[np.arange(len(s.reply_ids)), s.reply_ids],
                                   atol=1e-4)


def test_samples_whose_pictures_are_not_those_of_their_prompts_are_left_out(
    tiny_qwen3_vl_dir: Path, tiny_llama_dir: Path
) -> None:
    samples = samples_of(tiny_qwen3_vl_dir)
    first = samples[0]
    broken = [
        replace(first, id="gone", pictures=()), replace(first, id="float", pictures=(
            first.pictures[0].astype(np.float32),)),
        replace(first, id="torn", prompt_ids=first.prompt_ids[12:]),
        replace(samples[3], id="hint", hints=(samples[3].prompt_ids[9:],)),
    ]
    c = config(train={"method": "hybrid"})
    done, _ = one(policy(tiny_qwen3_vl_dir, c), [*samples, *broken], c)
    assert done.left_out == {"gone": "pictures", "float": "pictures", "torn": "pictures"}
    assert done.loss.metrics["rollout/dropped_hints"] == 1
    done, _ = one(policy(tiny_llama_dir, c), samples, c)
    assert done.left_out == {s.id: "pictures" for s in samples if s.pictures}


def test_adapters_are_on_the_language_layers_only(tiny_qwen3_vl_dir: Path) -> None:
    p = model.load(tiny_qwen3_vl_dir, config(lora={"rank": 2}))
    assert p.parameters and all(".language_model." in name for name in p.parameters)
    with pytest.raises(UsageError, match=r"found: 'qkv'"):
        model.load(tiny_qwen3_vl_dir, config(lora={"rank": 2, "targets": ("q_proj", "qkv")}))


def test_the_gate_replays_good_turns_with_their_pictures(tiny_qwen3_vl_dir: Path) -> None:
    p = model.load(tiny_qwen3_vl_dir, config())
    samples = [replace(s, temperature=1.0, advantages=np.ones(6, np.float32))
               for s in samples_of(tiny_qwen3_vl_dir)]
    pairs = [(s.prompt_ids, s.reply_ids, *s.pictures) for s in samples]
    said = [replace(s, logps=logps) for s, logps in zip(
        samples, score.logps(p, pairs, 400), strict=True)]
    gate = Gate(GateConfig(), [(np.array([5, 6]), np.array([7, 8]))], 400)
    gate.measure_first(p)
    gate.keep(said)
    assert len(gate.replay) == len(samples)
    assert gate.check(p).metrics["gate/replay_rise"] == pytest.approx(0, abs=1e-4)
    gate.replay[0] = replace(said[1], pictures=said[1].pictures[::-1], prompt_ids=np.array(
        prompt(tiny_qwen3_vl_dir, "First ", C, " then ", A, " and ", B, "?"), np.int32))
    assert abs(gate.check(p).metrics["gate/replay_rise"]) > 0.01
