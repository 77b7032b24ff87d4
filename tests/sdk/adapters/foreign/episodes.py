"""Plays a verifiers package turn by turn, as an episode of claw's runner does."""

import asyncio
import json
from typing import Any

from claw.records import FinishReason, Task
from claw.sdk import Case, EnvTurn, Verdict, registry

DEADLINE_S = 60


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def call(name: str, arguments: Any, id: str = "c0") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


class Package:
    """A package with its settings."""

    def __init__(self, package: str, split: str = "train", **settings: Any) -> None:
        self.plugin = registry.load("verifiers")
        self.settings = self.plugin.settings({"package": package} | settings)
        self.split = split

    def tasks(self) -> list[Task]:
        return list(self.plugin.hook.claw_tasks(config=self.settings, split=self.split))

    def episode(self, index: int = 0) -> "Episode":
        return Episode(self, self.tasks()[index])


class Episode:
    """`async with package.episode() as episode`: closed twice at its end."""

    def __init__(self, package: Package, task: Task) -> None:
        self.task, plugin = task, package.plugin
        self.judge = plugin.hook.claw_judges(config=package.settings)[0][0]
        self.env = plugin.hook.claw_env(task=task, config=package.settings)
        self.turns = 0

    async def __aenter__(self) -> "Episode":
        self.first = await self.env.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.env.close()
        await self.env.close()

    async def say(self, text: str = "", *calls: dict[str, Any], finish: str = "stop") -> Any:
        reply: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            reply["tool_calls"] = list(calls)
        turn = EnvTurn(reply, FinishReason(finish), self.turns, {"prompt_tokens": 3,
                                                                 "completion_tokens": 2})
        self.turns += 1
        return await self.env.reply(turn)

    async def verdict(self, *, final: bool = True) -> Verdict:
        case = Case("turn", (), {}, (), self.task, final, {"env": self.env})
        return await self.judge.judge(case)
