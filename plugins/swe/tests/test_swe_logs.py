"""Logs as the frameworks write them, and what tests of them passed."""

from pathlib import Path

import pytest
from claw_env_swe.logs import PARSERS, parse

PYTEST = """\
============================= test session starts ==============================
tests/test_a.py ..F.                                                     [100%]
=========================== short test summary info ============================
PASSED tests/test_a.py::test_one
PASSED tests/test_a.py::test_two[a - b]
PASSED tests/test_a.py::Case::test_spaced[x y]
SKIPPED [1] tests/test_a.py:12: no network
XFAIL tests/test_a.py::test_known - not yet
XPASS tests/test_a.py::test_lucky
\x1b[31mFAILED\x1b[0m tests/test_a.py::test_three[p - q] - AssertionError: assert 1 - 2
FAILED tests/test_a.py::test_bare
ERROR tests/test_b.py - ImportError: no module
=================== 3 failed, 3 passed in 0.12s ====================
"""
UNITTEST = """\
test_add (tests.Calc.test_add) ... ok
test_sub (tests.Calc.test_sub)
Taking away. ... FAIL
test_mul (tests.Calc.test_mul) ... skipped 'later'
test_div (tests.Calc.test_div) ... a line of the test's own
ERROR
test_pow (tests.Calc.test_pow) ... expected failure
test_mod (tests.Calc.test_mod) ... unexpected success

======================================================================
FAIL: test_sub (tests.Calc.test_sub)
"""
DJANGO = """\
Testing against Django installed in '/testbed/django' with up to 1 processes
Operations to perform:
  Synchronize unmigrated apps: auth
test_a (auth_tests.test_v.A) ... ok
test_b (auth_tests.test_v.A)
A docstring that is the name of it. ... ok
test_c (auth_tests.test_v.A) ... System check identified no issues (0 silenced).
ok
test_d (auth_tests.test_v.A) ... FAIL
"""
GO = """\
=== RUN   TestAdd
--- PASS: TestAdd (0.00s)
=== RUN   TestSub
=== RUN   TestSub/negative
    --- FAIL: TestSub/negative (0.01s)
--- FAIL: TestSub (0.01s)
--- SKIP: TestNet (0.00s)
FAIL
{"Time":"2024-01-01T00:00:00Z","Action":"pass","Package":"example/b","Test":"TestB","Elapsed":0.1}
{"Action":"output","Package":"example/b","Output":"ok"}
"""
JEST = """\
PASS test/a.test.js
  parser
    numbers
      ✓ reads integers (3 ms)
      ✕ reads floats
    ○ skipped reads strings
  ✓ loads (1.2 s)
"""
CARGO = """\
running 4 tests
test parser::tests::reads ... ok
test parser::tests::panics - should panic ... ok
test parser::tests::fails ... FAILED
test slow ... ignored, needs network
"""
JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.test_a" name="test_one" time="0.1"/>
<testcase classname="tests.test_a" name="test_two"><failure message="x">trace</failure></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped/></testcase>
<testcase classname="tests.test_a" name="test_four"><error/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(("framework", "log", "passed", "others"), [
    ("pytest", PYTEST,
     {"tests/test_a.py::test_one", "tests/test_a.py::test_two[a - b]",
      "tests/test_a.py::Case::test_spaced[x y]", "tests/test_a.py::test_known"},
     {"tests/test_a.py::test_three[p - q]": "failed", "tests/test_a.py::test_bare": "failed",
      "tests/test_a.py::test_lucky": "failed", "tests/test_b.py": "error"}),
    ("unittest", UNITTEST,
     {"test_add (tests.Calc.test_add)", "test_pow (tests.Calc.test_pow)"},
     {"test_sub (tests.Calc.test_sub)": "failed", "Taking away.": "failed",
      "test_mul (tests.Calc.test_mul)": "skipped", "test_div (tests.Calc.test_div)": "error",
      "test_mod (tests.Calc.test_mod)": "failed"}),
    ("django", DJANGO,
     {"test_a (auth_tests.test_v.A)", "test_b (auth_tests.test_v.A)",
      "A docstring that is the name of it.", "test_c (auth_tests.test_v.A)"},
     {"test_d (auth_tests.test_v.A)": "failed"}),
    ("go", GO, {"TestAdd", "TestB", "example/b.TestB"},
     {"TestSub": "failed", "TestSub/negative": "failed", "TestNet": "skipped"}),
    ("jest", JEST, {"reads integers", "parser > numbers > reads integers", "loads"},
     {"reads floats": "failed", "parser > numbers > reads floats": "failed",
      "reads strings": "skipped"}),
    ("cargo", CARGO, {"parser::tests::reads", "parser::tests::panics"},
     {"parser::tests::fails": "failed", "slow": "skipped"}),
    ("junit", JUNIT, {"tests.test_a::test_one", "test_one"},
     {"tests.test_a::test_two": "failed", "tests.test_a::test_three": "skipped",
      "tests.test_a::test_four": "error"}),
])
def test_each_framework_says_what_passed(
    framework: str, log: str, passed: set[str], others: dict[str, str]
) -> None:
    found = parse(framework, log)
    assert {n for n, status in found.items() if status == "passed"} >= passed
    assert {n: found.get(n) for n in others} == others


