"""Which conversation asked for a sub-agent's?

Owns: finding the parent of a conversation, in whichever order the two are heard of.
Does not own: main or side (`kind.py`), turns within one conversation (`session.py`).

A client that knows says so (`Ask.parent`). OpenClaw without a plugin tells it all the same: the
result of the call that spawns a sub-agent names the child's session key, and the child's first
message names its own. A link counts within one owner only.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from claw.engine.actor import speech
from claw.engine.actor.journal import Journal
from claw.engine.actor.place import Place
from claw.sdk.app import Ask

SPAWNED = "childSessionKey"
MAX_KEYS = 10_000
"""newest keys of either side that wait for their other half"""
MAX_NAMED = 64
"""keys of one tool result that are read"""
_SPAWNED = re.compile(
    SPAWNED + r'\\{0,8}"\s{0,4}:\s{0,4}\\{0,8}"([\w:.@-]{1,128}:subagent:[\w:.@-]{1,128})')
"""a sub-agent's key ends in random letters: a page that a tool reads cannot guess one, and other
keys, such as that of the person's own conversation, are nobody's child"""

OwnKey = tuple[str, str]
"""(owner, session key)"""
T = TypeVar("T")


class Kin:
    """Links conversations; the journal keeps the links."""

    def __init__(self, journal: Journal, trace_of: Callable[[str, str], str]) -> None:
        """`trace_of(owner, session)` is the open conversation of a session name, or nothing."""
        self._journal, self._trace_of = journal, trace_of
        self._spawned: OrderedDict[OwnKey, tuple[str, str]] = OrderedDict()
        """child's key -> (trace, turn) that asked for it"""
        self._keyed: OrderedDict[OwnKey, str] = OrderedDict()
        """key -> the conversation that has it"""
        self.on_link: Callable[[str, str], None] = lambda child, parent: None

    def heard(self, ask: Ask, place: Place, trace_id: str) -> None:
        """Learn from a request of this trace who asked for whom."""
        for key, turn_id in _named(ask, place):
            mark = (ask.owner, key)
            if mark not in self._spawned:
                _keep(self._spawned, mark, (trace_id, turn_id))
                if child := self._keyed.get(mark):
                    self._link(child, trace_id, turn_id)
        if ask.key and self._keyed.get((ask.owner, ask.key)) != trace_id:
            _keep(self._keyed, (ask.owner, ask.key), trace_id)
            if asker := self._spawned.get((ask.owner, ask.key)):
                self._link(trace_id, *asker)
        if ask.parent and (parent := self._trace_of(ask.owner, ask.parent)):
            self._link(trace_id, parent, "")

    def forget(self, trace_id: str) -> None:
        """Drop what is in memory of a conversation."""
        for key in [k for k, trace in self._keyed.items() if trace == trace_id]:
            del self._keyed[key]
        for key in [k for k, (trace, _) in self._spawned.items() if trace == trace_id]:
            del self._spawned[key]

    def _link(self, child: str, parent: str, turn_id: str) -> None:
        known = self._journal.parent_of(child)
        if known == (parent, turn_id) or (known and not turn_id):
            return  # the turn, once known, is not unlearned
        if parent in self._journal.descendants([child]):
            return  # nobody is their own grandparent
        self._journal.put_kin(child, parent, turn_id)
        self.on_link(child, parent)


def _named(ask: Ask, place: Place) -> Iterator[tuple[str, str]]:
    """The sub-agents that tool results of a request name, and the turn that called, if new."""
    for message in ask.messages:
        if message.get("role") != "tool":
            continue
        said = speech.text(message.get("content"))
        if SPAWNED not in said:
            continue
        is_new = any(speech.key(message) == speech.key(m) for m in place.next_state)
        turn_id = place.answered.turn_id if is_new and place.answered else ""
        for key in dict.fromkeys(_SPAWNED.findall(said)[:MAX_NAMED]):
            yield key, turn_id


def _keep(into: OrderedDict[OwnKey, T], key: OwnKey, value: T) -> None:
    into[key] = value
    into.move_to_end(key)
    while len(into) > MAX_KEYS:
        into.popitem(last=False)
