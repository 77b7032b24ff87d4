"""One episode on an OpenEnv server.

Owns: turns -> steps, rewards -> the score.
Does not own: the socket (`session`), what an action is (`actions`).
"""

from typing import Any

from claw.records import Message, Task, new_id
from claw.sdk.adapters.checker import Score
from claw.sdk.adapters.openenv import session as sessions
from claw.sdk.adapters.openenv.actions import cut, listed, told, understood
from claw.sdk.adapters.openenv.settings import OpenenvConfig
from claw.sdk.env import EnvTurn
from claw.sdk.foreign_json import from_json


class OpenenvEnv:
    """Resets with the task's seed and steps with what the policy does."""

    def __init__(self, config: OpenenvConfig, task: Task) -> None:
        self.tools: list[dict[str, Any]] = []
        self._config, self._task = config, task
        self._actions = understood(config.url, task.metadata["action"])
        self._session: sessions.Session | None = None
        self._rewards: list[float] = []

    async def start(self) -> list[Message]:
        """Open a session and return the first observation."""
        about = {"seed": self._task.metadata["seed"], "episode_id": new_id("episode")}
        self._session, first = await sessions.begin(self._config, self._config.reset | about)
        if first.done:
            raise RuntimeError("the server's episode is over before it began")
        self._rewards.append(first.reward)
        if self._actions.is_mcp:
            answer = await self._session.step({"type": "list_tools"})
            self._actions.tools = listed(answer.observation)
        self.tools = self._actions.tools
        if not self.tools and not self._actions.text_field:
            raise RuntimeError("the server lists no tools to act with")
        said = told(first.observation, self._config.max_observation)
        return [*self._task.messages, {"role": "user", "content": said or "Begin."}]

    async def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Step, and return what is seen; None when the server says that the episode is done."""
        if self._actions.text_field:
            text = turn.reply.get("content") or ""
            said, done = await self._step({self._actions.text_field: text})
            return None if done else [{"role": "user", "content": said}]
        calls = turn.reply.get("tool_calls") or ()
        if not calls:
            return [{"role": "user", "content": f"Call a tool: {', '.join(self._names())}."}]
        following: list[Message] = []
        for call in calls:
            said, done = await self._call(call["function"])
            if done:
                return None
            following.append({"role": "tool", "tool_call_id": call["id"],
                              "name": call["function"]["name"], "content": said})
        return following

    async def score(self) -> Score:
        """Return the sum of all rewards of the episode."""
        return Score(sum(self._rewards), {"steps": len(self._rewards) - 1,
                                          "rewards": sum(self._rewards)})

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    # --- steps -------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return self._actions.names()

    async def _call(self, function: dict[str, str]) -> tuple[str, bool]:
        """What the policy does wrong in a call is an observation, and no step."""
        if (name := function["name"]) not in self._names():
            return f"Error: no tool {name!r}; there are: {', '.join(self._names())}", False
        try:
            arguments = from_json(function["arguments"] or "{}")
        except ValueError as error:
            return f"Error: the arguments are no JSON: {error}", False
        if not isinstance(arguments, dict):
            return "Error: the arguments are no JSON object", False
        return await self._step(self._actions.of_call(name, arguments))

    async def _step(self, action: dict[str, Any]) -> tuple[str, bool]:
        assert self._session is not None, "a step comes after the start"
        try:
            seen = await self._session.step(action)
        except sessions.WrongAction as error:
            return cut(f"Error: {error}", self._config.max_observation), False
        self._rewards.append(seen.reward)
        return told(seen.observation, self._config.max_observation) or "Done.", seen.done
