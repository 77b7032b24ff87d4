"""Which turns are held back before they teach: a person looks at them first.

Owns: the rules, a short pure function each, in a table; the newest words and thumbs they look at;
what counts as one source for the shares of a step.
Does not own: the patterns (`suspect.py`), what becomes of a held turn (`crediting.py`).

A rule gets what is about to teach a turn and what was said before, and returns why it is held, or
nothing. Of tasks only the words are looked at: environments and judges repeat themselves.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from claw.config import GuardConfig
from claw.engine.actor import speech, suspect
from claw.engine.actor.buffer import Key
from claw.engine.actor.journal import Journal
from claw.engine.actor.ledger import HELD
from claw.engine.actor.signals import DEMONSTRATION, HINDSIGHT, PERSON, merged
from claw.records import Sample, Signal, Turn

REMEMBERED = 20_000
"""phrases, and replies with a thumb, of which the newest uses are known"""
MAX_PHRASE = 1000
"""characters; of longer words the first ones are compared"""
MAX_HINT = 4000
"""characters of a wish; patterns for orders are not tried on longer ones"""
THUMB = "a thumb without words"


@dataclass(frozen=True, slots=True)
class Said:
    """What is about to teach a turn."""

    owner: str
    turn_id: str
    at: float
    hints: tuple[str, ...] = ()
    """wishes and corrections"""
    demonstrations: tuple[str, ...] = ()
    """replies as the person would have had them: may tell of anything, so no order is read there"""
    phrases: frozenset[str] = frozenset()
    """the hints and the person's own words, in one form; empty for tasks"""
    content: bytes = b""
    """names request and reply, whatever turn they are of"""
    thumbs: tuple[int, ...] = ()
    """the person's votes on this turn, oldest first"""


@dataclass(eq=False, slots=True)
class Memory:
    """What was said lately; bounded."""

    phrases: OrderedDict[tuple[str, str], dict[str, float]] = field(default_factory=OrderedDict)
    """owner and phrase -> the turns that it was said about, and when"""
    thumbs: OrderedDict[tuple[str, bytes], dict[str, int]] = field(default_factory=OrderedDict)
    """owner and content -> the person's last vote on each turn with it"""

    def note(self, said: Said, config: GuardConfig) -> None:
        for phrase in said.phrases:
            uses = self.phrases.setdefault((said.owner, phrase), {})
            uses.pop(said.turn_id, None)
            uses[said.turn_id] = said.at
            old = [t for t, at in uses.items() if at <= said.at - config.window_s]
            for turn in [*old, *list(uses)[: max(0, len(uses) - config.flood - 1)]]:
                uses.pop(turn, None)
            self.phrases.move_to_end((said.owner, phrase))
        if said.thumbs:
            votes = self.thumbs.setdefault((said.owner, said.content), {})
            votes[said.turn_id] = said.thumbs[-1]
            self.thumbs.move_to_end((said.owner, said.content))
        for table in (self.phrases, self.thumbs):
            while len(table) > REMEMBERED:
                table.popitem(last=False)


def sources(journal: Journal, sample: Sample) -> frozenset[Key]:
    """Where a waiting sample comes from: a person's conversation, and the hints that it has.

    Nowhere in particular for tasks, whose episodes are compared in groups.
    """
    trace = journal.trace(sample.trace_id)
    if trace is None or trace.task_id:
        return frozenset()
    signal = merged(journal.signals(sample.turn_id)) if sample.hints else None
    hints = {("hint", suspect.plain(hint)) for hint in signal.hints} if signal else set()
    return frozenset({("conversation", trace.id), *hints})


Rule = Callable[[Said, Memory, GuardConfig], str]


def bulk(said: Said, memory: Memory, config: GuardConfig) -> str:
    """The same words about more turns within a while than a person can type."""
    if not config.flood:
        return ""
    since = said.at - config.window_s
    for phrase in sorted(said.phrases):
        uses = memory.phrases.get((said.owner, phrase), {})
        others = sum(at > since for turn, at in uses.items() if turn != said.turn_id)
        if others >= config.flood:
            return f"the same words about more than {config.flood} turns in {config.window_s:g} s"
    return ""


def contradictory(said: Said, memory: Memory, config: GuardConfig) -> str:
    """A thumb that was turned round too often, or against one on an equal reply elsewhere."""
    votes = [vote for vote in said.thumbs if vote]
    if sum(a != b for a, b in pairwise(votes)) > config.changes:
        return "the thumb on this reply was changed again and again"
    elsewhere = memory.thumbs.get((said.owner, said.content), {}) if votes else {}
    if any(vote == -votes[-1] for turn, vote in elsewhere.items() if turn != said.turn_id):
        return "an equal reply to the same request has the opposite thumb"
    return ""


