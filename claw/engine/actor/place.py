"""What is known of a conversation's turns, and where a request belongs among them.

Owns: the records of the tree, the digests of a request. Does not own: finding (`session.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from claw.engine.actor import speech
from claw.records import Message, TurnKind


@dataclass(slots=True, eq=False)
class Node:
    """One turn as the tree knows it."""

    turn_id: str
    trace_id: str
    owner: str
    session: str
    kind: TurnKind
    index: int
    parent: "Node | None"
    digest: bytes
    """of the whole request: equal means a repetition"""
    request: bytes
    """chained digest of the request"""
    system: bytes
    own: bytes = b""
    """digest of the reply alone"""
    reply: bytes = b""
    """chained digest of request and reply; empty while the turn is unanswered"""
    raw: str = ""
    """what was sampled, without the end-of-turn token"""
    done_at: float = 0.0
    failed: bool = False


@dataclass(slots=True, eq=False)
class Conversation:
    """One trace in memory."""

    trace_id: str
    owner: str
    session: str
    nodes: list[Node] = field(default_factory=list)
    seen: float = 0.0
    is_episode: bool = False
    is_idle: bool = False
    """ended by silence; whoever comes back late still finds it while it is in memory"""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a request belongs."""

    rule: str
    """session, prefix, regenerated, retry, new, or episode"""
    trace_id: str
    """empty: a new trace"""
    parent: Node | None = None
    retry_of: Node | None = None
    answered: Node | None = None
    """the main turn that this request's new messages are the next state of"""
    next_state: tuple[Message, ...] = ()
    raw: dict[int, str] = field(default_factory=dict)
    """positions of our own earlier replies in the request, and what was sampled for them"""
    keys: "Keys | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Digests of one request."""

    digest: bytes
    system: bytes
    chain: list[tuple[int, bytes]]
    """(position in the request, chained digest up to there), spoken messages only"""
    root: bytes

    @property
    def request(self) -> bytes:
        return self.chain[-1][1] if self.chain else self.root


def keys_of(messages: Sequence[Message], owner: str, scope: str, extra: Any) -> Keys:
    """Return the digests of a request; `scope` is a session's or an episode's name."""
    root = chained = speech.digest([owner, scope])
    chain, system = [], []
    for position, message in enumerate(messages):
        if message.get("role") in ("system", "developer"):
            system.append(speech.text(message.get("content")))
        elif not speech.is_internal(message):
            chained = speech.digest([chained.hex(), speech.key(message).hex()])
            chain.append((position, chained))
    system_key = speech.digest(system)
    whole = speech.digest([chained.hex(), system_key.hex(), list(messages), extra])
    return Keys(whole, system_key, chain, root)
