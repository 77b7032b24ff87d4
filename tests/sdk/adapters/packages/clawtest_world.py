"""v1: a taskset with a harness, agents, a container and rewriting of its own."""

from collections.abc import Iterable

import verifiers.v1 as vf
from verifiers.v1.env import Env
from verifiers.v1.harness import Harness


class WorldHarness(Harness):
    async def launch(self, *args, **kwargs):
        raise AssertionError("never launched")


class WorldEnv(Env):
    async def run(self, task, agents) -> None:
        raise AssertionError("never run")


class Far(vf.Toolset[vf.ToolsetConfig]):
    @vf.tool
    async def look(self) -> str:
        """Look far."""
        return "far"


class WorldTask(vf.Task[vf.TaskData]):
    NEEDS_CONTAINER = True

    @classmethod
    def toolsets(cls, config) -> list[vf.Toolset]:
        return [Far(vf.ToolsetConfig(url="http://far.invalid/mcp"))]

    @vf.intercept
    async def censor(self, request: vf.Request) -> None:
        return None


class WorldTaskset(vf.Taskset[WorldTask, vf.TasksetConfig]):
    def load(self) -> Iterable[WorldTask]:
        yield WorldTask(vf.TaskData(prompt="Go."), self.config.task)


__all__ = ["WorldEnv", "WorldHarness", "WorldTaskset"]
