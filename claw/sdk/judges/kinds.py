"""What one English sentence of a person does, given the reply it answers.

Reads one sentence at a time; what a whole message amounts to is decided in `rules`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from claw.sdk.judges import patterns as say

MAX_QUESTION_CHARS = 300
"""a reply this short that ends with a question is a question to the person"""


class Kind(StrEnum):
    CORRECTION = "correction"
    FAULT = "complaint about one thing"
    CHANGE = "request to change"
    REASK = "asked again"
    DISPLEASURE = "displeasure"
    PRAISE = "praise or thanks"
    QUESTION = "follow-up question"
    REQUEST = "new request"
    ONWARD = "moving on"
    NEUTRAL = "neutral"
    UNCLEAR = "unclear"


DIRECTIVE = frozenset({Kind.CORRECTION, Kind.FAULT, Kind.CHANGE, Kind.REASK})
NEGATIVE = DIRECTIVE | {Kind.DISPLEASURE}
POSITIVE = frozenset({Kind.PRAISE, Kind.QUESTION, Kind.REQUEST, Kind.ONWARD})


@dataclass(frozen=True, slots=True)
class Reply:
    """What must be known of the reply to read the sentences that follow it."""

    words: frozenset[str]
    has_code: bool
    offers: bool
    """it ends with a question"""
    asks_back: bool
    """it is hardly more than a question: the person's next words answer it"""

    @classmethod
    def of(cls, text: str) -> "Reply":
        words = frozenset(re.findall(r"[a-z]{3,}", text[:20_000].lower()))
        offers = text.rstrip(" \n*_)").endswith("?")
        return cls(
            words=words - say.FUNCTION_WORDS,
            has_code="`" in text or bool(re.search(r"^\s{0,8}(?:def|import|\$) ", text, re.M)),
            offers=offers,
            asks_back=offers and len(text) <= MAX_QUESTION_CHARS,
        )


def kind_of(sentence: str, asks: bool, reply: Reply) -> Kind:
    """Return what a sentence does; `asks` says that it ended with a question mark."""
    text = say.plain(sentence).rstrip("?! ")
    text, num_idioms = say.LOOKS_NEGATIVE_IS_NOT.subn("", text)
    text = text.strip(" ,;")
    head = _without_leads(text)
    kind = _question(head, asks) or _request(text, head, reply) or _complaint(text, head, reply)
    if kind and not (kind is Kind.CHANGE and reply.asks_back):
        return kind
    return _approval(text, asks, reply) or (Kind.PRAISE if num_idioms else Kind.UNCLEAR)


def speaks_to_policy(sentence: str) -> bool:
    return bool(re.search(r"\byou(?:r|rs)?\b", say.plain(sentence)))


def is_english(text: str) -> bool:
    """Whether nothing speaks against it: other letters, or other languages' commonest words."""
    letters = [char for char in text if char.isalpha()]
    if sum(ord(char) > 0x24F for char in letters) * 5 > len(letters):
        return False
    words = set(re.findall(r"[^\W\d_]+", say.plain(text)))
    return len(words & say.FOREIGN_WORDS) <= len(words & say.FUNCTION_WORDS)


def stem(word: str) -> str:
    """Return the word without its commonest endings."""
    cut = re.sub(r"(?:ing|ed|es|ly|s)$", "", word) if len(word) > 4 else word
    return re.sub(r"(.)\1$", r"\1", cut).rstrip("e")


def _without_leads(text: str) -> str:
    head = text
    for _ in range(8):
        rest = say.LEADS.sub("", head, count=1) if say.LEADS.match(head) else head
        if rest == head or not rest:
            break
        head = rest
    return head


def _question(head: str, asks: bool) -> Kind | None:
    if not say.WH.match(head) or (say.WH_CLAUSE.match(head) and not asks):
        return None
    return Kind.FAULT if say.ABOUT_REPLY.search(head) else Kind.QUESTION


def _request(text: str, head: str, reply: Reply) -> Kind | None:
    if say.ANOTHER_FORM.search(text):
        return Kind.CHANGE
    onward = bool(say.ONWARD_LEAD.match(text))
    if say.ON_REPLY.match(head):
        return Kind.REQUEST if onward and say.CARRIES_ON.match(head) else Kind.CHANGE
    if say.NEW.match(head) and not say.REASK.search(text) and not say.AFRESH.search(text):
        return Kind.REQUEST
    return None


def _complaint(text: str, head: str, reply: Reply) -> Kind | None:
    for kind, pattern in _COMPLAINTS:
        if pattern.search(text) or pattern.search(head):
            return kind
    if reply.has_code and say.GETS_ERROR.search(text):
        return Kind.FAULT
    if kind := _directive(text, head, reply):
        return kind
    if say.DISPLEASED.search(text) or say.NOT_GOOD.search(text):
        return Kind.DISPLEASURE
    if say.NO.match(text) and not reply.offers:
        return Kind.CORRECTION
    return _objection(text)


_COMPLAINTS = (
    (Kind.REASK, say.REASK),
    (Kind.CORRECTION, say.CORRECTS),
    (Kind.FAULT, say.FAULTS),
    (Kind.CHANGE, say.CHANGES),
)


def _directive(text: str, head: str, reply: Reply) -> Kind | None:
    """Imperatives: some always change the reply, some only when their object is a part of it."""
    onward = bool(say.ONWARD_LEAD.match(text))
    points = bool(say.POINTS_AT_REPLY.search(head))
    if say.CHANGE_ALWAYS.match(head):
        return Kind.REQUEST if onward and say.CARRIES_ON.match(head) else Kind.CHANGE
    if not say.CHANGE_PART.match(head):
        return None
    objects = set(re.findall(r"[a-z]{3,}", head)[1:]) & reply.words
    return Kind.CHANGE if points or (objects and not onward) else Kind.REQUEST


def _objection(text: str) -> Kind | None:
    """Thanks with a `but`: what follows corrects, unless it asks or requests something new."""
    but = say.BUT.search(text)
    if not but or not (say.PRAISE.search(text[: but.start()]) or _is_neutral(text[: but.start()])):
        return None
    rest = _without_leads(but["rest"])
    asks = say.WH.match(rest) or say.NEW.match(rest) or say.AUX.match(rest)
    return None if asks or say.PRAISE.search(rest) or not rest else Kind.CORRECTION


def _is_neutral(text: str) -> bool:
    return bool(say.NEUTRAL.match(text.strip(" ,;")))


def _approval(text: str, asks: bool, reply: Reply) -> Kind | None:
    if say.PRAISE.search(text):
        return Kind.PRAISE
    if say.ONWARD.match(text):
        return Kind.ONWARD
    if asks and say.AUX.match(_without_leads(text)):
        return Kind.QUESTION
    return Kind.NEUTRAL if _is_neutral(text) else None
