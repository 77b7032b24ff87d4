"""Grading on the real engine: what resolves, what is refused, what an agent cannot reach."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from claw_env_swe import families, fetch, grade, guard, machine, tasks
from claw_env_swe.instance import Instance
from claw_env_swe.settings import SweConfig
from claw_env_swe.work import Work
from small_repo import FIXED, GOLD, HALF, NEW_TEST, git

from claw.sdk import ClawError
from claw.sdk.sandbox import Spec, engine, open_sandbox

pytestmark = pytest.mark.real
CONFIG = SweConfig()
WRONG = Path(__file__).parent / "wrong"
SHIPPED = [row["instance_id"] for _, row in tasks.shipped()]


def graded(patch: str, instance: Instance, config: SweConfig = CONFIG) -> grade.Grade:
    return grade.grade(Work(patch.encode()), instance, config)


def named(id: str) -> Instance:
    [task] = tasks.of_split(SweConfig(only=(id,), eval_share=0.0), "train")
    return tasks.instance_of(task)


def test_at_least_eight_instances_are_shipped_each_with_a_wrong_patch() -> None:
    assert len(SHIPPED) >= 8
    assert {p.stem for p in WRONG.glob("*.patch")} == set(SHIPPED)


@pytest.mark.usefixtures("needs_docker", "pins")
@pytest.mark.slow
@pytest.mark.parametrize("id", SHIPPED)
def test_a_plausible_wrong_patch_of_a_shipped_instance_scores_nothing(id: str) -> None:
    made = graded((WRONG / f"{id}.patch").read_text(), named(id))
    assert (made.status, made.fraction) == ("no", 0.0)
    assert "FAIL_TO_PASS and" in made.reason, "its tests ran"
    assert "passed" in made.results.values()


@pytest.mark.usefixtures("needs_docker", "pins")
@pytest.mark.slow
@pytest.mark.parametrize("id", SHIPPED)
def test_the_gold_patch_of_a_shipped_instance_resolves_it_and_nothing_does_not(id: str) -> None:
    instance = named(id)
    assert graded(instance.gold, instance).status == "full"
    assert graded("", instance).status == "no"


def test_full_partial_and_no(instance: Instance) -> None:
    full, half, no = (graded(p, instance) for p in (GOLD, HALF, ""))
    assert (full.status, full.fraction, full.is_solved) == ("full", 1.0, True)
    assert (half.status, half.fraction, half.is_solved) == ("partial", 0.5, False)
    assert "test_add" in half.reason
    assert (no.status, no.fraction) == ("no", 0.0)


def test_a_patch_that_breaks_what_passed_is_worth_nothing(instance: Instance) -> None:
    broken = HALF.replace("+    return 2 * a\n", "+    return 2 * a\n+add = None\n")
    broken = broken.replace("@@ -5,2 +5,2 @@", "@@ -5,2 +5,3 @@")
    made = graded(broken, instance)
    assert made.status == "no" and "0 of 1 PASS_TO_PASS" in made.reason


def test_nothing_is_graded_once(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    first = graded("", instance)
    monkeypatch.setattr(grade, "opened", None)
    assert graded("\n", instance) is first


@pytest.mark.parametrize(("path", "is_refused"), [
    ("test_calc.py", True), ("conftest.py", True), ("deep/conftest.py", True),
    ("setup.cfg", True), ("pytest.py", True), ("src/unittest/__init__.py", True),
    ("sitecustomize.py", True), ("a.pth", True), ("jest.config.ts", True),
    ("tests/test_mine.py", False), ("calc.py", False), ("docs/pytest.md", False),
    ("src/calc/config.py", False),
])
def test_the_rule_of_what_a_patch_may_touch(
    row: dict[str, Any], path: str, is_refused: bool
) -> None:
    assert bool(guard.refused([path], families.read(row))) is is_refused


def test_a_file_that_the_gold_patch_touches_is_free(row: dict[str, Any]) -> None:
    gold = GOLD.replace("calc.py", "setup.cfg")
    assert guard.refused(["setup.cfg"], families.read(row | {"patch": gold})) == []


def test_a_patch_of_the_tests_is_refused_or_reset(instance: Instance) -> None:
    easy = ("diff --git a/test_calc.py b/test_calc.py\nnew file mode 100644\n--- /dev/null\n"
            "+++ b/test_calc.py\n@@ -0,0 +1 @@\n+pass\n")
    made = graded(HALF + easy, instance)
    assert (made.status, made.reason) == ("no", "refused: the patch touches test_calc.py")
    made = graded(HALF + easy, instance, SweConfig(tampering="reset"))
    assert made.status == "partial"


def test_a_renamed_file_counts_under_both_names(instance: Instance) -> None:
    moved = ("diff --git a/calc.py b/conftest.py\nsimilarity index 100%\nrename from calc.py\n"
             "rename to conftest.py\n")
    assert graded(moved, instance).reason == "refused: the patch touches conftest.py"
    away = moved.replace("conftest.py", "moved.py")
    named = replace(instance, suite=replace(instance.suite, files=("calc.py",)))
    assert graded(away, named).reason == "refused: the patch touches calc.py"


@pytest.mark.parametrize(("patch", "says"), [
    ("no diff at all\n", "cannot be read"), (GOLD.replace("a - b", "a * b"), "does not apply"),
    (GOLD.replace("calc.py", "../calc.py"), "does not apply|cannot be read"),
    (GOLD.replace("a/calc.py", "a/.git/config").replace("b/calc.py", "b/.git/config"), ""),
])
def test_a_patch_that_does_not_apply_says_why(
    instance: Instance, patch: str, says: str
) -> None:
    import re

    made = graded(patch, instance)
    assert made.status == "no" and re.search(says, made.reason)


def test_a_tests_log_without_a_test_says_how_it_ended(instance: Instance) -> None:
    suite = replace(instance.suite, command="echo broken; exit 3; : {files}")
    made = graded(GOLD, replace(instance, suite=suite))
    assert "exit code 3" in made.reason and "broken" in made.reason
    made = graded(GOLD, replace(instance, suite=replace(suite, command="sleep 60; : {files}")),
                  SweConfig(test_timeout_s=0.5))
    assert "its time over" in made.reason


def test_flaky_tests_are_found_and_named(
    row: dict[str, Any], instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = count()
    variables = machine.variables
    monkeypatch.setattr(grade, "variables", lambda i: variables(i) | {"RUN": str(next(runs))})
    second = NEW_TEST.replace("calc.add(7, 0), 7", "__import__('os').environ['RUN'] == '1', False")
    flaky = families.read(row | {"test_patch": second})
    made = grade.grade_often(Work(GOLD.encode()), flaky, CONFIG, 3)
    assert (made.status, made.reason) == (
        "no", "1 tests are flaky: test_zero (test_calc.Calc.test_zero) (2 of 3)")
    assert grade.grade_often(Work(GOLD.encode()), instance, CONFIG, 2).status == "full"


def test_no_other_commit_is_in_the_agents_repository(instance: Instance, repo: Path) -> None:
    with machine.opened(instance, CONFIG) as box:
        for name in ("past", "future"):
            commit = git(repo, "rev-parse", name)
            assert box.run(["git", "cat-file", "-e", commit]).exit_code != 0
        assert box.run("git log --all --oneline | wc -l").text.strip() == "1"
        assert box.run("git status --porcelain").text == ""
        assert FIXED not in box.run("cat calc.py").text


def test_the_tests_of_a_shipped_instance_are_not_in_the_agents_repository(
    needs_docker: None, pins: None
) -> None:
    with machine.opened(named("pathspec__match-file-none"), CONFIG) as box:
        assert box.run("grep -c match_file_2_exclude tests/test_03_pathspec.py").text == "1\n"
        assert box.run("grep -c match_file_3_unmatch tests/test_03_pathspec.py").text == "0\n"
        assert box.run("grep -c 'return bool(include)' pathspec/pathspec.py").text == "0\n"


def test_a_package_of_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(ClawError, match="pip could not download") as failed:
        fetch.fetch([("parse==1.20.2", "0" * 64)])
    assert "parse==1.20.2" in failed.value.found
    with pytest.raises(ClawError, match="not pinned"):
        fetch.fetch([("--index-url=x", "0" * 64)])


# --- images that somebody made ------------------------------------------------------------------

RUN_TESTS = r"""cd /testbed && python3 -m unittest -v test_calc 2>&1 |
sed -n 's/^\(test_[a-z]*\) .* ok$/PASSED r2e_tests\/t.py::Calc::\1/p'
"""


@pytest.fixture(scope="module")
def image(
    needs_docker: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An image as the families have them: root's, a repository with a past and a future."""
    name = "claw/swe-test:calc"
    with open_sandbox(Spec(user="0:0", workdir="/testbed")) as box:
        box.put({"calc.py": FIXED.encode()}, "/testbed")
        box.put({"run_tests.sh": RUN_TESTS.encode(),
                 "r2e_tests/t.py": b"secret"}, "/root")
        script = ("git init -q -b main && git add -A && git commit -qm base && git tag base && "
                  "echo later > later.py && git add -A && git commit -qm future && "
                  "git branch later && git reset -q --hard base && git rev-parse later")
        ran = box.run(script)
        assert ran.exit_code == 0, ran.text
        box.snapshot(name)
    yield name
    made = engine.api().inspect_image(name)["Id"]
    prepared = [i for i in engine.api().images("claw/swe") if i["ParentId"] == made]
    for one in [*(i["Id"] for i in prepared), made]:
        engine.api().remove_image(one, force=True)


