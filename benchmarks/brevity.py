"""A task that any trainer of language models can be given: answer a question in twelve words.

Owns: the questions, the reward, and the plugin `brevity` of them.
Does not own: who trains (`benchmarks.peers`).
"""

from collections.abc import Iterable
from typing import Any

from claw.sdk import Case, Env, EnvTurn, Judge, Message, Task, Verdict, hookimpl

GOAL = 12
"""words"""
TRAIN = (
    "rain", "bread", "glass", "bees", "paper", "salt", "the moon", "a bridge", "tea", "a river",
    "the heart", "chess", "snow", "a clock", "iron", "the wind", "a tree", "soap", "a map", "music",
    "the tide", "honey", "a violin", "cotton", "light",
)
EVAL = ("copper", "a volcano", "wool", "the stars", "coffee", "a ship", "sand", "fire")


def questions(split: str) -> list[str]:
    """What is asked, in order."""
    return [f"Tell me about {topic}." for topic in (EVAL if split == "eval" else TRAIN)]


def worth(said: str) -> float:
    """1 at twelve words, else the smaller number over the larger: no reply is far from all others,
    so that groups differ from the first step on."""
    num_words = len(said.split())
    return min(num_words, GOAL) / max(num_words, GOAL)


class Asked:
    """One question, one answer."""

    def __init__(self, task: Task) -> None:
        self.tools: list[dict[str, Any]] = []
        self._task = task

    def start(self) -> list[Message]:
        return list(self._task.messages)

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        return None

    def close(self) -> None: ...


class Counter:
    """The checker of the table."""

    name = "brevity"

    async def judge(self, case: Case) -> Verdict:
        return Verdict(number=worth(str(case.reply.get("content") or "")))


@hookimpl
def claw_tasks(config: Any, split: str) -> Iterable[Task]:
    return [Task(f"{split}-{i}", ({"role": "user", "content": said},))
            for i, said in enumerate(questions(split))]


@hookimpl
def claw_env(task: Task, config: Any) -> Env:
    return Asked(task)


@hookimpl
def claw_judges(config: Any) -> list[Judge]:
    return [Counter()]
