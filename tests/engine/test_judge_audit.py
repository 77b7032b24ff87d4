"""How far the judges of a run can be believed: the measures, on numbers counted by hand."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from claw.cli import app
from claw.engine import judge_audit
from claw.engine.actor.journal import Journal
from claw.records import Signal

MODEL = [((1, 1, -1), 1), ((-1, None, -1), -1), ((1, 1, 1), 1), ((1, -1, None), None)]
RULES = [1, 1, 0, -1]
THUMBS = [1, 1, 1, 0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four turns that a model and the rules judged; three have a thumb, one against the model."""
    sys.path.insert(0, str(Path(__file__).parent / "actor"))
    from some_turns import turn

    journal = Journal(tmp_path)
    for i, (votes, vote) in enumerate(MODEL):
        id = f"turn_{i}"
        journal.put_turn(turn(id, index=i))
        journal.put_signal(Signal(id, "model", vote, votes, seconds=0.5))
        journal.put_signal(Signal(id, "rules", RULES[i], (RULES[i],)))
        if THUMBS[i]:
            journal.put_signal(Signal(id, "person", THUMBS[i], (THUMBS[i],)))
    for why in ("the judge follows the order", "no preference", "the judge prefers the new reply",
                "the judge follows the order", "the new answer is empty"):
        journal.put_event("better", "turn_0", json.dumps({"why": why}))
    journal.close()
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def model(run: Path) -> dict:
    return judge_audit.figures(judge_audit.audit(run)["model"])


def test_a_bias_is_a_correlation_and_needs_enough_turns() -> None:
    assert judge_audit.bias([(10 * i, 1 if i > 4 else -1) for i in range(10)]) > 0.8
    assert judge_audit.bias([(10 * i, -1 if i > 4 else 1) for i in range(10)]) < -0.8
    assert judge_audit.bias([(1, 1)] * 20) is None  # constant
    assert judge_audit.bias([(1, 1), (2, -1)]) is None  # too few


def test_votes_are_compared_with_the_persons_thumbs(model: dict) -> None:
    assert model["judged"] == 4 and (model["up"], model["down"]) == (2, 1)
    assert model["thumbs"] == 3 and model["opposite"] == 1
    assert model["agreement"] == pytest.approx(2 / 3)


def test_the_votes_of_one_turn_are_compared_with_each_other(model: dict) -> None:
    # pairs: (1,1)(1,-1)(1,-1) | (-1,-1) | (1,1)x3 | (1,-1): 5 of 8 agree
    assert model["tallies"] == 4 and model["votes_agree"] == pytest.approx(5 / 8)
    assert model["unanimous"] == pytest.approx(2 / 4)
    # they differ in (9-5)/2 and (4-2)/1; six +1 and four -1 would by (100-52)/9: 1 - 9 * 4 / 48
    assert model["alpha"] == pytest.approx(0.25)


@pytest.mark.parametrize(("tallies", "alpha"), [
    ([(1, 1), (-1, -1)], 1.0), ([(1, 1), (1, 1)], None), ([], None), ([(1,)], None),
    ([(1, -1), (1, -1)], -0.5),  # 1 - 3 * 4 / 8: worse than chance
])
def test_agreement_beyond_chance_is_1_for_always_and_nothing_where_all_is_one(
    tallies: list, alpha: float | None
) -> None:
    assert judge_audit.alpha(tallies) == (alpha if alpha is None else pytest.approx(alpha))


def test_two_judges_are_compared_on_the_turns_that_both_voted_on(run: Path, model: dict) -> None:
    # (model, rules): (1, 1) (-1, 1) (1, 0); by chance 2/3 * 2/3 agree, so (3 - 4) / (9 - 4)
    assert model["with"] == {"rules": {
        "turns": 3, "agreement": pytest.approx(1 / 3), "opposite": 1,
        "kappa": pytest.approx(-0.2)}}
    rules = judge_audit.figures(judge_audit.audit(run)["rules"])
    assert rules["with"]["model"]["kappa"] == pytest.approx(-0.2)
    assert rules["tallies"] == 0 and rules["votes_agree"] is None


def test_judges_who_always_agree_have_a_kappa_of_1_unless_they_say_one_thing_only() -> None:
    assert judge_audit.kappa(Counter({(1, 1): 3, (-1, -1): 2})) == pytest.approx(1.0)
    assert judge_audit.kappa(Counter({(1, 1): 9})) is None
    assert judge_audit.kappa(Counter()) is None


def test_abstentions_are_told_by_cause(run: Path, model: dict) -> None:
    assert (model["abstained"], model["ties"]) == (0.25, 0.25)
    assert model["unreadable"] == model["no_verdict"] == 0
    journal = Journal(run)
    journal.put_signal(Signal("turn_0", "model", None, (1, None, None)))
    journal.put_signal(Signal("turn_1", "model", None, (1,), reason="it would not say"))
    journal.close()
    told = judge_audit.figures(judge_audit.audit(run)["model"])
    assert (told["ties"], told["unreadable"], told["no_verdict"]) == (0.25, 0.25, 0.25)


def test_pairs_whose_order_decided_are_a_share_of_those_that_the_judge_was_asked(
    model: dict
) -> None:
    assert (model["compared"], model["order_followed"]) == (4, 0.5)


def test_the_cost_is_answers_and_seconds(model: dict) -> None:
    assert model["asked"] == 12 and model["unread"] == pytest.approx(2 / 12)
    assert model["seconds"] == pytest.approx(2.0)
    assert model["seconds_a_turn"] == pytest.approx(0.5)


def test_a_bias_against_the_thumb_is_the_errors_and_not_the_votes() -> None:
    """Long replies that the person disliked too are no bias; disliked against the thumb are."""
    one = judge_audit.Audit()
    for length in range(10):
        thumb = 1 if length < 5 else -1
        judge_audit._count(one, Signal("t", "model", thumb), thumb, length, 0)
    assert judge_audit.bias(one.lengths) < -0.8 and judge_audit.bias(one.misses) is None
    one = judge_audit.Audit()
    for length in range(10):
        judge_audit._count(one, Signal("t", "model", 1 if length < 5 else -1), 1, length, 0)
    assert judge_audit.bias(one.misses) < -0.8


def test_the_command_prints_tables_and_json(run: Path) -> None:
    done = CliRunner().invoke(app, ["judge", "audit", "--run", str(run), "--json"])
    assert json.loads(done.output)["model"]["judged"] == 4
    text = CliRunner().invoke(app, ["judge", "audit", "--run", str(run)]).output
    assert "model and rules" in text and "-0.20" in text and "a tie" in text
    assert "length bias" in text and "too few" in text
