"""Tasks: generated ones and rows of files."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_toolcall.answers.grade import grade
from claw_env_toolcall.settings import ToolcallConfig
from claw_env_toolcall.tasks import gym, rows

from claw.errors import UsageError
from claw.sdk import registry


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Write rows; return settings that name the file for both splits."""

    def write(*given: Any) -> dict[str, Any]:
        path = tmp_path / "rows.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in given]
        path.write_text("\n".join(lines), encoding="utf-8")
        return {"tasks": "rows", "rows": str(path), "eval_rows": str(path)}

    return write


def first(settings: dict[str, Any]) -> Any:
    return next(rows.tasks(ToolcallConfig(**settings), "train"))


def test_generated_tasks_are_the_same_each_time_and_others_with_another_seed() -> None:
    small = {"train_size": 16, "eval_size": 8}
    once = list(gym.tasks(ToolcallConfig(**small), "train"))
    again = list(gym.tasks(ToolcallConfig(**small), "train"))
    other = list(gym.tasks(ToolcallConfig(**small, seed=1), "train"))
    assert [t.messages for t in once] == [t.messages for t in again]
    assert [t.messages for t in once] != [t.messages for t in other]


def test_no_held_out_question_is_learned_from() -> None:
    """One-digit sums: most of 200 held-out questions are drawn for training too."""
    config = ToolcallConfig(train_size=400, eval_size=200, gym_settings={
        "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
    train = {t.messages[0]["content"] for t in gym.tasks(config, "train")}
    held = {t.messages[0]["content"] for t in gym.tasks(config, "eval")}
    assert train and held and not train & held


@pytest.mark.parametrize("name", ["chain_sum", "gcd", "letter_counting", "prime_factorization",
                                  "number_sequence"])
def test_the_gold_answer_of_a_generated_task_is_right_and_an_empty_one_is_not(name: str) -> None:
    config = ToolcallConfig(gym=name, gym_settings={}, train_size=3, eval_size=3)
    for task in gym.tasks(config, "eval"):
        gold = f"\\boxed{{{task.answer['answer']}}}"
        assert asyncio.run(grade(task, gold, "strict")).is_right
        assert not asyncio.run(grade(task, "\\boxed{}", "strict")).is_right


@pytest.mark.parametrize("name", ["countdown", "puzzle24", "simple_integration", "n_queens",
                                  "number_sorting", "spiral_matrix"])
def test_a_data_set_whose_checker_runs_the_answer_as_code_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="runs the answer as Python code"):
        next(gym.tasks(ToolcallConfig(gym=name, gym_settings={}), "train"))


def test_a_misspelt_data_set_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'chain_sum'"):
        next(gym.tasks(ToolcallConfig(gym="chain_sums"), "train"))


def test_wrong_arguments_of_a_data_set_are_named() -> None:
    with pytest.raises(UsageError, match="num_cats"):
        next(gym.tasks(ToolcallConfig(gym_settings={"num_cats": 3}), "train"))


@pytest.mark.parametrize(("row", "question", "answer"), [
    ({"question": "2+2?", "answer": 4}, "2+2?", "4"),
    ({"problem": "2+2?", "answer": "4"}, "2+2?", "4"),  # AIME
    ({"Problem": "2+2?", "Answer": 204, "ID": "2024-I-1"}, "2+2?", "204"),
    ({"prompt": [{"role": "user", "content": "2+2?"}], "label": "4"}, "2+2?", "4"),  # slime
    ({"prompt": [{"role": "user", "content": "2+2?"}], "data_source": "math_dapo",
      "reward_model": {"ground_truth": "4", "style": "rule"}, "extra_info": {"index": "7"}},
     "2+2?", "4"),  # DAPO
])
def test_rows_of_known_shapes_are_read(
    file: Callable, row: dict[str, Any], question: str, answer: str
) -> None:
    task = first(file(row))
    assert task.messages[-1]["content"] == question
    assert task.answer == {"answer": answer, "checker": "math"}


@pytest.mark.parametrize(("row", "words"), [
    ("{", "rows.jsonl:1: not JSON"), ("[1]", "not a JSON object"), ({"answer": 1}, "no question"),
    ({"question": "x"}, "no answer"), ({"question": "x", "answer": True}, "no answer"),
    ({"question": "x", "answer": "1", "checker": "guess"}, "checker 'guess'; there are exact"),
    ({"prompt": [{"role": "tool", "content": "x"}], "answer": "1"}, "no question"),
    ('{"question": "' + "x" * (1 << 20) + '"}', "more than 1048576 bytes"),
])
def test_a_row_that_is_no_task_is_named_with_its_line(
    file: Callable, row: Any, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        first(file(row))
    assert words in str(caught.value)


def test_a_rows_own_checker_and_system_message_are_kept(file: Callable, episode: Callable) -> None:
    task = first(file({"prompt": [{"role": "system", "content": "Be brief."},
                                  {"role": "user", "content": "Capital of France?"}],
                       "answer": "Paris", "checker": "exact"}))
    played = episode("\\boxed{paris}", task=task, settings={"examples": ()})
    assert played.first[0]["content"].startswith("Be brief.\n\nCall the calculator")
    assert [m["role"] for m in played.first] == ["system", "user"]
    assert played.verdicts[0].number == 1.0


def test_the_private_answer_is_in_nothing_that_the_policy_reads(
    file: Callable, episode: Callable
) -> None:
    task = first(file({"question": "A secret?", "answer": "4711xyz", "checker": "exact"}))
    played = episode("I do not know.", task=task)
    assert "4711xyz" not in json.dumps([played.first, played.said])


@pytest.mark.parametrize("values", [
    {"tasks": "rows"}, {"rows": "x.jsonl"}, {"checker": "exact"}, {"tools": ("python", "python")},
    {"python": {"memory_mb": 128}}, {"system": "x", "protocol": "template"}, {"bogus": 1},
])
def test_settings_that_would_be_ignored_are_errors(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not valid"):
        registry.load("toolcall").settings(values)


def test_loading_the_plugin_imports_none_of_its_libraries() -> None:
    import subprocess
    import sys

    code = ("import sys; from claw.sdk import registry; registry.load('toolcall').settings({}); "
            "print(sorted({'torch','mcp','docker','sympy','reasoning_gym'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
