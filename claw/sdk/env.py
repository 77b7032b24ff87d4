"""The environment contract: messages in, messages out, never token ids."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from claw.records import FinishReason, Message


@dataclass(frozen=True, slots=True)
class EnvTurn:
    """What the policy just said."""

    reply: Message
    """the assistant message, with `tool_calls` in OpenAI's shape when it called tools"""
    finish_reason: FinishReason
    index: int
    """0 for the first turn of the episode"""
    usage: dict[str, int] = field(default_factory=dict)


class Env(Protocol):
    """Plays one task once. Sync or async methods; closing twice is fine.

    There is no reset: a new task, or a new attempt, is a new Env.
    """

    tools: list[dict[str, Any]]
    """JSON schemas in OpenAI's `tools` shape; empty when the policy only talks"""

    def start(self) -> list[Message]:
        """Return the first messages."""

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Return what the policy sees next, or None when the episode is over."""

    def close(self) -> None:
        """Free everything the episode holds."""
