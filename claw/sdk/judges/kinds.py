"""What one English sentence of a person does, given the reply it answers.

Reads one sentence at a time; what a whole message amounts to is decided in `rules`.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from claw.sdk.judges import forms, moves
from claw.sdk.judges import patterns as say
from claw.sdk.judges.words import EMPTY_WORDS, FOREIGN_WORDS, FUNCTION_WORDS, plain, stem

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
    stems: frozenset[str]
    """of the same words"""
    has_code: bool
    offers: bool
    """it ends with a question"""
    asks_back: bool
    """it is hardly more than a question: the person's next words answer it"""
    asked: frozenset[str]
    """the stems of the content words of the request that it answers"""

    @classmethod
    def of(cls, text: str, asked: frozenset[str]) -> "Reply":
        words = frozenset(re.findall(r"[a-z]{3,}", text[:20_000].lower()))
        offers = text.rstrip(" \n*_)").endswith("?")
        return cls(
            words=words - FUNCTION_WORDS,
            stems=frozenset(map(stem, words - FUNCTION_WORDS)),
            has_code="`" in text or bool(re.search(r"^[ \t]{0,8}(?:def|import|\$) ", text, re.M)),
            offers=offers,
            asks_back=offers and len(text) <= MAX_QUESTION_CHARS,
            asked=asked,
        )

    def knows(self, word: str) -> bool:
        """Whether the request names the word, or the reply one that comes with `the`."""
        named = word.rpartition(" ")[2]
        return stem(named) in self.asked or (named != word and stem(named) in self.stems)


def kind_of(sentence: str, asks: bool, reply: Reply) -> Kind:
    """Return what a sentence does; `asks` says that it ended with a question mark."""
    text = plain(sentence).rstrip("?! ")
    text, num_idioms = say.LOOKS_NEGATIVE_IS_NOT.subn("", text)
    text = text.strip(" ,;")
    if not asks and not sentence.rstrip().endswith(":"):
        text = _as_praise(text)
    wish = moves.PLEASE_LAST.sub("", text)
    head = _without_leads(wish)
    if sentence.rstrip().endswith(":") and moves.PASSES_ON.match(head):
        return Kind.REQUEST
    if moves.NO_THANKS.match(text):
        return Kind.NEUTRAL
    kind = (
        _form(wish, head, reply)
        or _question(head, asks)
        or _request(wish, head, reply)
        or _complaint(wish, head, reply)
    )
    if kind and not (kind is Kind.CHANGE and reply.asks_back):
        return kind
    return _approval(text, asks) or (Kind.PRAISE if num_idioms else Kind.UNCLEAR)


def speaks_to_policy(sentence: str) -> bool:
    return bool(re.search(r"\byou(?:r|rs)?\b", plain(sentence)))


def is_standing(sentence: str) -> bool:
    """Whether a wish is about every answer: of its form alone, or for good by its own words."""
    text = plain(sentence).rstrip("?! ").strip(" ,;")
    wish = moves.PLEASE_LAST.sub("", text)
    head = _without_leads(wish)
    return (lasts(sentence) or bool(_form(wish, head, _NOTHING_SAID))
            or any(map(forms.is_form_only, _PARTS.split(head))))


def lasts(sentence: str) -> bool:
    """Whether the sentence itself says that it holds from now on."""
    text = plain(sentence)
    return bool(_FOR_GOOD.search(text) or _EVER.match(_without_leads(text)))


def says_something(sentence: str) -> bool:
    """Whether more is said than that something is wrong, so that one can act on it."""
    words = re.findall(r"[^\W_]+|_{2,}", plain(sentence))
    return any(word not in FUNCTION_WORDS and word not in EMPTY_WORDS for word in words)


def is_english(text: str) -> bool:
    """Whether nothing speaks against it: other letters, or other languages' commonest words."""
    letters = [char for char in text if char.isalpha()]
    if sum(ord(char) > 0x24F for char in letters) * 5 > len(letters):
        return False
    words = set(re.findall(r"[^\W\d_]+", plain(text)))
    return len(words & FOREIGN_WORDS) <= len(words & FUNCTION_WORDS)


_NOTHING_SAID = Reply.of("", frozenset())
_PARTS = re.compile(r"[,:;] ")
_EVER = re.compile(r"(?:you (?:should|must) )?(?:always|never)\b")
_FOR_GOOD = re.compile(
    r"^(?:please )?(?:from now on|in (?:the )?future|next time|every time|each time)\b"
    r"|\b(?:from now on|in (?:the )?future|next time|all (?:of )?your (?:answers|replies|responses)"
    r"|every (?:answer|reply|response))[.!]*$"
)


def _without_leads(text: str) -> str:
    head = re.sub(r"^\W+", "", text)
    for _ in range(8):
        rest = moves.LEADS.sub("", head, count=1) if moves.LEADS.match(head) else head
        if rest == head or not rest:
            break
        head = rest
    return head


