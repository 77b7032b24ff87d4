"""Play one attempt at one task without an engine: the policy is a list of replies or a function.

Owns: the order of an episode (start, reply, ..., judge, close), as the runner plays it.
Does not own: models, traces on the wire, retries (`claw.engine.runner`).

    played = await play(plugin, settings, task, ["first reply", "second reply"])
    assert played.outcome == 1.0
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from claw.records import FinishReason, Message, Task
from claw.sdk.env import EnvTurn, assistant
from claw.sdk.hooks import Gold, Said
from claw.sdk.judging import Case, Judge, Verdict
from claw.sdk.lane import Lane
from claw.sdk.registry import Plugin

MAX_TURNS = 16
"""where a plugin recommends no rollout.max_turns"""
DEADLINE_S = 600.0
"""one call of an environment or a judge"""


@dataclass
class Played:
    """What happened in one attempt."""

    task: Task
    messages: list[Message] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    verdicts: list[dict[str, Verdict]] = field(default_factory=list)
    """per turn, what each judge said; those of the last one hold the outcome"""
    outcome: float | None = None
    is_over: bool = False
    """the environment ended the episode itself"""


class Attempt:
    """One environment: `start()`, `say(reply)`, `judge()`, `close()`."""

    def __init__(
        self, plugin: Plugin, settings: Any, task: Task, deadline_s: float = DEADLINE_S
    ) -> None:
        self.plugin, self.settings, self.task = plugin, settings, task
        self.played = Played(task)
        self.env: Any = None
        self.lane = Lane(f"env-{task.id}")
        self._deadline_s = deadline_s
        self._following: list[Message] = []

    async def start(self) -> list[Message]:
        """Make the environment; return its first messages."""
        self.env = await self._call(self._make)
        self.played.messages = list(await self._call(self.env.start))
        return self.played.messages

    def _make(self) -> Any:
        env = self.plugin.hook.claw_env(task=self.task, config=self.settings)
        if env is None:
            raise ValueError("claw_env returned no environment")
        return env

    async def say(self, said: Said) -> list[Message] | None:
        """Let the policy say something; return what follows, None when the episode is over."""
        reply = assistant(said) if isinstance(said, str) else said
        played, index = self.played, len(self.played.cases)
        played.cases.append(Case(
            f"turn_{index:04d}", tuple(played.messages), reply, (), self.task,
            metadata={"env": self.env, "index": index},
        ))
        reason = FinishReason.TOOL_CALLS if reply.get("tool_calls") else FinishReason.STOP
        following = await self._call(self.env.reply, EnvTurn(reply, reason, index))
        if following is not None and not isinstance(following, list | tuple):
            raise TypeError(f"reply() returned {type(following).__name__}, not messages")
        self._following = list(following or ())
        played.is_over = following is None
        played.messages = [*played.messages, reply, *self._following]
        played.cases[-1] = replace(played.cases[-1], next_state=tuple(self._following))
        return None if following is None else self._following

    async def judge(self) -> float | None:
        """Ask the plugin's judges about every turn; return the outcome of the last one."""
        made = judges(self.plugin, self.settings)
        cases = self.played.cases
        for case in cases:
            one = replace(case, final=case is cases[-1])
            self.played.verdicts.append({j.name: await j.judge(one) for j in made})
        self.played.outcome = outcome_of(self.played.verdicts)
        return self.played.outcome

    async def gold(self) -> Gold | None:
        """Ask the plugin how the gold solution plays this task; it may act on the environment."""
        hook = self.plugin.hook.claw_gold
        gold: Gold | None = await self._call(
            lambda: hook(task=self.task, env=self.env, config=self.settings)
        )
        return gold

    async def close(self) -> None:
        """Close the environment, also while a reply has not come back."""
        lane = Lane("env-close") if self.lane.is_busy else self.lane
        try:
            if self.env is not None:
                await lane.call(self.env.close, deadline_s=self._deadline_s)
        finally:
            lane.close()
            self.lane.close()

    async def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self.lane.call(function, *args, deadline_s=self._deadline_s)


async def play(
    plugin: Plugin, settings: Any, task: Task, replies: Gold, *, max_turns: int = 0,
    judged: bool = True,
) -> Played:
    """Play `replies` to the end of the episode, judge, close, and return what happened."""
    attempt = Attempt(plugin, settings, task)
    try:
        await attempt.start()
        await _converse(attempt, replies, max_turns or limit_of(plugin))
        if judged:
            await attempt.judge()
        return attempt.played
    finally:
        await attempt.close()


async def play_gold(plugin: Plugin, settings: Any, task: Task) -> Played | None:
    """Play the plugin's own gold solution; None where the task has none."""
    attempt = Attempt(plugin, settings, task)
    try:
        await attempt.start()
        if (gold := await attempt.gold()) is None:
            return None
        await _converse(attempt, gold, limit_of(plugin))
        await attempt.judge()
        return attempt.played
    finally:
        await attempt.close()


async def _converse(attempt: Attempt, replies: Gold, max_turns: int) -> None:
    policy = _policy(replies)
    for index in range(max_turns):
        said = policy(attempt.played.messages)
        if said is None and index > 0:
            return
        # a judge wants a turn: a policy without a word says nothing once
        if await attempt.say("" if said is None else said) is None:
            return


def _policy(replies: Gold) -> Callable[[list[Message]], Said | None]:
    if callable(replies):
        return replies
    waiting: Iterator[Said] = iter(replies)
    return lambda messages: next(waiting, None)


def silent(messages: list[Message]) -> str:
    """The policy that never says anything."""
    return ""


def judges(plugin: Plugin, settings: Any) -> list[Judge]:
    """Return the plugin's judges, first the one that it recommends: its number is the outcome."""
    made = [j for part in plugin.hook.claw_judges(config=settings) for j in part or ()]
    kind = _recommended(plugin, "judge").get("kind")
    return sorted(made, key=lambda judge: judge.name != kind)


def outcome_of(verdicts: list[dict[str, Verdict]]) -> float | None:
    """Return the first number that a judge gives the last turn."""
    numbers = [v.number for v in (verdicts[-1] if verdicts else {}).values()]
    return next((float(n) for n in numbers if n is not None), None)


def limit_of(plugin: Plugin) -> int:
    """Return the turn limit that the plugin recommends."""
    return int(_recommended(plugin, "rollout").get("max_turns", MAX_TURNS))


def _recommended(plugin: Plugin, section: str) -> dict[str, Any]:
    found: dict[str, Any] = (plugin.hook.claw_defaults() or {}).get(section) or {}
    return found
