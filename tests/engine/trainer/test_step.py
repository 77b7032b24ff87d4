"""What must not change a step, what must, and what stops one."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench import VERSION, config, near, one, policy
from some_samples import batch, sample

from claw.engine.trainer import loss, step
from claw.engine.trainer.optim import Optimiser


def flat(seen: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.flatten() for g in seen.values()])


def snapshot(parameters: Any) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in parameters.items()}


def unchanged(parameters: Any, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(p, before[name]) for name, p in parameters.items())


@pytest.mark.parametrize("method", ["hybrid", "combined"])
def test_micro_batches_do_not_change_the_result(tiny_llama_dir: Path, method: str) -> None:
    found = []
    for micro_tokens in (64, 4096):
        c = config(train={"micro_tokens": micro_tokens, "method": method},
                   loss={"hint_choice": "random"})
        p = policy(tiny_llama_dir, c)
        done, optim = one(p, near(p, batch(5)), c)
        found.append((done.loss.total, flat(optim.seen)))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-6)


def test_the_order_of_arrival_does_not_change_a_bit(tiny_llama_dir: Path) -> None:
    c = config(train={"micro_tokens": 64})
    p = policy(tiny_llama_dir, c)
    samples = near(p, [sample(i, hints=i % 3 + 1) for i in range(7)])  # of one length
    first, a = one(p, samples, c)
    second, b = one(p, [*samples[::-1], samples[2]], c)  # and a sample that came twice
    assert first.loss.total == second.loss.total
    assert torch.equal(flat(a.seen), flat(b.seen))
    assert second.loss.metrics["rollout/dropped_duplicate"] == 1


@pytest.mark.parametrize("normalise", ["sample-mean", "token-mean"])
def test_samples_without_a_hint_or_vote_do_not_dilute_the_others(
    tiny_llama_dir: Path, normalise: str
) -> None:
    c = config(loss={"normalise": normalise})
    p = policy(tiny_llama_dir, c)
    hinted = near(p, batch(2, has_advantage=False))
    voted = near(p, [sample(50 + i, hints=0) for i in range(6)])
    taught, a = one(p, hinted, c)
    liked, b = one(p, voted, c)
    both, ab = one(p, [*hinted, *voted, sample(70, hints=0, has_advantage=False)], c)
    assert both.loss.opd == pytest.approx(taught.loss.opd, rel=1e-6)
    assert both.loss.rl == pytest.approx(liked.loss.rl, rel=1e-6)
    assert taught.loss.rl == liked.loss.opd == 0.0
    torch.testing.assert_close(flat(ab.seen), flat(a.seen) + flat(b.seen), rtol=1e-4, atol=1e-6)


def test_a_batch_mean_learns_less_from_one_hint_among_many_replies(tiny_llama_dir: Path) -> None:
    c = config(loss={"normalise": "batch-mean"})
    p = policy(tiny_llama_dir, c)
    hinted = near(p, batch(1, has_advantage=False))
    voted = near(p, [sample(50 + i, hints=0) for i in range(3)])
    alone, _ = one(p, hinted, c)
    among, _ = one(p, [*hinted, *voted], c)
    assert among.loss.opd == pytest.approx(alone.loss.opd / 4, rel=1e-5)


def test_removing_the_hint_changes_the_gradient(tiny_llama_dir: Path) -> None:
    c = config(train={"method": "hybrid"})
    p = policy(tiny_llama_dir, c)
    samples = near(p, batch(3))
    _, hinted = one(p, samples, c)
    _, bare = one(p, [replace(s, hints=()) for s in samples], c)
    _, other = one(p, [replace(s, hints=(s.prompt_ids,)) for s in samples], c)
    size = flat(hinted.seen).norm()
    assert (flat(hinted.seen) - flat(bare.seen)).norm() > 0.1 * size
    # a "hint" that is the prompt itself teaches nothing: the gap holds the hint and nothing else
    torch.testing.assert_close(flat(other.seen), flat(bare.seen), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("why, change", [
    ("masked", {"mask": np.zeros(6, bool)}),
    ("no vote and no hint", {"hints": 0, "has_advantage": False}),
    ("stale", {"versions": np.full(6, -20, np.int32)}),
    ("another owner", {"owner": "mallory"}),
    ("an id outside the vocabulary", {"reply_ids": np.full(6, 9999, np.int32)}),
    ("an infinite advantage", {"advantages": np.full(6, np.inf, np.float32)}),
    ("a log-prob that is not a number", {"logps": np.full(6, np.nan, np.float32)}),
    ("one log-prob too few", {"logps": np.zeros(5, np.float32)}),
    ("too long for the model", {"prompt_ids": np.full(600, 5, np.int32)}),
])
def test_a_batch_with_nothing_to_train_changes_nothing(
    tiny_llama_dir: Path, why: str, change: dict[str, Any]
) -> None:
    c = config(train={"weight_decay": 0.1, "lr": 0.1})
    p = policy(tiny_llama_dir, c)
    optim = Optimiser(p.parameters, c.train)
    one(p, near(p, batch(2)), c, optim)  # moments that would move the weights by themselves
    before = snapshot(p.parameters)
    done, _ = one(p, [sample(i, **change) for i in range(3)], c, optim)
    assert done.skipped == "nothing to train" and done.loss.total == 0.0
    assert unchanged(p.parameters, before) and optim.num_steps == 1
    assert done.loss.metrics["train/skipped"] == 1


def test_tokens_that_are_too_old_are_masked_and_the_rest_is_trained_as_if_alone(
    tiny_llama_dir: Path,
) -> None:
    old = np.array([-20, -20, 0, 0, 0, 0], np.int32)
    made = sample(1, hints=0, versions=old)
    masked = config(train={"method": "grpo"}, **{"async": {"stale": "mask"}})
    dropped = config(train={"method": "grpo"})
    p = policy(tiny_llama_dir, masked)
    (made,) = near(p, [made])
    by_hand = replace(made, versions=np.zeros(6, np.int32), mask=old == 0)
    done, seen = one(p, [made], masked)
    _, wanted = one(p, [by_hand], dropped)
    torch.testing.assert_close(flat(seen.seen), flat(wanted.seen))
    assert flat(wanted.seen).norm() > 0
    assert done.loss.metrics["async/masked_tokens"] == 2
    assert done.loss.metrics["async/age_max"] == 0
    done, _ = one(p, [made], dropped)
    assert done.left_out == {made.id: "stale"}
    assert done.loss.metrics["rollout/dropped_stale"] == 1
    all_old = replace(made, versions=np.full(6, -20, np.int32))
    done, _ = one(p, [all_old], masked)
    assert done.left_out == {made.id: "stale"}


def test_an_empty_batch_is_reported_and_changes_nothing(tiny_llama_dir: Path) -> None:
    c = config()
    p = policy(tiny_llama_dir, c)
    done, _ = one(p, [], c)
    assert done.skipped == "nothing to train"


def test_greedy_and_truncated_replies_have_no_vote_term(tiny_llama_dir: Path) -> None:
    c = config(train={"method": "grpo"})
    p = policy(tiny_llama_dir, c)
    done, _ = one(p, [sample(1, temperature=0.0), sample(2, truncated=True)], c)
    assert done.skipped == "nothing to train"
    done, _ = one(p, [sample(2, truncated=True)], config(
        train={"method": "grpo"}, loss={"truncated": "keep"}))
    assert not done.skipped


@pytest.mark.parametrize("method", ["hybrid", "combined"])
def test_a_greedy_turn_learns_from_its_hint_without_behaviour_log_probs(
    tiny_llama_dir: Path, method: str
) -> None:
    c = config(train={"method": method})
    p = policy(tiny_llama_dir, c)
    greedy = sample(1, temperature=0.0, logps=np.full(6, np.nan, np.float32))
    done, optim = one(p, [greedy], c)
    assert not done.skipped and math.isfinite(done.loss.total)
    assert flat(optim.seen).norm() > 0 and done.loss.metrics["train/rl_samples"] == 0


def test_a_hint_that_does_not_fit_is_counted_and_the_others_teach(tiny_llama_dir: Path) -> None:
    c = config(train={"method": "opd"})
    p = policy(tiny_llama_dir, c)
    good, long = sample(1).hints[0], np.full(600, 5, np.int32)
    a, first = one(p, [sample(1, hints=(good,))], c)
    b, second = one(p, [sample(1, hints=(long, good))], c)
    assert torch.equal(flat(first.seen), flat(second.seen))
    assert b.loss.metrics["rollout/dropped_hints"] == 1
    assert "rollout/dropped_hints" not in a.loss.metrics


def test_a_log_prob_that_is_not_known_has_no_vote_term(tiny_llama_dir: Path) -> None:
    c = config(train={"method": "grpo"})
    p = policy(tiny_llama_dir, c)
    (s,) = near(p, [sample(1)])
    logps = s.logps.copy()
    logps[2] = -np.inf
    done, optim = one(p, [replace(s, logps=logps)], c)
    assert not done.skipped and math.isfinite(done.loss.total)
    assert done.loss.metrics["train/missing_logp"] == 1
    assert torch.isfinite(flat(optim.seen)).all()


@pytest.mark.parametrize("where", ["weights", "gradient"])
def test_numbers_that_are_not_finite_skip_the_step(tiny_llama_dir: Path, where: str) -> None:
    c = config(train={"lr": 0.1})
    p = policy(tiny_llama_dir, c)
    optim = Optimiser(p.parameters, c.train)
    name = next(iter(p.parameters))
    if where == "weights":
        with torch.no_grad():
            p.parameters[name][5, 0] = torch.nan
        samples = [replace(s, prompt_ids=np.full(5, 5, np.int32)) for s in batch(1)]
    else:
        p.parameters[name].register_hook(lambda grad: grad * torch.inf)
        samples = batch(2)
    before = snapshot(p.parameters)
    done, _ = one(p, samples, c, optim)
    assert done.skipped.startswith("not finite")
    assert done.loss.metrics["train/skipped"] == 1 and optim.num_steps == 0
    assert all(
        torch.equal(x.nan_to_num(), before[n].nan_to_num()) for n, x in p.parameters.items()
    )
    assert all(x.grad is None for x in p.parameters.values())


def test_a_step_that_is_told_to_stop_leaves_everything_as_it_was(tiny_llama_dir: Path) -> None:
    c = config(train={"micro_tokens": 64})
    p = policy(tiny_llama_dir, c)
    optim = Optimiser(p.parameters, c.train)
    before, asked = snapshot(p.parameters), iter([False, False, True])
    with pytest.raises(step.Abandoned):
        one(p, near(p, batch(8)), c, optim, stop=lambda: next(asked))
    assert unchanged(p.parameters, before) and optim.num_steps == 0
    assert all(x.grad is None for x in p.parameters.values())


def test_behaviour_mode_feels_stale_log_probs_and_proximal_bounds_them(
    tiny_llama_dir: Path,
) -> None:
    method = {"method": "grpo"}
    behaviour = config(train=method)
    proximal = config(train=method, **{"is": {"mode": "proximal", "cap": 2.0}})
    p = policy(tiny_llama_dir, behaviour)
    fresh = near(p, [sample(1, advantages=np.ones(6, np.float32))], scale=0.0)
    stale = [replace(s, logps=s.logps - 3.0) for s in fresh]
    for c, wanted in ((behaviour, -1.28), (proximal, -2.0)):
        a, _ = one(p, fresh, c)
        b, optim = one(p, stale, c)
        assert a.loss.rl == pytest.approx(-1.0, abs=1e-4)
        assert b.loss.rl == pytest.approx(wanted, abs=1e-3)
        # e^3 is far above 1 + clip_high: in behaviour mode the clip holds, no gradient is left
        assert bool(flat(optim.seen).norm() == 0) is (c is behaviour)
    assert b.loss.metrics["mismatch/logp_abs_mean"] == pytest.approx(3.0, abs=1e-3)


def test_an_update_moves_the_weights_towards_the_liked_reply(tiny_llama_dir: Path) -> None:
    c = config(lora={"rank": 4}, train={"method": "grpo", "lr": 1e-2, "warmup_steps": 2})
    p = policy(tiny_llama_dir, c)
    optim = Optimiser(p.parameters, c.train)
    liked = near(p, [sample(1, advantages=np.ones(6, np.float32))], scale=0.0)
    done, _ = one(p, liked, c, optim)
    assert done.lr == pytest.approx(5e-3) and optim.lr == pytest.approx(1e-2)
    after = near(p, liked, scale=0.0)
    assert after[0].logps.mean() > liked[0].logps.mean() + 0.01


def test_weights_in_bfloat16_have_a_float32_truth(tiny_llama_dir: Path) -> None:
    c = config(train={"dtype": "bfloat16", "lr": 1e-6, "micro_tokens": 64, "method": "grpo"})
    p = policy(tiny_llama_dir, c)
    optim = Optimiser(p.parameters, c.train)
    name = "model.layers.0.mlp.up_proj.weight"
    before = optim.masters[name].detach().clone()
    done, _ = one(p, near(p, batch(3)), c, optim)
    moved = (optim.masters[name] - before).abs().max()
    assert not done.skipped and p.parameters[name].dtype == torch.bfloat16
    assert 0 < moved < 1e-5, "a step below the last bit of bfloat16 is kept in the truth"


def test_micro_batches_add_up_in_float32_for_weights_in_bfloat16(tiny_llama_dir: Path) -> None:
    found = []
    for micro_tokens in (64, 4096):
        c = config(train={"dtype": "bfloat16", "micro_tokens": micro_tokens, "method": "grpo"})
        p = policy(tiny_llama_dir, c)
        _, optim = one(p, near(p, batch(5)), c)
        found.append(flat(optim.seen))
    assert found[0].dtype == torch.float32
    assert (found[0] - found[1]).norm() < 0.05 * found[1].norm()


def test_a_step_says_what_it_saw(tiny_llama_dir: Path) -> None:
    c = config()
    p = policy(tiny_llama_dir, c)
    samples = [replace(s, versions=np.full(len(s.mask), -i, np.int32)) for i, s in
               enumerate(near(p, batch(3)))]
    done, _ = one(p, samples, c)
    m = done.loss.metrics
    assert {
        "train/loss", "train/rl_loss", "train/opd_loss", "train/kl", "train/grad_norm", "train/lr",
        "train/clip_low", "train/clip_high", "rollout/advantage_mean", "rollout/reply_len_mean",
        "opd/overlap_mean", "opd/hint_choice", "mismatch/logp_abs_mean", "mismatch/logp_abs_max",
        "async/age_mean", "async/age_max", "perf/step_s", "perf/tokens_per_s",
    } <= m.keys()
    assert m["train/loss"] == pytest.approx(m["train/rl_loss"] + m["train/opd_loss"], rel=1e-5)
    assert (m["async/age_mean"], m["async/age_max"]) == (1.0, 2.0)
    assert m["rollout/reply_len_mean"] == 6.0 and 0 <= m["opd/overlap_mean"] <= 4
    assert VERSION.number == 0


def test_the_batch_baseline_is_the_mean_advantage_of_the_votes(tiny_llama_dir: Path) -> None:
    grpo = {"method": "grpo"}
    c, plain = config(train=grpo, loss={"baseline": "batch"}), config(train=grpo)
    p = policy(tiny_llama_dir, c)
    votes = (1.0, -1.0, -1.0, -1.0)
    samples = near(p, [voted(10 + i, a) for i, a in enumerate(votes)])
    centred = near(p, [voted(10 + i, a + 0.5) for i, a in enumerate(votes)])  # their mean is -0.5
    _, by_baseline = one(p, samples, c)
    _, by_hand = one(p, centred, plain)
    torch.testing.assert_close(flat(by_baseline.seen), flat(by_hand.seen), rtol=1e-4, atol=1e-7)


def test_a_batch_of_equal_votes_trains_nothing_against_its_own_mean(tiny_llama_dir: Path) -> None:
    c = config(train={"method": "grpo"}, loss={"baseline": "batch"})
    p = policy(tiny_llama_dir, c)
    done, optim = one(p, near(p, [voted(i, -1.0) for i in range(3)]), c)
    assert done.loss.rl == 0.0
    assert not flat(optim.seen).any()


def voted(seed: int, vote: float) -> Any:
    return sample(seed, hints=0, advantages=np.full(6, vote, np.float32))


def test_a_loss_that_a_plugin_registers_is_the_one_that_trains(tiny_llama_dir: Path) -> None:
    def tripled(*parts: Any) -> torch.Tensor:
        return 3.0 * loss.combined_advantage(*parts)

    loss.register("tripled", tripled)
    try:
        plain, c = config(train={"method": "combined"}), config(train={"method": "tripled"})
        p = policy(tiny_llama_dir, c)
        samples = near(p, batch(3))
        (_, once), (_, thrice) = one(p, samples, plain), one(p, samples, c)
        torch.testing.assert_close(flat(thrice.seen), 3 * flat(once.seen), rtol=1e-4, atol=2e-6)
        with pytest.raises(ValueError, match="already"):
            loss.register("grpo", tripled)
    finally:
        del loss.METHODS["tripled"]


def test_the_learning_rate_rises_then_falls_to_its_floor(tiny_llama_dir: Path) -> None:
    c = config(train={"lr": 1.0, "warmup_steps": 2, "decay_steps": 4, "lr_floor": 0.25})
    optim = Optimiser(policy(tiny_llama_dir, c).parameters, c.train)
    rates = []
    for n in range(6):
        optim.num_steps = n
        rates.append(optim.lr)
    assert rates == [0.5, 0.75, 0.5, 0.25, 0.25, 0.25]