def _as_praise(text: str) -> str:
    """The sentence with `that is what I wanted` and the like turned into a sign of praise."""
    met = moves.FULFILLED.search(text)
    if not met:
        return text
    before = re.split(r"[,;:-] |\b(?:but|and)\b", text[: met.end()])[-1]
    return text if moves.UNFULFILLED.search(before) else moves.FULFILLED.sub(moves.SIGN, text)


def _form(text: str, head: str, reply: Reply) -> Kind | None:
    """A wish or a preference that names a form and no new subject."""
    if moves.ONWARD_LEAD.match(text):
        return None
    alone = forms.is_form_alone(head) and not moves.PRAISED_PART.match(text)
    if alone or forms.wishes_form(head, reply.knows) or forms.prefers_form(text):
        return Kind.CHANGE
    return None


def _question(head: str, asks: bool) -> Kind | None:
    if not moves.WH.match(head) or (moves.WH_CLAUSE.match(head) and not asks):
        return None
    return Kind.FAULT if say.ABOUT_REPLY.search(head) else Kind.QUESTION


def _request(text: str, head: str, reply: Reply) -> Kind | None:
    if say.IN_PLAIN_WORDS.search(text):
        other = forms.tells_of_other(head, reply.knows)
        return Kind.REQUEST if other else Kind.CHANGE
    if say.ANOTHER_FORM.search(text):
        return Kind.CHANGE
    onward = bool(moves.ONWARD_LEAD.match(text))
    if say.ON_REPLY.match(head):
        return Kind.REQUEST if onward and moves.CARRIES_ON.match(head) else Kind.CHANGE
    if not moves.NEW.match(head) or say.REASK.search(text):
        return None
    if say.AGAIN.search(text):
        return Kind.REQUEST if moves.OPERATES.match(head) else Kind.REASK
    return None if say.AFRESH.search(text) else Kind.REQUEST


def _complaint(text: str, head: str, reply: Reply) -> Kind | None:
    later = () if moves.INVERTED.match(head) else text.split(", ")[1:]
    clauses = (text, head, *later)
    for kind, pattern in _COMPLAINTS:
        if any(map(pattern.search, clauses)):
            return kind
    if say.GETS_ERROR.search(text) and (reply.has_code or say.YOUR_CODE.search(text)):
        return Kind.FAULT
    if directive := _directive(text, head, reply):
        return directive
    if any(_changes_reply(clause, reply) for clause in moves.CLAUSE.split(text)[1:]):
        return Kind.CHANGE
    if say.DISPLEASED.search(text) or say.NOT_GOOD.search(text):
        return Kind.FAULT if say.SAYS_WHAT.search(text) else Kind.DISPLEASURE
    refuses = say.NO.match(text) or say.NO.match(head)
    if refuses and not reply.offers and not moves.PRAISE.search(text):
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
    onward = bool(moves.ONWARD_LEAD.match(text))
    points = bool(say.POINTS_AT_REPLY.search(head))
    if say.CHANGE_ALWAYS.match(head):
        return Kind.REQUEST if onward and moves.CARRIES_ON.match(head) else Kind.CHANGE
    if not say.CHANGE_PART.match(head):
        return None
    objects = set(re.findall(r"[a-z]{3,}", head)[1:]) & reply.words
    return Kind.CHANGE if points or (objects and not onward) else Kind.REQUEST


def _changes_reply(clause: str, reply: Reply) -> bool:
    clause = _without_leads(clause)
    if forms.wishes_form(clause, reply.knows) or forms.prefers_form(clause):
        return True
    verb = say.CHANGE_ALWAYS.match(clause) or say.CHANGE_PART.match(clause)
    return bool(verb and say.POINTS_AT_REPLY.search(clause))


def _objection(text: str) -> Kind | None:
    """Thanks with a `but`: what follows corrects, unless it asks or requests something new."""
    but = say.BUT.search(text)
    first = text[: but.start()].strip(" ,;-") if but else ""
    if not but or not (
        moves.PRAISE.search(first) or say.CONCEDES.match(first) or _is_neutral(first)
    ):
        return None
    rest = _without_leads(but["rest"])
    asks = moves.WH.match(rest) or moves.NEW.match(rest) or moves.AUX.match(rest)
    return None if asks or moves.PRAISE.search(rest) or not rest else Kind.CORRECTION


def _is_neutral(text: str) -> bool:
    return all(moves.NEUTRAL.match(part.strip(" .;!")) for part in text.strip(" ,;").split(","))


def _approval(text: str, asks: bool) -> Kind | None:
    head = _without_leads(text)
    if moves.PRAISE.search(text):
        return Kind.PRAISE
    if moves.ONWARD.match(text) or moves.ONWARD.match(head):
        return Kind.ONWARD
    if moves.INVERTED.match(head):
        return Kind.QUESTION
    if asks and (
        moves.AUX.match(text)
        or moves.WH.match(text)
        or moves.AUX.match(head)
        or moves.ASKS_WITHIN.search(head)
    ):
        return Kind.QUESTION
    return Kind.NEUTRAL if _is_neutral(text) else None
