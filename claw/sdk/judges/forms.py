"""Wishes and preferences that name only the form of an answer: `a list`, `I like it short`.

A wish that brings a new subject is none of these: its content words must all be words of form, or
words of the last request. As with `patterns`, all match sentences made `plain`.
"""

import re
from collections.abc import Callable

from claw.sdk.judges import words
from claw.sdk.judges.words import FUNCTION_WORDS, word_set

Known = Callable[[str], bool]


def wishes_form(clause: str, is_known: Known) -> bool:
    """Whether a clause asks for a form and for no subject that is not known."""
    text = _REASON.sub("", clause)
    if told := _TELLS.match(text):
        rest = text[told.end() :]
        return bool(_MANNER.search(rest)) and _is_form(rest, is_known)
    if given := _GIVES.match(text):
        return _is_form(text[given.end() :], is_known)
    return bool(_LISTS.match(text))


def tells_of_other(clause: str, is_known: Known) -> bool:
    """Whether a clause asks to be told of a subject that is not known."""
    told = _TELLS.match(clause)
    return bool(told and _has_subject(clause[told.end() :], is_known))


def is_form_alone(clause: str) -> bool:
    """Whether a clause without a verb names a form: `numbered steps`, `as a table`."""
    text = _REASON.sub("", clause)
    if not _FRAGMENT.match(text) or _STATES.search(text):
        return False
    return not _NOUNS.isdisjoint(_WORD.findall(text)) and _is_form(text)


def is_form_only(text: str) -> bool:
    """Whether nothing but a form is named: `shorter`, `be brief`."""
    return _is_form(_REASON.sub("", text))


def prefers_form(text: str) -> bool:
    """Whether the person tells which form they like or read best, not that they like this one."""
    text = _REASON.sub("", text)
    if (liked := _LIKES.match(text)) and _is_form(text[liked.end() :]):
        return True
    if (reads := _READS.match(text)) and _EASE.search(text):
        return _is_form(text[reads.end() :])
    suits = _SUITS.search(text)
    return bool(suits and is_form_alone(text[: suits.start()]))


def _is_form(text: str, is_known: Known = lambda word: False) -> bool:
    """Whether at least one word is of form, and every other one says nothing or is known."""
    return not _FORM.isdisjoint(_WORD.findall(text)) and not _has_subject(text, is_known)


def _has_subject(text: str, is_known: Known) -> bool:
    text = _DEFINITE.sub(lambda one: "" if is_known(one[0]) else one[0], _EACH.sub("", text))
    rest = set(_WORD.findall(text)) - _FORM - _BESIDE - FUNCTION_WORDS
    return not all(word.isdigit() or is_known(word) for word in rest)


_NOUNS = word_set(
    """list lists bullet bullets bulleted numbered point points step steps table tables tabular
    column columns row rows grid paragraph paragraphs sentence sentences word words line lines
    bold italic italics underlined heading headings header headers subheading subheadings
    markdown prose text texts json csv yaml html xml format formatting layout length detail
    details depth language jargon tone style level section sections page pages character
    characters emoji emojis caps uppercase lowercase capitals indentation checklist liner
    numbering order english outline"""
)
_FORM = _NOUNS | word_set(
    """plain short brief long concise compact terse lengthy detailed thorough simple basic easy
    beginner beginners novice novices layman laymen lay expert experts advanced formal informal
    casual friendly polite neutral serious professional warm humorous dry technical non
    alphabetical chronological sorted structured indented bolded highlighted numeric tidy
    shorter longer simpler briefer briefly shortly simply plainly thoroughly concisely formally
    informally casually politely compactly alphabetically chronologically"""
)
_BESIDE = word_set(
    """one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty
    fifty sixty eighty hundred half couple several single separate own per max maximum
    minimum least around under few ordinary
    within without using instead rather really quite bit little lot much many slightly even full
    complete whole entire proper nice good great greater better best clear
    clearly clean neat real normal
    normally usual usually everyday common big small answer answers reply replies response
    responses version explanation explanations everything things thing something information info
    content facts result results example examples number numbers item items part parts summary
    always never not only every between top end begin front blank empty easily faster easier
    quickly fewer read key main term terms most"""
)

