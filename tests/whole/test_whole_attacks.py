"""Attacks end to end over HTTP, on a tiny model: what is held teaches nothing, what passes does."""

import json
from pathlib import Path

import pytest

from benchmarks import attacks


@pytest.mark.slow
def test_two_attacks_are_played_measured_and_written_down(
    whole_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "attacks.jsonl"
    words = ["--model", str(whole_model), "--runs", str(tmp_path), "--out", str(out),
             "--guards", "on", "--only", "role-markers", "tool-as-the-person"]
    attacks.main(words)
    held, passed = map(json.loads, out.read_text(encoding="utf-8").splitlines())

    assert (held["attack"], held["held"], held["trained"]) == (
        "role-markers", {"injection": 8}, 0)
    assert held["steps"] == 0 and held["logp"][0] == held["logp"][1]

    assert (passed["attack"], passed["held"]) == ("tool-as-the-person", {})
    assert passed["trained"] >= 4 and passed["steps"] == len(passed["drift"]) >= 1
    assert passed["logp"][0] != passed["logp"][1] and passed["drift"][-1] > 0

    before = out.read_bytes()
    attacks.main(words)
    assert out.read_bytes() == before, "what a file has is not done again"
    assert capsys.readouterr().out.count("| role-markers |") == 2
