"""v1: buy something with little money. Tools with state, shared tools, setup, a stop, a runtime."""

import time
from collections.abc import Iterable

import verifiers.v1 as vf
from pydantic import Field


class Purse(vf.State):
    cash: int = 10
    bought: list[str] = Field(default_factory=list)


class ShopData(vf.TaskData):
    price: int = 4


class Till(vf.Toolset[vf.ToolsetConfig, Purse]):
    async def setup_task(self, task) -> None:
        self.price = task.price

    @vf.tool
    async def buy(self, thing: str, count: int = 1) -> str:
        """Buy things at the task's price."""
        if self.price * count > self.state.cash:
            raise ValueError("not enough money")
        self.state.cash -= self.price * count
        self.state.bought += [thing] * count
        return f"{self.state.cash} left"

    @vf.tool
    def ponder(self) -> str:
        """Think for a while."""
        time.sleep(1)
        return "hm"


class Sign(vf.Toolset[vf.SharedToolsetConfig]):
    TOOL_PREFIX = None
    opened = 0

    async def setup(self) -> None:
        type(self).opened += 1

    @vf.tool
    async def read_sign(self) -> str:
        """Read the sign of the shop."""
        return "Pears today."


class ShopTask(vf.Task[ShopData, Purse]):
    @classmethod
    def toolsets(cls, config) -> list[vf.Toolset]:
        return [Till(vf.ToolsetConfig())]

    async def setup(self, trace, runtime) -> None:
        await runtime.write("list.txt", b"pear")

    async def finalize(self, trace, runtime) -> None:
        trace.info["wanted"] = (await runtime.read("list.txt")).decode()

    @vf.stop
    async def is_broke(self, trace: vf.Trace) -> bool:
        return trace.state.cash < self.data.price

    @vf.reward
    async def wanted(self, trace, runtime) -> float:
        assert runtime is not None
        return float(trace.state.bought.count(trace.info["wanted"]))


class ShopTaskset(vf.Taskset[ShopTask, vf.TasksetConfig]):
    @classmethod
    def toolsets(cls, config) -> list[vf.Toolset]:
        return [Sign(vf.SharedToolsetConfig())]

    def load(self) -> Iterable[ShopTask]:
        for price in (4, 9):
            yield ShopTask(ShopData(prompt="Buy pears.", price=price), self.config.task)


__all__ = ["ShopTaskset"]
