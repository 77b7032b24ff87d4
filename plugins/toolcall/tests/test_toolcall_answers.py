"""Answers: found, compared, paid."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from claw_env_toolcall.answers import maths
from claw_env_toolcall.answers.check import CHECKERS
from claw_env_toolcall.answers.find import boxed, find
from claw_env_toolcall.answers.grade import grade, outcome
from claw_env_toolcall.settings import ToolcallConfig
from claw_env_toolcall.tasks import gym

from claw.sdk import Task


@pytest.mark.parametrize(("text", "answer"), [
    ("so \\boxed{42}.", "42"), ("\\boxed{1} then \\boxed{2}", "2"),
    ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"), ("\\boxed{ a b }", "a b"),
    ("\\boxed{3} and \\boxed{4", "3"), ("\\boxed{", None), ("42", None), ("\\boxed{}", ""),
])
def test_the_last_complete_box_is_the_answer(text: str, answer: str | None) -> None:
    assert boxed(text) == answer


@pytest.mark.parametrize(("text", "strict", "lenient"), [
    ("The answer is: 42.", None, "42"), ("Answer: $7$", None, "7"), ("", None, None),
    ("it makes 1,200 in all", None, "1,200"), ("first line\nParis", None, "Paris"),
    ("\\boxed{5} or 6", "5", "5"),
])
def test_lenient_takes_what_a_reader_would_and_strict_only_boxes(
    text: str, strict: str | None, lenient: str | None
) -> None:
    assert (find(text, "strict"), find(text, "lenient")) == (strict, lenient)


@pytest.mark.parametrize(("checker", "answer", "right", "is_right"), [
    ("exact", " Paris. ", "paris", True), ("exact", "Paris!", "paris", False),
    ("exact", "\uff34\uff25\uff33\uff34", "test", True),
    ("number", "1,000", "1000.0", True), ("number", "2000/2", "1000", True),
    ("number", "$5", "5", True), ("number", "1e3", "1000", True),
    ("number", "5 apples", "5", False),
    ("number", "1e999999999", "5", False), ("number", "1/0", "5", False),
    ("number", "nan", "nan", False), ("number", "100000000000000001", "100000000000000000", False),
    ("math", "0.5", "\\frac{1}{2}", True), ("math", "1+x", "x+1", True),
    ("math", "\\{1,2\\}", "\\{2,1\\}", True), ("math", "(1,2)", "(2,1)", False),
    ("math", "3", "4", False), ("math", "\\sqrt{8}", "2\\sqrt{2}", True),
    ("math", "}{\\frac", "3", False), ("math", "__import__('os').abort()", "3", False),
])
def test_an_answer_is_compared_as_its_checker_says(
    checker: str, answer: str, right: str, is_right: bool
) -> None:
    assert asyncio.run(CHECKERS[checker](answer, right)) is is_right


def test_a_formula_without_end_is_wrong_after_its_deadline_and_the_next_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maths, "DEADLINE_S", 3.0)

    async def go() -> list[bool]:
        return [await maths.equal("9^{9^{9^{9}}}", "3"), await maths.equal("0.5", "1/2")]

    started = time.monotonic()
    assert asyncio.run(go()) == [False, True]
    assert time.monotonic() - started < 60


def test_the_process_that_compares_ends_with_the_one_that_asks() -> None:
    code = ("import asyncio, os\nfrom claw_env_toolcall.answers import maths\n"
            "async def go():\n    await maths.equal('1', '1')\n"
            "    print(maths._maths._process.pid, flush=True)\n    os.kill(os.getpid(), 9)\n"
            "asyncio.run(go())")
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    pid, until = int(done.stdout), time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until and not _is_zombie(pid):
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists() or _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_the_process_that_compares_sees_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "hidden")

    async def go() -> str:
        await maths.equal("1", "1")
        process = maths._maths._process
        assert process is not None
        return Path(f"/proc/{process.pid}/environ").read_text()

    assert "hidden" not in asyncio.run(go())
    assert os.environ["SOME_SECRET"] == "hidden"


def test_strict_pays_no_part_of_an_answer_and_lenient_does() -> None:
    task = next(gym.tasks(ToolcallConfig(), "eval"))
    right = task.answer["answer"]
    strict = asyncio.run(grade(task, f"\\boxed{{it is {right}}}", "strict"))
    lenient = asyncio.run(grade(task, f"\\boxed{{it is {right}}}", "lenient"))
    assert strict.score == 0.0
    assert 0.0 < lenient.score < 1.0
    assert asyncio.run(grade(task, f"\\boxed{{{right}}}", "strict")).is_right


def test_an_answer_as_long_as_a_book_is_wrong() -> None:
    task = Task("t", (), answer={"answer": "4" * 3000, "checker": "exact"})
    assert asyncio.run(grade(task, "\\boxed{" + "4" * 3000 + "}", "strict")).score == 0.0


@pytest.mark.parametrize(("score", "calls", "bonus", "value"), [
    (1.0, 0, False, 1.0), (0.0, 6, False, -1.0), (1.0, 6, True, 1.0), (0.0, 0, True, -1.1),
    (0.0, 2, True, -1.0), (0.0, 6, True, -0.8), (0.0, 16, True, -0.6), (0.5, 0, False, 0.0),
])
def test_the_outcome_follows_the_reference(
    score: float, calls: int, bonus: bool, value: float
) -> None:
    assert outcome(score, calls, ToolcallConfig(tool_bonus=bonus)) == pytest.approx(value)
