"""What became of an attempt, who answers it, and what bounds it.

Owns: the record of an end, the rule of what is played again, the protocol of a policy.
Does not own: playing (`episode`), the actor (`engine`), an outside endpoint (`endpoint`).
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from claw.config import RolloutConfig
from claw.errors import Boundary, BoundaryError
from claw.records import End, Message, Signal, Task
from claw.sdk import Ask, EngineError, Event


@dataclass(frozen=True, slots=True)
class Result:
    """One attempt that ended. A failure is data: classified once, with a reason."""

    task_id: str
    trace_id: str
    end: End
    outcome: float | None = None
    judge: str = ""
    """who said the outcome"""
    failure: str = ""
    where: Boundary | None = None
    """the border that the failure crossed first"""
    num_turns: int = 0
    num_tokens: int = 0
    """sampled in all turns"""
    seconds: float = 0.0
    is_again: bool = False
    """the infrastructure failed: the same attempt is played anew, and this trace counts nowhere"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one episode."""

    turns: int
    tokens: int
    """0 is unbounded"""
    reply_tokens: int
    seconds: float
    observation: int

    @classmethod
    def of(cls, rollout: RolloutConfig) -> "Limits":
        return cls(rollout.max_turns, rollout.max_episode_tokens, rollout.max_tokens,
                   rollout.episode_s, rollout.max_observation)


class Policy(Protocol):
    """Who answers an episode's turns and hears of its end."""

    def ask(self, ask: Ask, *, trace_id: str = "") -> AsyncIterator[Event]:
        """Stream one answer; closing the iterator early cancels it."""

    async def takes_pictures(self) -> bool:
        """Whether it is known to see the pictures in messages."""

    async def open_trace(self, task: Task, group: str) -> str:
        """Begin a trace; return its id."""

    async def next_state(
        self, turn_id: str, messages: list[Message], signals: list[Signal]
    ) -> None:
        """Hear what followed a turn, and what the plugin's judges say of it."""

    async def end_trace(self, result: Result) -> None:
        """Hear how an episode ended."""


def is_infrastructure(error: BoundaryError, *, has_started: bool) -> bool:
    """Whether the same attempt may be played again without favouring what the policy did.

    A sandbox or the engine failed, or the environment before the policy had said anything. An
    environment that fails at a reply may fail because of the reply, and a judge is asked again
    about the same episode: neither is played again.
    """
    if error.where is Boundary.POLICY:
        refused = isinstance(error.cause, EngineError) and 400 <= error.cause.status < 500
        return not refused or error.cause.status in (408, 429, 499)
    return error.where is Boundary.SANDBOX or (error.where is Boundary.ENV and not has_started)
