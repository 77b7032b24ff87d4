"""The judge that needs no model: it reads the next state with rules.

A person's message: thanks, praise, moving on, a follow-up question or a new request vote +1; a
correction, a complaint, the same request again or a request to change form or content votes -1,
also when thanks come with it; "ok" and the like vote 0; what is unclear abstains. A person's own
corrective sentences become the hint. Tool results: any sign of an error votes -1, else +1; they
give no hint. A person's word decides over tool results beside it. It gives no `number`: an
outcome belongs to a judge that knows the task.

Limits:
- English only. Other languages abstain, and short ones may be taken for unclear English.
- Sarcasm, irony and threats are read literally; so is faint praise.
- A correction stated as a bare fact ("The meeting is on Friday.") abstains, unless another
  sentence of the message shows that something was wrong.
- The same request in wholly other words is a new request (+1). A new request that repeats most
  words of the last one is taken for a repetition, unless its names or numbers differ.
- Whether a request builds on a good reply or repairs a bad one is a guess from its words:
  "translate it" is a change, "now translate it" moves on.
- Quotations, code, logs and pasted text are not read; pasted prose without a mark is. Of a long
  message the person's first and last words are read (the bounds stand in `hints`).
- Whether a wish names only the form of the answer is told by a list of words: "give me a table"
  is a change, "give me a table of planets" a new request, unless the last request named planets
  or they are "the planets" of the reply. A wish for a form that the list lacks is a new request.
- "I like it short" is taken for a wish, even where the reply was short and pleased.
- What a third person would think of the reply ("My aunt finds that odd.") mostly abstains.
- A tool result that is useless or wrong without an error is +1. A non-zero exit status is an
  error even where it was wanted (a failing test, a search without a match), and so is a file that
  was read and looks like an error report.
- Of a whole conversation (`look_back`) only wishes for a form, and what is said to hold from now
  on, are taken for more than one reply; a wish is not seen to contradict an earlier one.
- It trusts roles: an environment that answers as `user` is read as a person.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from claw.records import Message
from claw.sdk.judges import kinds
from claw.sdk.judges.hints import MAX_HINT_SENTENCES, Sentence, hint, sentences, text_of, tidy
from claw.sdk.judges.kinds import DIRECTIVE, NEGATIVE, POSITIVE, Kind
from claw.sdk.judges.results import error_in
from claw.sdk.judges.words import MAX_COMPARED_CHARS, content_stems
from claw.sdk.judging import Case, Verdict

SAME_REQUEST = 0.65
"""shared part of the content words of two requests from which one repeats the other"""
MIN_SAME_WORDS = 2
MAX_WISHES = 3
"""of a conversation, the newest: what a person wants changes"""


class RulesJudge:
    """Reads thanks, corrections and errors with patterns; stateless, without a model."""

    name = "rules"

    async def judge(self, case: Case) -> Verdict:
        said = [text_of(message) for message in case.next_state if message.get("role") == "user"]
        results = [message for message in case.next_state if message.get("role") in _TOOL_ROLES]
        verdict = _person(case, "\n\n".join(said)) if said else _abstain("no next state")
        return _tools(results) if results and verdict.vote is None else verdict

    async def look_back(self, said: tuple[Message, ...]) -> tuple[str, ...]:
        """Return the newest wishes that concern every reply: its form, or what is said for good."""
        asked, reply, found = "", "", dict[str, None]()
        for message in said:
            text = text_of(message)
            if message.get("role") == "assistant":
                reply = text
            elif message.get("role") == "user":
                for wish in _wishes(asked, reply, text):
                    found.pop(wish, None)
                    found[wish] = None
                asked = text
        return tuple(found)[-MAX_WISHES:]


def _wishes(asked: str, reply: str, text: str) -> list[str]:
    """A first message asks for something: there, only what is said for good is a wish."""
    said = sentences(text)
    if not said or not kinds.is_english(" ".join(sentence.own for sentence in said)):
        return []
    read = _read(said, kinds.Reply.of(reply, content_stems(asked)))
    return [
        wish for one in read
        if (one.kind in (Kind.CHANGE, Kind.CORRECTION) and kinds.is_standing(one.sentence.own)
            if asked else kinds.lasts(one.sentence.own))
        and (wish := tidy(one.sentence.text)) and kinds.says_something(one.sentence.own)
    ]


_TOOL_ROLES = ("tool", "function")


def _tools(results: Sequence[Message]) -> Verdict:
    errors = [error for error in map(error_in, results) if error]
    if errors:
        return _vote(-1, f"{len(errors)} of {len(results)} tool results show an error: {errors[0]}")
    return _vote(1, f"no sign of an error in {len(results)} tool result(s)")


def _person(case: Case, text: str) -> Verdict:
    said = sentences(text)
    if not said:
        return _abstain("the message holds no words of the person's own")
    if not kinds.is_english(" ".join(sentence.own for sentence in said)):
        return _abstain("not English: the rules read English only")
    asked = _asked(case.request)
    read = _read(said, kinds.Reply.of(text_of(case.reply), content_stems(asked)))
    if found := [one for one in read if one.kind in NEGATIVE]:
        return _vote(-1, f"{found[0].kind}: {found[0].sentence.text[:80]!r}", _hint(read))
    praised = any(one.kind is Kind.PRAISE for one in read)
    if not praised and (repeated := _repeats(asked, text)):
        return _vote(-1, "the same request again", hint(_fresh(said, repeated)))
    if found := [one for one in read if one.kind in POSITIVE]:
        return _vote(1, f"{found[0].kind}: {found[0].sentence.text[:80]!r}")
    if all(one.kind is Kind.NEUTRAL for one in read):
        return _vote(0, f"neutral: {read[0].sentence.text[:80]!r}")
    return _abstain(f"unclear: {said[0].text[:80]!r}")


@dataclass(frozen=True, slots=True)
class _Read:
    sentence: Sentence
    kind: Kind


def _read(said: Sequence[Sentence], reply: kinds.Reply) -> list[_Read]:
    """Read sentence by sentence; after a new request, wishes belong to what is now requested."""
    read: list[_Read] = []
    requested = False
    for sentence in said:
        kind = kinds.kind_of(sentence.own, sentence.asks, reply)
        if requested and kind in NEGATIVE and not kinds.speaks_to_policy(sentence.own):
            kind = Kind.UNCLEAR
        requested = requested or kind is Kind.REQUEST
        read.append(_Read(sentence, kind))
    return read


def _hint(read: Sequence[_Read]) -> tuple[str, ...]:
    """The wishes, other directive sentences, then what follows a negative one; in their order."""
    first = [i for i, one in enumerate(read) if one.kind in DIRECTIVE]
    first.sort(key=lambda i: read[i].kind is not Kind.CHANGE)
    start = next(i for i, one in enumerate(read) if one.kind in NEGATIVE)
    rest = [i for i, one in enumerate(read) if i > start and one.kind is Kind.UNCLEAR]
    useful = [i for i in first + rest if kinds.says_something(read[i].sentence.own)]
    return hint(read[i].sentence for i in sorted(useful[:MAX_HINT_SENTENCES]))


def _asked(request: Sequence[Message]) -> str:
    return next((text_of(one) for one in reversed(request) if one.get("role") == "user"), "")


def _repeats(asked: str, text: str) -> str:
    """Return the last request of the person if the text asks the same again, else nothing."""
    before, now = content_stems(asked), content_stems(text)
    shared = before & now
    if len(shared) < MIN_SAME_WORDS or len(shared) < SAME_REQUEST * len(before | now):
        return ""
    return "" if _swaps_a_name(asked, text) else asked


def _swaps_a_name(asked: str, text: str) -> bool:
    """Whether both sides hold names or numbers that the other lacks: another request."""
    before, now = (
        {word.lower() for word in _NAME.findall(one[:MAX_COMPARED_CHARS])} for one in (asked, text)
    )
    return bool(before - now) and bool(now - before)


_NAME = re.compile(r"(?<=[\w,] )[A-Z][a-z]+\b|\b\d[\d.,]*\b")


def _fresh(said: Sequence[Sentence], before: str) -> list[Sentence]:
    """The sentences that say something the earlier request did not."""
    known = content_stems(before)
    return [one for one in said if content_stems(one.text) - known][:MAX_HINT_SENTENCES]


def _vote(vote: int, reason: str, hints: tuple[str, ...] = ()) -> Verdict:
    return Verdict(vote=vote, votes=(vote,), hints=hints, reason=reason)


def _abstain(reason: str) -> Verdict:
    return Verdict(reason=reason)
