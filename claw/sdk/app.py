"""The seam of plugins that bring an HTTP app: the app asks the engine, never a worker.

`claw_app(engine, config)` returns any ASGI application; the runner serves it.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from claw.records import Message


@dataclass(frozen=True, slots=True)
class Ask:
    """One policy call. Unset sampling fields take the run's settings."""

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)
    """any of temperature, top_p, top_k, max_tokens, seed, stop, logprobs_k; the last one, also
    when it is 0, asks for the events' tokens"""
    session: str = ""
    """a session id the client named; empty lets the engine find the conversation"""
    kind: str = ""
    """main, side, or what helper call it is: one of HELPERS; empty lets the engine decide"""
    owner: str = "default"
    deadline_s: float = 0.0
    """0 takes the run's setting"""
    named_by: str = ""
    """by which of the client's marks the session is known, for the counters"""
    key: str = ""
    """how the client's other conversations call this one, where that is not `session`"""
    parent: str = ""
    """the session of the conversation that asked for this one, a sub-agent's"""
    tells_calls: bool = False
    """whether tool calls are told while they are made (Event.calls), where the model's format
    allows it. A call that was begun then stays a call, also when it breaks off"""
    one_call: bool = False
    """the reply ends with its first tool call; refused where the model's format marks no end"""


HELPERS = ("heartbeat", "cron", "memory", "subagent", "title")
"""calls of a client that no person made; each is a side turn"""


@dataclass(frozen=True, slots=True)
class Event:
    """One step of an answer, in order: start, text..., done. An error raises EngineError."""

    type: str
    """start | text | done"""
    turn_id: str = ""
    trace_id: str = ""
    text: str = ""
    """new text (type text)"""
    tokens: tuple[dict[str, Any], ...] = ()
    """per sampled token, for an ask with logprobs_k: id, token, logprob, top (list of [token,
    logprob]); type text"""
    reasoning: str = ""
    """new thinking, which comes before the text (type text)"""
    calls: tuple[dict[str, Any], ...] = ()
    """new parts of tool calls, after the text of the same event: index and arguments (the next
    piece of their JSON), with id and name in the first part of each call; type text"""
    message: Message | None = None
    """the whole reply (type done)"""
    finish_reason: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    version: int = 0


SCOPES = ("chat", "feedback")
"""what a key may be for: asking the policy, and judging its replies"""


@dataclass(frozen=True, slots=True)
class Person:
    """Who sends a request, by their key."""

    name: str = "default"
    """owner of their conversations and of the adapter that learns from them"""
    is_admin: bool = True
    """may see who uses the run, and let people in and out"""
    requests_per_minute: int = 0
    """0: no limit"""
    tokens_per_day: int = 0
    """of prompts and replies, within 24 hours; 0: no limit"""
    scopes: tuple[str, ...] = SCOPES
    """what the key is for, of SCOPES; looking at one's own things needs none"""
    is_paused: bool = False
    """an administrator has paused their budget: nothing is answered until it goes on"""


class People(Protocol):
    """Whose key is whose; `serve["people"]` of `claw_app`."""

    def of(self, key: str) -> Person | None:
        """Whose key this is; None: nobody's."""

    def named(self, name: str) -> Person | None:
        """The person of that name as they are now."""

    def secret(self, name: str = "default") -> str:
        """What changes with a person's key and tells nothing of it; empty: there is no key."""


class EngineError(Exception):
    """An answer that cannot be given, in the shape HTTP clients understand."""

    def __init__(
        self, status: int, message: str, *, type: str = "invalid_request_error",
        code: str | None = None, param: str | None = None, retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.type = status, message, type
        self.code, self.param, self.retry_after_s = code, param, retry_after_s


class Engine(Protocol):
    """What an app may ask of the running system."""

    def ask(self, ask: Ask) -> AsyncIterator[Event]:
        """Stream one answer. Closing the iterator early cancels the generation."""

    async def feedback(
        self, target: str, value: int, text: str = "", edit: str = "", *, owner: str = "default"
    ) -> dict[str, Any]:
        """Record a person's +1 / -1, words, and the reply as they would have had it, on a turn id
        or response id of theirs."""

    async def end_session(self, session: str, *, owner: str = "default") -> None:
        """Say that a conversation is over."""

    async def status(self, *, owner: str = "default") -> dict[str, Any]:
        """Return versions, workers, turns by state and the model's context length."""

    async def look(self, what: str, **about: Any) -> dict[str, Any]:
        """Return what a page shows: turns, turn, conversations, conversation, versions, version,
        learning, quarantine, requests, budget, of `owner` (docs/wire.md). An EngineError 404 when
        there is no such thing."""

    async def act(self, what: str, **about: Any) -> dict[str, Any]:
        """Do what a person (`owner`) asks of the run: pause, exclude, quarantine, forget, export,
        rollback, budget (an administrator, of somebody else)."""
