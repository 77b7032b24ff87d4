"""A vocabulary split over 2 and 4 ranks gives what one rank gives. Each rank is a process (gloo).

T tokens, V vocabulary size, k top ids. The one-rank result is itself compared with float64 in
test_score.py and test_hybrid_loss.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from some_losses import H, case, close, run
from torch import Tensor

from claw.kernels import score

HERE = Path(__file__).parent
VOCAB, TOPK = 131, 20
ROUNDING = 3e-6
"""a log-prob of -7 has a spacing of 5e-7, and ratios and KL are exponentials of it"""
SIZES = {"even": (66, 65), "uneven": (3, 128), "four": (40, 1, 60, 30)}
"""rows of each rank; some have fewer than k"""


@pytest.fixture(scope="module", params=SIZES, ids=str)
def ranks(request: pytest.FixtureRequest, tmp_path_factory) -> list[dict]:
    """What each rank of one group found; see sharded.py."""
    folder, sizes = tmp_path_factory.mktemp(request.param), SIZES[request.param]
    command = [sys.executable, str(HERE / "sharded.py"), str(folder), ",".join(map(str, sizes))]
    processes = [
        subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(len(sizes))
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(len(sizes))]


def tied_case() -> tuple[Tensor, Tensor]:
    """Small whole numbers: exact logits, most of them equal to others on other ranks."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randint(-1, 2, (9, H), generator=generator).float()
    return hidden, torch.randint(0, 2, (VOCAB, H), generator=generator).float()


def test_every_rank_has_the_score_of_one_rank(ranks: list[dict]) -> None:
    one = case(vocab=VOCAB)
    ids = torch.cat([one["ids"][:, None], one["topk_ids"]], dim=1)
    expected = score(one["hidden"], one["weight"], ids, TOPK, one["temperature"])
    for found in ranks:
        for name in ("lse", "entropy", "logp", "topk_logp"):
            close(found["score"][name], getattr(expected, name))
        assert torch.equal(found["score"]["topk_ids"], expected.topk_ids)


def test_equal_logits_of_different_ranks_go_to_the_lowest_id(ranks: list[dict]) -> None:
    hidden, weight = tied_case()
    logits = hidden @ weight.t()
    expected = logits.sort(dim=1, descending=True, stable=True).indices[:, :TOPK]
    for found in ranks:
        assert torch.equal(found["tied"], expected)
    best = logits.max(dim=1, keepdim=True).values
    assert bool(((logits == best).sum(dim=1) > 1).any())  # ties at the very top do occur


@pytest.mark.parametrize("mode", ["forward", "recompute"])
def test_every_rank_has_the_loss_and_its_part_of_the_gradient(ranks, mode: str) -> None:
    loss, hidden_grad, weight_grad, metrics = run(case(vocab=VOCAB), mode=mode)
    for found in ranks:
        close(found[mode]["loss"], loss)
        close(found[mode]["hidden_grad"], hidden_grad, ROUNDING)
        for name, value in metrics.items():
            assert found[mode]["metrics"][name].item() == pytest.approx(
                value.item(), rel=ROUNDING, abs=1e-6
            ), name
    close(torch.cat([found[mode]["weight_grad"] for found in ranks]), weight_grad, ROUNDING)


def test_the_gradient_to_bfloat16_hidden_states_is_summed_in_float32(ranks: list[dict]) -> None:
    one = case(vocab=VOCAB)
    one |= {name: one[name].bfloat16() for name in ("hidden", "weight")}
    expected = run(one)
    for found in ranks:
        assert found["half"]["hidden_grad"].dtype == torch.bfloat16
        close(found["half"]["hidden_grad"], expected[1], 2e-2)
    close(torch.cat([found["half"]["weight_grad"] for found in ranks]), expected[2], 2e-2)


def test_an_id_on_no_rank_is_refused_on_every_rank(ranks: list[dict]) -> None:
    for found in ranks:
        assert f"ids: found id {VOCAB}; allowed: 0 to {VOCAB - 1}" in found["errors"]["score"]
        assert f"ids: found id {VOCAB}; allowed: 0 to {VOCAB - 1}" in found["errors"]["loss"]
        assert f"topk: found {VOCAB + 1}; allowed: 0 to {VOCAB}" in found["errors"]["topk"]


def test_calls_that_differ_between_ranks_are_refused_on_every_rank(ranks: list[dict]) -> None:
    for found in ranks:
        assert "process_group: found topk [" in found["errors"]["different topk"]
        assert "process_group: found tokens [" in found["errors"]["different tokens"]


def test_nan_on_one_rank_is_refused_on_every_rank(ranks: list[dict]) -> None:
    for found in ranks:
        assert "weight: found NaN" in found["errors"]["nan"]
