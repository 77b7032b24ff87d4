"""One attempt at one task with tools.

Owns: the turns: calls run, results are said, a reply without a call is the answer.
Does not own: what tools do (`tools`), what an answer is worth (`answers`, `judge`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from claw.sdk import EnvTurn, FinishReason, Message, Task

from . import calls, prompt
from .settings import ToolcallConfig
from .tools.tool import Source
from .tools.toolbox import Limits, Observation, Toolbox


@dataclass(frozen=True, slots=True)
class Step:
    """What one reply of the policy did."""

    text: str
    observations: tuple[Observation, ...]
    is_cut: bool
    """the reply was cut at max_tokens"""

    @property
    def errors(self) -> list[Observation]:
        return [o for o in self.observations if o.error]


class ToolEnv:
    """The env of a task. `steps` is what judges look at."""

    def __init__(self, task: Task, config: ToolcallConfig, sources: Sequence[Source]) -> None:
        self._task, self._config = task, config
        limits = Limits(config.max_calls, config.observation_chars, config.call_s, config.total_s)
        self.toolbox = Toolbox(sources, limits)
        self.tools: list[dict[str, Any]] = []
        self.steps: list[Step] = []

    async def start(self) -> list[Message]:
        """Make the tools ready and return the task."""
        await self.toolbox.open()
        tools = self.toolbox.tools.values()
        if self._config.protocol == "template":
            self.tools = [tool.schema for tool in tools]
        return prompt.first(self._task, tools, self._config)

    async def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Run the calls of a reply; None when there are none: then the reply is the answer."""
        found = calls.read(turn.reply)
        observations = await self.toolbox.run(found)
        is_cut = turn.finish_reason is FinishReason.LENGTH
        self.steps.append(Step(calls.text_of(turn.reply), tuple(observations), is_cut))
        return prompt.results(observations, self._config) if observations else None

    async def close(self) -> None:
        """Close the tools."""
        await self.toolbox.close()
