"""`claw bench`: the benchmarks of a checkout, by name."""

from pathlib import Path

import pytest

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
