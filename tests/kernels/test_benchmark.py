"""The benchmark runs at a tiny size and times nothing that is wrong."""

from dataclasses import asdict

import pytest
import torch

from benchmarks import heads, kernels
from benchmarks.machine import PeakMemory

TINY = asdict(kernels.SMOKE[0])


@pytest.mark.parametrize("task", heads.EVERY)
@pytest.mark.parametrize("name", [
    # a compiler of C++ runs behind torch.compile
    pytest.param(name, marks=pytest.mark.slow) if "compile" in name else name
    for name in heads.VARIANTS
])  # fmt: skip
def test_a_variant_that_can_run_here_is_right_and_timed(name: str, task: str) -> None:
    variant = heads.VARIANTS[name]
    if reason := heads.why_not(variant, task, "cpu"):
        assert reason.startswith(("no ", "needs", "not in"))
        return
    found = kernels._part("both", name, [task], TINY)[task]
    assert found["right"] and found["seconds"] > 0 and found["bytes"] >= 0


@pytest.mark.parametrize("task", ["ce", "hybrid"])
def test_a_variant_with_a_wrong_gradient_is_not_timed(monkeypatch, task: str) -> None:
    right = heads.VARIANTS["claw torch"].run
    wrong = heads.Variant(lambda case, task: 1.001 * right(case, task), heads.EVERY)
    monkeypatch.setitem(heads.VARIANTS, "claw torch", wrong)
    found = kernels._part("both", "claw torch", [task], TINY)[task]
    assert not found["right"] and "seconds" not in found
    assert "not timed" in kernels._row(found)


def test_a_scoring_with_a_wrong_top_id_is_not_timed(monkeypatch) -> None:
    right = heads.VARIANTS["claw torch"].run

    def shifted(case: heads.Case, task: str):
        logp, top = right(case, task)
        return logp, torch.where(top == top[0, 0], top + 1, top)

    monkeypatch.setitem(heads.VARIANTS, "claw torch", heads.Variant(shifted, heads.EVERY))
    found = kernels._part("both", "claw torch", ["score"], TINY)["score"]
    assert not found["right"] and "seconds" not in found


def test_a_variant_that_would_take_too_long_is_left_out_with_the_time_of_a_pass(
    monkeypatch,
) -> None:
    monkeypatch.setattr(kernels, "LONGEST_S", 0.0)
    found = kernels._part("both", "claw torch", ["ce"], TINY)["ce"]
    assert "seconds" not in found
    assert kernels._row(found).startswith("left out: a pass of about 0 s")


def test_a_peak_is_what_is_held_at_once_and_not_what_was_freed_before() -> None:
    def hold(megabytes: int) -> int:
        return torch.ones(megabytes << 18).numel()

    hold(200)
    peak = PeakMemory("cpu")
    assert peak.beyond() < 20e6
    hold(60)
    hold(60)
    assert 55e6 < peak.beyond() < 90e6


def test_a_variant_that_fails_says_so_in_its_row() -> None:
    size = kernels.Size(4, 8, 100, k=4, dtype="float31")
    row = kernels._rows("claw torch", ["ce"], size)["ce"]
    assert row.startswith("left out: AttributeError")
