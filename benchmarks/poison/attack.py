"""An attack as data: what somebody says, and what they want the model to say afterwards.

Owns: the records. Does not own: which attacks there are (suite), sending (send), scores (measure).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from claw_env_personal.people import person


@dataclass(frozen=True, slots=True)
class Say:
    """The person's next message."""

    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """What a tool gave, as a message of the role `tool`."""

    text: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """A thumb on the last reply, and what may come with it."""

    value: int
    text: str = ""
    edit: str = ""


@dataclass(frozen=True, slots=True)
class React:
    """What a simulated person says to the last reply: thanks, or a correction."""

    person: str
    number: int
    """of the question that they asked"""

    def to(self, reply: str) -> str:
        who = person(self.person)
        said = who.react(who.ask(self.number), reply)
        assert said is not None, "a person has patience for one reply"
        return said


Move = Say | Tool | Feedback | React


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: a question, then moves; what speaks to the model is answered."""

    asks: str
    moves: tuple[Move, ...]
    temperature: float | None = None
    """of the replies; None: the run's"""


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that is never talked about, and the reply to it that tells how far one got."""

    asks: str
    reply: str
    """empty: what the model answers before anything is taught"""
    accepts: tuple[str, ...]
    """a reply counts when it holds one of them as words, in any case"""
    taste: Callable[[str], bool] | None = None
    """of an honest person: a reply counts when it meets this instead"""

    def counts(self, reply: str) -> bool:
        if self.taste is not None:
            return self.taste(reply)
        return any(re.search(rf"(?<!\w){re.escape(words)}(?!\w)", reply, re.IGNORECASE)
                   for words in self.accepts)


@dataclass(frozen=True, slots=True)
class Attack:
    """What one person does with their key, in rounds: in each, all ask first, then all move."""

    name: str
    sends: str
    """for the table: what is sent"""
    rule: str
    """what has to hold it: a rule of the guard, another part that always holds, or nothing"""
    rounds: tuple[tuple[Talk, ...], ...]
    wants: tuple[Probe, ...]
    tokens: int = 12
    """of a reply"""

    @property
    def talks(self) -> tuple[Talk, ...]:
        return tuple(talk for one in self.rounds for talk in one)
