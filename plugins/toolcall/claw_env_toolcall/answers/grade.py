"""What a reply is worth.

Owns: reply -> score, and the outcome that is made of it.
Does not own: steps on the way (`judge`).
"""

from dataclasses import dataclass

from claw.sdk import Task

from ..settings import ToolcallConfig
from ..tasks import gym
from ..tools.threads import on_thread
from .check import CHECKERS, MAX_ANSWER
from .find import find


@dataclass(frozen=True, slots=True)
class Grade:
    score: float
    """1 right, 0 wrong; between them only in mode lenient"""
    answer: str | None
    """what was taken for the answer"""

    @property
    def is_right(self) -> bool:
        return self.score >= 1.0

    @property
    def reason(self) -> str:
        if self.answer is None:
            return "no answer"
        return f"{'right' if self.is_right else 'wrong'}: {self.answer[:100]}"


async def grade(task: Task, text: str, mode: str) -> Grade:
    """Find the answer in the last reply and compare it with the task's."""
    answer = find(text, mode)
    if answer is None or len(answer) > MAX_ANSWER:
        return Grade(0.0, answer)
    if "gym" in task.answer:
        score = await on_thread(gym.score, task, answer)
    else:
        score = float(await CHECKERS[task.answer["checker"]](answer, task.answer["answer"]))
    return Grade(score if mode == "lenient" or score >= 1.0 else 0.0, answer)


def outcome(score: float, num_calls: int, config: ToolcallConfig) -> float:
    """Return o = 2 * score - 1; with the bonus a wrong answer: min(-0.6, o + (calls - 2) * 0.05).

    The bonus is OpenClaw-RL's: a policy that does not solve anything yet is led to the tools.
    """
    value = 2.0 * score - 1.0
    if config.tool_bonus and value < 0:
        value = min(-0.6, value + (num_calls - 2) * 0.05)
    return value
