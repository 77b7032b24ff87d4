"""Episodes of the plugin with scripted replies, judged as the runner does."""

import json
from dataclasses import dataclass, field
from typing import Any

from claw_env_toolcall.env import ToolEnv
from claw_env_toolcall.judge import ToolJudge
from claw_env_toolcall.settings import ToolcallConfig
from claw_env_toolcall.sources import sources

from claw.records import FinishReason
from claw.sdk import Case, EnvTurn, Message, Task, Verdict


def call(name: str, **arguments: Any) -> str:
    """A tool call as a policy writes it in protocol text."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def sum_task(answer: str = "42", checker: str = "number") -> Task:
    question = {"role": "user", "content": "What is 17 + 25?"}
    return Task("sum", (question,), answer={"answer": answer, "checker": checker})


@dataclass
class Played:
    """An episode that was played with given replies."""

    env: ToolEnv
    first: list[Message] = field(default_factory=list)
    said: list[list[Message] | None] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """What the policy read, all results of one reply together."""
        return ["\n".join(m["content"] for m in said or ()) for said in self.said]


async def play(
    *replies: str | Message, config: ToolcallConfig, task: Task | None = None,
    finish: FinishReason = FinishReason.STOP,
) -> Played:
    """Play an episode; the last reply is judged as the last."""
    task, judge = task or sum_task(), ToolJudge(config)
    played = Played(ToolEnv(task, config, sources(config)))
    try:
        played.first = await played.env.start()
        for i, given in enumerate(replies):
            reply = {"role": "assistant", "content": given} if isinstance(given, str) else given
            said = await played.env.reply(EnvTurn(reply, finish, i))
            case = Case("turn", tuple(played.first), reply, tuple(said or ()), task,
                        final=i == len(replies) - 1, metadata={"env": played.env, "index": i})
            played.said.append(said)
            played.verdicts.append(await judge.judge(case))
    finally:
        await played.env.close()
    return played