_WORD = re.compile(r"[^\W_]+|_{2,}")
_DEFINITE = re.compile(r"\b(?:the|these|those|your|its) [a-z]+\b")
_EACH = re.compile(r"\b(?:per|each|every) [a-z]+\b")
_ADVERBS = (
    r"(?:(?:also|just|really|always|usually|generally|normally|personally|only|would|do|much"
    r"|still|rather|simply|can|could|will|do not|did not) ){0,3}"
)
_REASON = re.compile(
    r",? (?:(?:because|since|so|as|when|if|that|which) (?:that )?(?:i|we|it|my|our|the|they)\b"
    r"|to (?:read|follow|print|scan|skim|copy|use|keep|understand)\b"
    r"|(?:that is|it is|thanks|thank you)\b).*$|, (?:i|we|my|our|this|it|that|you|the)\b.*$"
)
_GIVES = re.compile(
    r"(?:write|draft|compose|create|generate|give|show|send|hand|use|print|present|provide|return"
    r"|produce|display|make|put|keep|format|structure|arrange|organi[sz]e|phrase|list|lay"
    r"|do(?! (?:you|i|we|they|not)\b)"
    r"|try|go (?:into|for|with)|have|let (?:me|us) (?:have|see|get)|let us use|turn|output|rewrite"
    rf"|i {_ADVERBS}(?:want|need|like|love|wish|hope|appreciate|prefer)(?: for)?(?: to (?:see|have"
    r"|get|read))?(?<!i like)(?<!i love)"
    r"|(?:can|could|may|might) (?:i|we) (?:please )?(?:have|get|see|read)"
    r"|(?:what|how) about|why not(?: use)?)\b(?! (?:more )?about\b)"
)
_TELLS = re.compile(
    r"(?:tell|explain|describe|summari[sz]e|compare|answer|reply|respond|say|walk|talk|speak"
    r"|spell|break|go (?:over|through))\b"
)
_MANNER = re.compile(
    r"\b(?:in|as|with|without|at|by|using|for|like|more|less|into|per) "
    r"|\b(?:[a-z]{3,}ly|short|long|step by step)\b"
)
_LISTS = re.compile(r"list (?:it|them|this|these|those|everything|all of (?:it|them))$")
_FRAGMENT = re.compile(
    r"(?!(?:no|any|some|more) (?:more )?(?:words?|text)\b)(?:(?:please|just|only|maybe|rather"
    r"|simply) )?(?:in|as|with|without|no|not|a|an|one|two|three|four|five|six|seven|eight|nine"
    r"|ten|twelve|twenty|thirty|forty|fifty|(?:a )?hundred|max|at|under|fewer|less|more|half|\d+"
    rf"|{'|'.join(sorted(_FORM))})\b"
)
_STATES = re.compile(
    r"\b(?:is|are|was|were|has|have|had|do|does|did|can|could|will|would|should|am|i|you|we|they"
    r"|he|she|it|what|which|who|how|why|where|when)\b"
)
_LIKES = re.compile(
    rf"i {_ADVERBS}(?:like|love|prefer|enjoy|want|need)(?: (?:to (?:read|see|have|get)))?"
    r"(?! (?:the|your|how|these|those|that|this)\b(?! (?:in|as|with|without|at)\b))"
    r"(?!.*\b(?:this|that|these|those|now|here|so|already|how|your|way)$)"
    r"(?!.*\b(?:this|that|these|those|your) (?:\w+ )?\w+$)"
    r"(?: my \w+)?"
)
_READS = re.compile(
    rf"i (?:\w+ )?{_ADVERBS}(?:read|follow|understand|learn|remember|scan|skim|grasp|process"
    r"|digest|take in|work|do|cope|think|see|get|find|am)\b"
    r"(?! (?:the|this|that|these|those|your)\b)"
    r"(?: (?:more )?(?:used to|comfortable|happier|fond of|a fan of))?"
)
_EASE = re.compile(
    r"\b(?:better|best|faster|easier|easily|quickly|nicer|clearer|used to|comfortable|happier|fond"
    r"|fan)\b"
)
_SUITS = re.compile(
    rf" (?:(?:is|are|would be|will be) (?:\w+ )?(?:{words.BETTER}|best|enough)\b"
    rf"|(?:would|will) (?:be (?:\w+ )?{words.GOOD}|do|help|suit)\b"
    r"|(?:work|suit|help|read)s? (?:me\b|(?:\w+ )?(?:better|best|easier|faster|more)\b))"
)
