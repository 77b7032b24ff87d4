"""Tastes a simulated person can have, each a pure check from a reply's text to met or not.

Surface features only: whether a reply answers the question is `topic.py`'s business.
"""

import re
from collections.abc import Callable

MAX_PLAIN_SENTENCES = 2
MIN_SINGLE_WORDS = 5
MIN_BULLETS = 2
MIN_STRUCTURED_WORDS = 25
MIN_DETAILED_WORDS = 75  # about 100 tokens of English; the check has no tokenizer

FRIENDLY_PHRASES = (
    "happy to help",
    "glad to help",
    "here to help",
    "glad you asked",
    "great question",
    "good question",
    "of course",
    "sure thing",
    "no worries",
    "you've got this",
    "you can do it",
    "good luck",
    "have fun",
    "enjoy",
    "hope this helps",
    "hope that helps",
    "well done",
    "great job",
    "congratulations",
    "wonderful",
)

_LIST_LINE = re.compile(r"^\s*(?:[-*+\u2022]\s+|\(?\d{1,2}[.)]\s|step\s+\d)", re.I | re.M)
_NUMBERED_LINE = re.compile(r"^\s*(?:\*\*)?\(?\d{1,2}[.)]\s", re.M)
_HEADING = re.compile(r"^\s*#{1,6}\s", re.M)
_BOLD = re.compile(r"\*\*|__")
_SENTENCE_END = re.compile(r"[.!?]+[\"')\]]*(?:\s+|$)")
_FINISHED = re.compile(r"[.!?][\"')\]]*$")


def words(text: str) -> list[str]:
    """The words of a text in lower case; digits count, punctuation does not."""
    return re.findall(r"[a-z0-9]+(?:['\u2019-][a-z0-9]+)*", text.lower())


def num_sentences(text: str) -> int:
    """Sentences by closing punctuation; an unfinished tail counts, abbreviations count too."""
    return sum(1 for part in _SENTENCE_END.split(text) if words(part))


def has_list(text: str) -> bool:
    """A line that starts as a bullet, a number or a step."""
    return bool(_LIST_LINE.search(text))


def has_markup(text: str) -> bool:
    """Bold text or a markdown heading."""
    return bool(_BOLD.search(text) or _HEADING.search(text))


def plain(text: str) -> bool:
    """One or two finished sentences without lists, bold or headings."""
    text = text.strip()
    if has_list(text) or has_markup(text) or not _FINISHED.search(text):
        return False
    return 1 <= num_sentences(text) <= MAX_PLAIN_SENTENCES


def single(text: str) -> bool:
    """One finished sentence of at least five words, without lists, bold or headings."""
    return plain(text) and num_sentences(text) == 1 and len(words(text)) >= MIN_SINGLE_WORDS


def bullets(text: str) -> bool:
    """At least two lines that are a bullet or a numbered item."""
    return len(_LIST_LINE.findall(text)) >= MIN_BULLETS


def structured(text: str) -> bool:
    """A list or steps, and enough words that the list says something."""
    return has_list(text) and len(words(text)) >= MIN_STRUCTURED_WORDS


def friendly(text: str) -> bool:
    """At least one warm phrase; says nothing about tone beyond that."""
    low = text.lower().replace("\u2019", "'")
    return any(re.search(rf"\b{re.escape(phrase)}\b", low) for phrase in FRIENDLY_PHRASES)


def student(text: str) -> bool:
    """Looks hand-written, as the paper's student wants: no bold, numbered list or \\boxed."""
    marked = has_markup(text) or _NUMBERED_LINE.search(text) or "\\boxed" in text
    return bool(words(text)) and not marked


def ta(text: str) -> bool:
    """Detailed, as the paper's teaching assistant wants: enough words, no bold or headings."""
    return len(words(text)) >= MIN_DETAILED_WORDS and not has_markup(text)


def teacher(text: str) -> bool:
    """Warm and unformatted, as the paper's teacher wants: a friendly phrase, no bold."""
    return friendly(text) and not has_markup(text)


TASTES: dict[str, Callable[[str], bool]] = {
    "plain": plain,
    "single": single,
    "bullets": bullets,
    "structured": structured,
    "friendly": friendly,
    "student": student,
    "ta": ta,
    "teacher": teacher,
}
