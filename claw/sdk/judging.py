"""The judge contract: a turn and what followed it go in, votes and hints come out."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from claw.records import Message, Task


@dataclass(frozen=True, slots=True)
class Case:
    """What a judge may look at."""

    turn_id: str
    request: tuple[Message, ...]
    """the messages the policy answered"""
    reply: Message
    next_state: tuple[Message, ...]
    """what followed: the person's next message, or all tool results; empty at an episode's end"""
    task: Task | None = None
    """the attempted task with its private answer; None in a conversation"""
    final: bool = False
    """whether this is the last turn of an episode: the verdict's number is the outcome"""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says. An abstention is `vote=None` with a reason."""

    vote: int | None = None
    """+1, 0 or -1"""
    votes: tuple[int | None, ...] = ()
    """the tally, None for an answer that could not be read"""
    number: float | None = None
    """a process value; at an episode's end the outcome: 1 is solved, 0 or less is nothing done"""
    hints: tuple[str, ...] = ()
    """1 to 3 sentences each: what to do differently, never the answer itself"""
    reason: str = ""


class Judge(Protocol):
    """Votes on turns. Stateless between cases.

    A judge of the engine may also `look_back(said: tuple[Message, ...]) -> tuple[str, ...]`: find
    what a person's whole conversation shows that they want of every reply (`judge.hindsight`).

    One that reads no words but runs tests or compares answers sets `is_checker = True`: everything
    that it says is then shown under `checker:<name>`.
    """

    name: str

    async def judge(self, case: Case) -> Verdict:
        """Return a verdict; raise nothing for a strange case, abstain instead."""
