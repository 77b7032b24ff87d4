"""How well the rules judge reads 260 next states that neither it nor the simulated people saw.

    pytest tests/sdk/test_rules_labelled.py -s      prints the table in docs/judges.md
"""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from claw.sdk.judges import rules
from claw.sdk.judges.rules import RulesJudge
from claw.sdk.judging import Case, Verdict

DATA = Path(rules.__file__).parent / "labelled.jsonl"


def rows() -> list[dict]:
    return [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


def verdict_of(row: dict) -> Verdict:
    case = Case(
        row["id"], ({"role": "user", "content": row["request"]},),
        {"role": "assistant", "content": row["reply"]}, tuple(row["next_state"]),
    )
    return asyncio.run(RulesJudge().judge(case))


@pytest.fixture(scope="module")
def counts() -> Counter:
    """(label, vote) -> how many; and (`hint`, labelled, given) -> how many."""
    found: Counter = Counter()
    for row in rows():
        verdict = verdict_of(row)
        found[row["vote"], verdict.vote] += 1
        found["hint", row["has_hint"], bool(verdict.hints)] += 1
    return found


def precision(counts: Counter, vote: int) -> float:
    given = sum(counts[label, vote] for label in (1, 0, -1))
    return counts[vote, vote] / given


def recall(counts: Counter, vote: int) -> float:
    labelled = sum(counts[vote, given] for given in (1, 0, -1, None))
    return counts[vote, vote] / labelled


def test_there_are_at_least_200_labelled_next_states() -> None:
    assert len(rows()) >= 200
    assert Counter(r["vote"] for r in rows()) == {-1: 110, 1: 100, 0: 50}


@pytest.mark.parametrize("vote", [1, -1])
def test_a_vote_is_right_more_often_than_the_documents_say(counts: Counter, vote: int) -> None:
    said = {1: (0.65, 0.55), -1: (0.75, 0.55)}[vote]
    print(f"\nvote {vote:+d}: precision {precision(counts, vote):.2f}, "
          f"recall {recall(counts, vote):.2f}")
    assert precision(counts, vote) >= said[0]
    assert recall(counts, vote) >= said[1]


def test_a_vote_seldom_says_the_opposite(counts: Counter) -> None:
    opposite = counts[1, -1] + counts[-1, 1]
    print(f"\nopposite of the label: {opposite} of 210")
    assert opposite / 210 <= 0.13


def test_most_hints_come_from_messages_that_hold_one(counts: Counter) -> None:
    right, wrong = counts["hint", True, True], counts["hint", False, True]
    print(f"\nhints: precision {right / (right + wrong):.2f}, "
          f"recall {right / (right + counts['hint', True, False]):.2f}")
    assert right / (right + wrong) >= 0.7
