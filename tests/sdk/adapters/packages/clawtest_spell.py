"""v1: spell a word backwards. One turn, two weighted rewards, a system prompt, a metric."""

from collections.abc import Iterable

import verifiers.v1 as vf

WORDS = ("pear", "plum", "fig")


class SpellData(vf.TaskData):
    word: str
    answer: str


class SpellTask(vf.Task[SpellData]):
    @vf.reward(weight=1.0)
    async def correct(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.25)
    async def short(self, task, trace) -> float:
        return float(len(trace.last_reply) <= len(task.word))

    @vf.metric
    async def letters(self, trace) -> float:
        return float(len(trace.last_reply))


class SpellConfig(vf.TasksetConfig):
    count: int = 2


class SpellTaskset(vf.Taskset[SpellTask, SpellConfig]):
    def load(self) -> Iterable[SpellTask]:
        for word in WORDS[: self.config.count]:
            yield SpellTask(
                SpellData(
                    id=word, word=word, answer=word[::-1], prompt=f"Spell {word} backwards.",
                    system_prompt="Answer with one word.",
                ),
                self.config.task,
            )


__all__ = ["SpellTaskset"]
