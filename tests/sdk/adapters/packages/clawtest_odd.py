"""v1: a taskset that asks for what cannot be had, by its settings."""

from collections.abc import Iterable
from typing import Any

import verifiers.v1 as vf
from pydantic import Field


class OddData(vf.TaskData):
    raises: str = ""


class OddTask(vf.Task[OddData]):
    async def setup(self, trace, runtime) -> None:
        if self.data.raises:
            raise RuntimeError(self.data.raises)

    @vf.reward
    async def nothing(self, trace) -> float:
        return 0.0


class OddConfig(vf.TasksetConfig):
    row: dict[str, Any] = Field(default_factory=dict)
    raises: str = ""


class OddTaskset(vf.Taskset[OddTask, OddConfig]):
    def load(self) -> Iterable[OddTask]:
        yield OddTask(OddData(prompt="Fine.", raises=self.config.raises), self.config.task)
        row = {"prompt": "Odd."} | self.config.row
        yield OddTask(OddData.model_validate(row), self.config.task)


__all__ = ["OddTaskset"]
