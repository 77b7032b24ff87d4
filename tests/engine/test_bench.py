"""`claw bench`: the benchmarks of a checkout, by name."""

from pathlib import Path
from typing import Any

import pytest

from claw import config as settings
from claw.engine import bench
from claw.errors import UsageError

PROGRAM = '''"""`python -m benchmarks.{name}`: what {name} measures.

More.
"""

import sys

sys.exit(int(sys.argv[1]) if len(sys.argv) == 2 else 9)
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Benchmarks."""\n')
    (folder / "heads.py").write_text('"""A part of others."""\n')
    for name in ("wire", "serving"):
        (folder / f"{name}.py").write_text(PROGRAM.format(name=name))
    return tmp_path


def test_each_program_is_listed_with_what_it_measures_and_parts_are_not(checkout: Path) -> None:
    assert bench.programs(checkout) == {
        "serving": "what serving measures.", "wire": "what wire measures.",
    }  # fmt: skip


def test_the_programs_of_this_checkout_are_known() -> None:
    assert {"kernels", "compiled", "wire", "serving"} <= bench.programs().keys()
    assert "heads" not in bench.programs()
    assert all(bench.programs().values())


def test_words_go_to_the_program_and_its_exit_code_comes_back(checkout: Path) -> None:
    assert bench.run("wire", ["3"], checkout) == 3
    assert bench.run("wire", ["0"], checkout) == 0
    assert bench.run("wire", [], checkout) == 9


def test_an_unknown_name_is_refused_with_the_nearest_one(checkout: Path) -> None:
    with pytest.raises(UsageError, match=r"no benchmark 'wires'[\s\S]*'wire'[\s\S]*serving, wire"):
        bench.run("wires", [], checkout)


def test_without_a_checkout_it_says_where_the_benchmarks_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="clone the repository"):
        bench.programs(tmp_path)


def test_each_method_whose_learning_is_compared_is_a_valid_setting() -> None:
    from benchmarks import learning, trial

    for changes in learning.METHODS.values():
        settings.load(trial.RECIPE, changes)
    assert {"hybrid", "grpo", "memory"} <= learning.METHODS.keys()


def test_the_learning_table_names_seeds_that_never_met_the_taste() -> None:
    from benchmarks import learning

    def row(seed: int, met_at: int | None, facts: float) -> dict[str, Any]:
        after = {"hits": 0.5, "topic": 0.75, "tokens": 20.0, "facts": facts, "perplexity": 11.0}
        return {"person": "plain", "method": "grpo", "seed": seed, "conversations": 32,
                "met_at": met_at, "before": {"facts": 0.5, "perplexity": 10.0}, "after": after}

    lines = learning.table([row(1, None, 0.4), row(0, 19, 0.5)])
    assert lines[2:] == [
        "| plain | grpo | 2 | 19 >32 | 0.50 ± 0.00 | 0.75 ± 0.00 | 0.90 ± 0.14 "
        "| 1.10 ± 0.00 | 20 ± 0 |"]
