"""Whether a reply answers the question at all, independent of any taste.

Each question carries stems that a real answer would contain and that the question does not.
This is a cheap lower bound of usefulness, not a measure of truth.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from .tastes import words

MIN_WORDS = 4
NGRAM = 3
MAX_NGRAM_REPEATS = 3


@dataclass(frozen=True)
class Question:
    """An open question; `split` is `talk` (to talk about) or `held` (only to measure)."""

    id: str
    split: str
    text: str
    topic: tuple[str, ...]


@cache
def questions(split: str) -> tuple[Question, ...]:
    """The questions of one split, in file order."""
    found = tuple(question for question in _all() if question.split == split)
    if not found:
        raise ValueError(f"no questions in split {split!r}; the splits are 'talk' and 'held'")
    return found


@cache
def _all() -> tuple[Question, ...]:
    path = resources.files(__package__) / "data" / "questions.jsonl"
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line)
    return tuple(Question(r["id"], r["split"], r["text"], tuple(r["topic"])) for r in rows)


def word_has_stem(word: str, stem: str) -> bool:
    """A word starts with a stem; stems of up to three letters match whole words and plurals.

    Without that exception "app" would find "apple" and "sun" would find "Sunday".
    """
    if len(stem) <= 3:
        return word in (stem, stem + "s", stem + "es")
    return word.startswith(stem)


def degenerate(text: str) -> bool:
    """One run of three words comes back more than three times, or one line does three times."""
    seen = words(text)
    grams = list(zip(*(seen[i:] for i in range(NGRAM)), strict=False))
    lines = [line.strip() for line in text.splitlines() if len(line.split()) > 2]
    return _most(grams) > MAX_NGRAM_REPEATS or _most(lines) >= MAX_NGRAM_REPEATS


def _most(items: Sequence[object]) -> int:
    """How often the commonest item occurs; 0 for none."""
    return max((items.count(item) for item in set(items)), default=0)


def on_topic(question: Question, reply: str) -> bool:
    """A reply of at least four words, not degenerate, with at least one stem of the answer.

    One is enough because a wanted reply may be a single short sentence, and no stem is in the
    question: parroting or refusing it ("You can't grow tomatoes.") finds none.
    """
    seen = set(words(reply))
    if len(words(reply)) < MIN_WORDS or degenerate(reply):
        return False
    return any(word_has_stem(word, stem) for word in seen for stem in question.topic)
