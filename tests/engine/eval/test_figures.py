"""Figures against numbers counted by hand."""

from itertools import combinations

import pytest

from claw.engine.eval.score import ks, pass_at_k, summary
from claw.records import End
from claw.sdk.traces import AttemptTrace


def test_pass_at_k_is_the_share_of_all_draws_of_k_that_hold_a_passed_attempt():
    for n in range(1, 8):
        for c in range(n + 1):
            passed = [True] * c + [False] * (n - c)
            for k in range(1, n + 1):
                draws = list(combinations(passed, k))
                expected = sum(any(draw) for draw in draws) / len(draws)
                assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12), (n, c, k)


def test_pass_at_k_is_not_the_biased_estimate():
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)  # 1 - (1 - 1/4)^2 would be 0.4375


@pytest.mark.parametrize("bad", [(2, 1, 3), (2, 3, 1), (2, -1, 1), (0, 0, 1)])
def test_pass_at_k_of_what_cannot_be_is_refused(bad):
    with pytest.raises(ValueError):
        pass_at_k(*bad)


def test_the_ks_are_powers_of_two_and_n():
    assert [ks(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def attempt(task, number, outcome, end=End.DONE, **more):
    return AttemptTrace(task, number, (), end, outcome, "checker:tests", turns=({}, {}), **more)


def test_a_summary_counts_policies_and_not_the_infrastructure():
    played = [
        attempt("a", 0, 1.0), attempt("a", 1, 0.0), attempt("a", 2, 0.1 + 0.2),
        attempt("b", 0, 1.0), attempt("b", 1, 1.0, End.TURN_LIMIT),
        attempt("b", 2, None, End.FAILED, failure="sandbox: OSError: gone"),
        attempt("c", 0, None, End.CONTEXT),
    ]
    found = summary(played, n=3, pass_bar=1.0)
    assert (found["tasks"], found["attempts"], found["counted"], found["failed"]) == (3, 7, 5, 1)
    assert found["mean_reward"] == pytest.approx((1 + 0 + 0.3 + 1 + 1) / 5)
    # pass@1: a 1/3, b 1; pass@2: a 1 - C(2,2)/C(3,2) = 2/3, b 1; pass@3: a alone has 3 attempts
    assert found["pass_at"] == {
        "1": {"value": pytest.approx((1 / 3 + 1) / 2), "tasks": 2},
        "2": {"value": pytest.approx((2 / 3 + 1) / 2), "tasks": 2},
        "3": {"value": pytest.approx(1.0), "tasks": 1},
    }
    assert [(r["task"], r["passed"], r["counted"], r["failed"]) for r in found["per_task"]] == [
        ("a", 1, 3, 0), ("b", 2, 2, 1), ("c", 0, 0, 0)]
    assert found["failures"] == {"sandbox: OSError: gone": 1}
    assert found["judges"] == ["checker:tests"]


def test_the_bar_may_be_lower_and_forgives_rounding():
    found = summary([attempt("a", 0, 0.1 + 0.2), attempt("a", 1, 0.29)], n=2, pass_bar=0.3)
    assert found["per_task"][0]["passed"] == 1
    just_below = summary([attempt("a", 0, 1.0 - 1e-12)], n=1, pass_bar=1.0)
    assert just_below["pass_at"]["1"]["value"] == 1.0