BREAK = ("diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,5 +1,5 @@\n"
         " def add(a, b):\n-    return a + b\n+    return a - b\n \n \n def double(a):\n")


def test_swe_smiths_patch_makes_the_defect_and_its_reverse_mends_it(image: str) -> None:
    row = {"instance_id": "calc.smith", "image_name": image, "patch": BREAK,
           "FAIL_TO_PASS": ["main"], "PASS_TO_PASS": [], "test_cmd":
           "python3 -c 'import calc; assert calc.add(1, 2) == 3' && echo 'PASSED main' ||"
           " echo 'FAILED main' #"}
    instance = families.read(row)
    assert graded("", instance).status == "no"
    assert graded(GOLD, instance).status == "full"
    with machine.opened(instance, CONFIG) as box:
        assert box.run("git log --all --oneline").text.count("\n") == 1
        assert box.run("git branch -a; git tag; git remote").text == "* main\n"
        assert box.run("git cat-file --batch-all-objects --batch-check").text.count("commit") == 1
        assert box.run("git status --porcelain").text == ""


def test_r2e_gym_wants_exactly_the_expected_statuses_and_hides_its_tests(
    image: str, episode: Any
) -> None:
    row = {"repo_name": "calc", "docker_image": image, "problem_statement": "[ISSUE]x[/ISSUE]",
           "expected_output_json": json.dumps({"Calc.test_add": "PASSED",
                                               "Calc.test_zero": "PASSED"})}
    two = NEW_TEST.replace("calc.double(4), 8", "1, 2")
    instance = replace(families.read(row), test_patch=two)
    made = graded("", instance)
    assert made.status == "full", made.reason
    assert graded(BREAK, instance).status == "no"
    env = episode(row)
    assert env.box.run("ls /root/r2e_tests /root/run_tests.sh", user="0:0").exit_code != 0


def test_slime_is_decided_by_the_exit_code(image: str) -> None:
    row = {"prompt": "x", "label": "l", "metadata": {
        "image": image, "workdir": "/testbed",
        "eval_cmd": "python3 -c 'import calc; assert calc.add(1, 2) == 3'"}}
    instance = families.read(row)
    assert graded("", instance).status == "full"
    made = graded(BREAK, instance)
    assert (made.status, made.reason) == ("no", "the evaluation ended with exit code 1")