P, U = "shop.tests.PriceTests", "shop.tests.UserTests"
REAL = {
    "django": {
        f"test_adds ({P}.test_adds)": "passed",
        f"test_documented ({P}.test_documented)": "passed",
        "A price keeps its currency.": "passed",
        f"test_documented_and_failing ({P}.test_documented_and_failing)": "failed",
        "A price in yen has no cents.": "failed", f"test_prints ({P}.test_prints)": "passed",
        f"test_skipped ({P}.test_skipped)": "skipped", f"test_known ({P}.test_known)": "passed",
        f"test_unexpected ({P}.test_unexpected)": "failed",
        f"test_with_parts ({P}.test_with_parts)": "failed",
        f"test_saves ({U}.test_saves)": "passed", f"test_breaks ({U}.test_breaks)": "error",
        "test_never (shop.tests.SetUpTests.test_never)": None,  # its class could not be set up
    },
    "go": {
        "TestAdds": "passed", "TestFails": "failed", "TestSkips": "skipped",
        "TestParts": "failed", "TestParts/one": "passed", "TestParts/two_words": "failed",
        "TestParts/a/b": "passed", "TestPrints": "passed", "TestParallel": "passed",
        "TestParallel/x": "passed", "TestZPanics": "failed",
        "Example": None,  # the panic before it ended the run
    },
    "jest": {
        "loads": "passed", "price > adds": "passed", "price > prints": "passed",
        "price > 1 is less than 2": "passed", "price > fails (on purpose)": "failed",
        "price > in yen > has no cents": "failed", "price > in yen > is slow": "passed",
        "price > in yen > is skipped": "skipped", "price > in yen > is to be written": "skipped",
        "never runs": None,  # its file could not be loaded
    },
    "cargo": {
        "tests::adds": "passed", "tests::fails": "failed", "tests::panics": "passed",
        "tests::panics_otherwise": "failed", "tests::is_slow": "skipped",
        "tests::asks": "skipped", "tests::inner::deep": "passed", "sells": "passed",
        "src/lib.rs - add (line 3)": "passed",
    },
}
"""what each test of those runs did, as a person reads their sources"""


@pytest.mark.parametrize(("framework", "file"), [
    ("django", "django"), ("go", "go"), ("go", "go_json"), ("jest", "jest"), ("cargo", "cargo"),
])
def test_what_the_real_programs_wrote_is_read(framework: str, file: str) -> None:
    """Django 5.2.19, go 1.27.3, jest 30.5.2 and cargo 1.95, run on small suites."""
    log = (Path(__file__).parent / "logs" / f"{file}.log").read_text(encoding="utf-8")
    found = parse(framework, log)
    assert {name: found.get(name) for name in REAL[framework]} == REAL[framework]


def test_swe_benchs_name_of_a_pytest_id_with_a_space_is_found_too() -> None:
    assert parse("pytest", PYTEST)["tests/test_a.py::test_two[a"] == "passed"


def test_a_forged_line_does_not_mend_a_failure() -> None:
    forged = "PASSED tests/a.py::b\nFAILED tests/a.py::b - no\nPASSED tests/a.py::b\n"
    assert parse("pytest", forged) == {"tests/a.py::b": "failed"}


@pytest.mark.parametrize("framework", PARSERS)
def test_garbage_names_no_test(framework: str) -> None:
    for text in ("", "\0\ud800 PASSED", "{" * 5000, "<a" * 100, "--- PASS", "test (a"):
        assert parse(framework, text) == {}


def test_a_bomb_of_entities_is_no_report() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><t><testcase name="&b;"/></t>'
    assert parse("junit", bomb) == {}
