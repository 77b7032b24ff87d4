"""Tasks that reasoning-gym makes: nothing to download, as many as one likes, exact checkers.

Owns: data sets by name, splits that share no question, scores.
Does not own: the data sets.
"""

import inspect
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from claw.sdk import Task, UsageError, nearest

from ..settings import ToolcallConfig

EVAL_SEED = 1_000_003
"""added to the seed of the tasks to learn from"""
_RUNS_CODE = re.compile(r"(?<!literal_)\b(eval|exec|parse_expr|sympify)\(")


def tasks(config: ToolcallConfig, split: str) -> Iterator[Task]:
    """Yield the tasks of a split; a held-out question is left out of the tasks to learn from."""
    held = _made(config, config.seed + EVAL_SEED, config.eval_size)
    if split == "eval":
        yield from _tasks(config, held, "eval")
        return
    questions = {str(entry["question"]) for entry in held}
    for task in _tasks(config, _made(config, config.seed, config.train_size), "train"):
        if task.messages[0]["content"] not in questions:
            yield task


def score(task: Task, answer: str) -> float:
    """Return the data set's own score of an answer, from 0 to 1."""
    private = task.answer
    made = _dataset(private["gym"], json.dumps(private["settings"]))
    return min(max(float(made.score_answer(answer, made[private["index"]])), 0.0), 1.0)


def _tasks(config: ToolcallConfig, data: Any, split: str) -> Iterator[Task]:
    settings = _settings(config, data.seed, data.size)
    for index, entry in enumerate(data):
        # an entry is made again where it is scored: what it holds may be no plain values
        private = {"gym": config.gym, "settings": settings, "index": index,
                   "answer": entry.get("answer")}
        yield Task(f"{config.gym}-{split}-{index}",
                   ({"role": "user", "content": str(entry["question"])},), answer=private)


def _made(config: ToolcallConfig, seed: int, size: int) -> Any:
    _checked(config.gym)
    try:
        return _dataset(config.gym, json.dumps(_settings(config, seed, size)))
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError("the data set does not take plugin.toolcall.gym_settings",
                         found=f"{config.gym}: {error}") from error


def _settings(config: ToolcallConfig, seed: int, size: int) -> dict[str, Any]:
    return {**config.gym_settings, "seed": seed, "size": size}


@lru_cache(maxsize=16)
def _dataset(name: str, settings: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, **json.loads(settings))


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
