"""How far a judge can be believed: the measures, on numbers counted by hand."""

import json

import pytest
from typer.testing import CliRunner

from claw.cli import app
from claw.config import JudgeConfig
from claw.engine import judge_report
from claw.errors import UsageError
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


def test_the_command_prints_json() -> None:
    done = CliRunner().invoke(app, ["judge", "test", "--limit", "26", "--json"])
    assert json.loads(done.output)["rows"] == 26


def test_a_judge_that_needs_a_run_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"judge\.base_url"):
        judge_report.test(JudgeConfig(kind="model"), limit=1, as_json=True)
    with pytest.raises(UsageError, match="cannot be tested"):
        judge_report.test(JudgeConfig(kind="none"), limit=1, as_json=True)


def test_the_labelled_set_is_part_of_the_package() -> None:
    assert len(judge_report.labelled()) == 260
