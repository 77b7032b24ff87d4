"""v1: a taskset that asks for what cannot be had, by its settings."""

from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf


class OddTask(vf.Task[vf.TaskData]):
    @vf.reward
    async def nothing(self, trace) -> float:
        return 0.0


class OddConfig(vf.TasksetConfig):
    row: dict[str, Any] = {}
    raises: str = ""


class OddTaskset(vf.Taskset[OddTask, OddConfig]):
    def load(self) -> Iterable[OddTask]:
        yield OddTask(vf.TaskData(prompt="Fine."), self.config.task)
        row = {"prompt": "Odd."} | self.config.row
        yield OddTask(vf.TaskData.model_validate(row), self.config.task)


__all__ = ["OddTaskset"]
