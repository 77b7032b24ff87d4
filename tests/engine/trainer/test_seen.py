"""What a step tells of each hint and token, against the model asked in float64 by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from bench import as_float64, config, lease, near, one, policy, trainer
from some_samples import ids, sample

K = 24


def by_hand(lm: torch.nn.Module, prompt: np.ndarray, reply: np.ndarray, tau: float) -> torch.Tensor:
    """log softmax(logits / tau) [R, V] at each reply token."""
    both = torch.tensor(np.concatenate([prompt, reply]))[None].long()
    with torch.no_grad():
        logits = lm(both).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / tau, dim=-1)


def test_overlap_and_gap_are_those_of_the_hinted_model(tiny_llama_dir: Path) -> None:
    c = config(loss={"k": K, "gap_clip": 0.05, "teacher": "current"})
    p = policy(tiny_llama_dir, c)
    rng = np.random.default_rng(8)
    long_hint, short_hint = ids(rng, 20), ids(rng, 11)
    [taken] = near(p, [sample(3, reply=7, hints=(long_hint, short_hint))])
    mask = np.array([1, 1, 0, 1, 1, 1, 1], bool)
    taken = replace(taken, mask=mask)
    done, _ = one(p, [taken], c)
    seen = done.seen[taken.id]

    lm, tau, reply = as_float64(p, "current"), taken.temperature, taken.reply_ids
    student = by_hand(lm, taken.prompt_ids, reply, tau)
    own = student.topk(K).indices.tolist()
    overlaps, teachers = [], []
    for hint in (long_hint, short_hint):  # the sample's own order
        teacher = by_hand(lm, hint, reply, tau)
        likely = teacher.topk(K).indices.tolist()
        shared = [len(set(a) & set(b)) for a, b in zip(own, likely, strict=True)]
        overlaps.append(sum(n for n, m in zip(shared, mask, strict=True) if m) / mask.sum())
        teachers.append(teacher)
    assert overlaps[0] != overlaps[1], "the numbers must tell the hints apart"
    assert seen.overlap == pytest.approx(overlaps)
    best = int(np.argmax(overlaps))
    assert seen.chosen.tolist() == [float(i == best) for i in range(2)]
    at = torch.tensor(reply).long()[:, None]
    gap = (teachers[best].gather(1, at) - student.gather(1, at))[:, 0].clamp(-0.05, 0.05).numpy()
    assert (np.abs(gap[mask]) == 0.05).any(), "the bound is met"
    assert seen.gap == pytest.approx(np.where(mask, gap, 0.0), abs=1e-4)


def test_a_hint_that_was_not_used_has_no_overlap(tiny_llama_dir: Path) -> None:
    c = config()
    p = policy(tiny_llama_dir, c)
    good, foreign = ids(np.random.default_rng(1), 12), np.array([999_999], np.int32)
    [taken] = near(p, [sample(4, hints=(foreign, good))])
    done, _ = one(p, [taken], c)
    seen = done.seen[taken.id]
    assert np.isnan(seen.overlap[0]) and np.isfinite(seen.overlap[1])
    assert seen.chosen.tolist() == [0.0, 1.0]


def test_it_travels_with_the_acknowledgement(tiny_llama_dir: Path, tmp_path: Path) -> None:
    t = trainer(tiny_llama_dir, tmp_path, config())
    asked = []
    t.link.ask = lambda message, **how: asked.append(message)
    samples = near(t.policy, [sample(5, hints=1), sample(6, hints=0)])
    work = lease(samples)
    t._acknowledge(work, *t.train(work))
    [message] = asked
    assert {n.partition("/")[0] for n in message.arrays} == {"sample_5"}
    assert {n.partition("/")[2] for n in message.arrays} == {"overlap", "chosen", "gap"}
