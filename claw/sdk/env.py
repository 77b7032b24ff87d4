"""The environment contract: messages in, messages out, never token ids."""

import json
from collections.abc import Iterable
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

    An Env may also have `shown(messages) -> messages`: what the policy sees of the conversation so
    far, asked before each of its turns. So old screens leave a prompt that would else grow by one
    with every turn.

    One with an attribute `takes_pictures` has it set before `start`: whether the policy is known to
    see `image_url` parts (PNG or JPEG as a data URL). It shows words otherwise.
    """

    tools: list[dict[str, Any]]
    """JSON schemas in OpenAI's `tools` shape; empty when the policy only talks"""

    def start(self) -> list[Message]:
        """Return the first messages."""

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Return what the policy sees next, or None when the episode is over."""

    def close(self) -> None:
        """Free everything the episode holds."""


def assistant(text: str = "", calls: Iterable[tuple[str, Any]] = ()) -> Message:
    """Return what a policy says, in OpenAI's shape: `assistant(calls=[("read", {"path": "a"})])`.

    Arguments that are a string are sent as they are. Content is null beside calls alone.
    """
    made = [
        {"id": f"call{i:09d}", "type": "function", "function": {
            "name": name, "arguments": asked if isinstance(asked, str) else json.dumps(asked),
        }}
        for i, (name, asked) in enumerate(calls)
    ]
    message: Message = {"role": "assistant", "content": text or (None if made else "")}
    return message | {"tool_calls": made} if made else message
