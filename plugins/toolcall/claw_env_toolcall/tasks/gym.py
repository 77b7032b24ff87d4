"""Tasks that reasoning-gym makes: nothing to download, as many as one likes, exact checkers.

Owns: data sets by name, splits that share no question, scores.
Does not own: the data sets.
"""

import inspect
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from claw.errors import UsageError, nearest
from claw.sdk import Task

from ..settings import ToolcallConfig

EVAL_SEED = 1_000_003
"""added to the seed of the tasks to learn from"""
_RUNS_CODE = re.compile(r"(?<!literal_)\b(eval|exec|parse_expr|sympify)\(")


def tasks(config: ToolcallConfig, split: str) -> Iterator[Task]:
    """Yield the tasks of a split; a held-out question is left out of the tasks to learn from."""
    data = _data(config, config.seed, config.train_size)
    held = _data(config, config.seed + EVAL_SEED, config.eval_size)
    questions = {str(entry["question"]) for entry in held}
    if split == "eval":
        for i, entry in enumerate(held):
            yield _task(config, entry, f"{config.gym}-eval-{i}")
        return
    for i, entry in enumerate(data):
        if str(entry["question"]) not in questions:
            yield _task(config, entry, f"{config.gym}-{i}")


def score(task: Task, answer: str) -> float:
    """Return the data set's own score of an answer, from 0 to 1."""
    made = _dataset(task.answer["gym"])
    return min(max(float(made.score_answer(answer, task.answer["entry"])), 0.0), 1.0)


def _task(config: ToolcallConfig, entry: dict[str, Any], id: str) -> Task:
    question = {"role": "user", "content": str(entry["question"])}
    private = {"gym": config.gym, "entry": entry, "answer": entry.get("answer")}
    return Task(id, (question,), metadata={"source": config.gym}, answer=private)


def _data(config: ToolcallConfig, seed: int, size: int) -> Any:
    import reasoning_gym

    _checked(config.gym)
    try:
        return reasoning_gym.create_dataset(
            config.gym, seed=seed, size=size, **config.gym_settings
        )
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError("the data set does not take plugin.toolcall.gym_settings",
                         found=f"{config.gym}: {error}") from error


@lru_cache(maxsize=8)
def _dataset(name: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, seed=0, size=1)


@lru_cache(maxsize=128)
def _checked(name: str) -> None:
    """Refuse a data set that is not there, or whose checker would run a policy's answer as code."""
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise UsageError(f"no data set {name!r} in reasoning-gym",
                         found=nearest(name, sorted(DATASETS)), do="set plugin.toolcall.gym")
    if _RUNS_CODE.search(inspect.getsource(DATASETS[name][0].score_answer)):
        raise UsageError(f"the data set {name!r} is refused",
                         found="its checker runs the answer as Python code",
                         do="choose another one in plugin.toolcall.gym")
