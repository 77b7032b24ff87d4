"""How far a judge can be believed: the measures, on numbers counted by hand."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from claw.cli import app
from claw.config import JudgeConfig
from claw.engine import judge_report
from claw.engine.actor.journal import Journal
from claw.errors import UsageError
from claw.records import Signal
from claw.sdk.judging import Case, Verdict


def row(vote: int, has_hint: bool = False, reply: str = "x") -> dict:
    return {"id": "r", "request": "q", "reply": reply, "next_state": [], "vote": vote,
            "has_hint": has_hint}


def test_precision_and_recall_are_counted_over_the_right_rows() -> None:
    rows = [row(1), row(1), row(-1, True), row(-1, True), row(0)]
    verdicts = [Verdict(1), Verdict(), Verdict(-1, hints=("do this",)), Verdict(1), Verdict(-1)]
    found = judge_report.scores(rows, verdicts)
    assert (found["up_precision"], found["up_recall"]) == (0.5, 0.5)  # 1 of 2 given, 1 of 2 wanted
    assert (found["down_precision"], found["down_recall"]) == (0.5, 0.5)
    assert (found["hint_precision"], found["hint_recall"]) == (1.0, 0.5)
    assert found["abstained"] == 0.2 and found["opposite"] == 1 and found["failed"] == 0


def test_a_judge_that_fails_is_counted_and_ends_nothing() -> None:
    class Broken:
        name = "broken"

        async def judge(self, case: Case) -> Verdict:
            if case.reply["content"] == "bad":
                raise RuntimeError("no")
            return Verdict(1, (1, 1, None))

    found = judge_report.measure(Broken(), [row(1), row(1, reply="bad"), row(-1)], 2)
    assert (found["failed"], found["votes"], found["abstained"]) == (1, 6, pytest.approx(1 / 3))
    assert found["opposite"] == 1 and found["seconds"] > 0


def test_a_bias_is_a_correlation_and_needs_enough_turns() -> None:
    assert judge_report.bias([(10 * i, 1 if i > 4 else -1) for i in range(10)]) > 0.8
    assert judge_report.bias([(10 * i, -1 if i > 4 else 1) for i in range(10)]) < -0.8
    assert judge_report.bias([(1, 1)] * 20) is None  # constant
    assert judge_report.bias([(1, 1), (2, -1)]) is None  # too few


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four turns that a model judged; three have a thumb, one of them against the judge."""
    import sys

    sys.path.insert(0, str(Path(__file__).parent / "actor"))
    from some_turns import turn

    journal = Journal(tmp_path)
    said = [((1, 1, -1), 1, 1), ((-1, None, -1), -1, 1), ((1, 1, 1), 1, 1),
            ((1, -1, None), None, 0)]
    for i, (votes, vote, thumb) in enumerate(said):
        journal.put_turn(turn(f"turn_{i}", index=i))
        journal.put_signal(Signal(f"turn_{i}", "model", vote, votes))
        if thumb:
            journal.put_signal(Signal(f"turn_{i}", "person", thumb, (thumb,)))
    journal.close()
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_an_audit_compares_votes_with_thumbs_and_with_each_other(run: Path) -> None:
    found = judge_report.figures(judge_report.audit(run)["model"])
    assert found["judged"] == 4 and found["abstained"] == 0.25
    assert (found["up"], found["down"]) == (2, 1)
    assert found["thumbs"] == 3 and found["opposite"] == 1
    assert found["agreement"] == pytest.approx(2 / 3)
    assert found["asked"] == 12 and found["unread"] == pytest.approx(2 / 12)
    # pairs: (1,1)(1,-1)(1,-1) | (-1,-1) | (1,1)x3 | (1,-1): 5 of 8 agree
    assert found["votes_agree"] == pytest.approx(5 / 8)
    assert found["length_bias"] is None


def test_the_commands_print_json(run: Path) -> None:
    done = CliRunner().invoke(app, ["judge", "audit", "--run", str(run), "--json"])
    assert json.loads(done.output)["model"]["judged"] == 4
    done = CliRunner().invoke(app, ["judge", "test", "--limit", "26", "--json"])
    assert json.loads(done.output)["rows"] == 26


def test_a_judge_that_needs_a_run_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"judge\.base_url"):
        judge_report.test(JudgeConfig(kind="model"), limit=1, as_json=True)
    with pytest.raises(UsageError, match="cannot be tested"):
        judge_report.test(JudgeConfig(kind="none"), limit=1, as_json=True)


def test_the_labelled_set_is_part_of_the_package() -> None:
    assert len(judge_report.labelled()) == 260