def injection(said: Said, memory: Memory, config: GuardConfig) -> str:
    """Orders about what the assistant is or reveals, role markers, control tokens."""
    if any(len(hint) > MAX_HINT for hint in said.hints):
        return f"a wish longer than {MAX_HINT} characters"
    return _first(suspect.control, (*said.hints, *said.demonstrations)) or _first(
        suspect.order, said.hints)


def secret(said: Said, memory: Memory, config: GuardConfig) -> str:
    """Keys and long strings of code: a model that learned one says it again."""
    return _first(suspect.secret, (*said.hints, *said.demonstrations))


def unicode(said: Said, memory: Memory, config: GuardConfig) -> str:
    """Characters that hide what is said."""
    return _first(suspect.trick, (*said.hints, *said.demonstrations))


def trigger(said: Said, memory: Memory, config: GuardConfig) -> str:
    """The form of a backdoor: a certain word sets off a certain answer."""
    return _first(suspect.trigger, [hint for hint in said.hints if len(hint) <= MAX_HINT])


def _first(found: Callable[[str], str], texts: Sequence[str]) -> str:
    return next((why for text in texts if (why := found(text))), "")


RULES: dict[str, Rule] = {
    "bulk": bulk, "contradictory": contradictory, "injection": injection, "secret": secret,
    "unicode": unicode, "trigger": trigger,
}
OF_PEOPLE = ("bulk", "contradictory", "secret", "trigger")
"""rules that tasks are not held by: there, equal hints and strings of code are everyday"""


class Guard:
    """The rules of a run over what comes, and how often each matched."""

    def __init__(self, config: GuardConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._memory = Memory()
        self.counts: Counter[str] = Counter()
        """matches by rule; and turns held, released, dropped"""

    def holds(self, turn: Turn, signals: Sequence[Signal], hints: Sequence[str], *,
              is_task: bool) -> str:
        """Return why a turn is held, `quarantine: RULE: ...`; nothing lets it through.

        `hints` are those that would teach it, `signals` all that was said of it.
        """
        said = _said(turn, signals, hints, self._clock(), is_task=is_task)
        names = [n for n in self._config.rules if not (is_task and n in OF_PEOPLE)]
        found = [(n, why) for n in names if (why := RULES[n](said, self._memory, self._config))]
        self._memory.note(said, self._config)
        for name, _ in found:
            self.counts[name] += 1
        return f"{HELD}: {found[0][0]}: {found[0][1]}" if found else ""

    def flood(self, turn: Turn, signals: Sequence[Signal], hints: Sequence[str]) -> set[str]:
        """The other turns of the floods that a turn of a person is part of."""
        said = _said(turn, signals, hints, self._clock(), is_task=False)
        uses = [self._memory.phrases.get((said.owner, phrase), {}) for phrase in said.phrases]
        return {id for one in uses if len(one) > self._config.flood for id in one} - {turn.id}


def _said(
    turn: Turn, signals: Sequence[Signal], hints: Sequence[str], at: float, *, is_task: bool
) -> Said:
    shown = tuple(h.removeprefix(DEMONSTRATION) for h in hints if h.startswith(DEMONSTRATION))
    wishes = tuple(h for h in hints if not h.startswith(DEMONSTRATION))
    if is_task:
        return Said(turn.owner, turn.id, at, wishes, shown)
    content = speech.digest([[speech.own_words(m) for m in speech.words(turn.messages)],
                             speech.shown(turn.reply or {})])
    thumbs = tuple(s.vote for s in signals if s.judge == PERSON and s.vote is not None)
    return Said(turn.owner, turn.id, at, wishes, shown, _phrases(turn, signals, hints), content,
                thumbs)


def _phrases(turn: Turn, signals: Sequence[Signal], hints: Sequence[str]) -> frozenset[str]:
    """What the person said about the turn. One hindsight is given to many turns, so it is none."""
    theirs = {h for s in signals if s.judge != HINDSIGHT for h in s.hints}
    words = [h for h in hints if h in theirs]
    words += [speech.own_words(m) for m in turn.next_state if m.get("role") == "user"]
    found = {suspect.plain(word[:MAX_PHRASE]) for word in words} - {""}
    is_thumb = any(s.judge == PERSON and not s.hints for s in signals[-1:])
    return frozenset(found | ({THUMB} if is_thumb else set()))
