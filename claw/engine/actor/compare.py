"""Two answers to one question: which is better for the person who would read it.

Owns: simple measures: refusal, emptiness, loops, the form that a person asked for.
Does not own: who answers what (`better.py`), the pairwise question to a model (`sdk.judges.model`).
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from claw.engine.actor.buffer import is_loop
from claw.records import Message

MIN_CHANGE = 0.2
"""share by which a length must change to count"""


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt of the panel."""

    id: str
    """the turn's, or `fixed:<n>`"""
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    wishes: tuple[str, ...] = ()
    """what the person said to the reply that they got"""

    @property
    def is_fixed(self) -> bool:
        return self.id.startswith("fixed:")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `ids` without the end-of-turn token."""

    text: str
    ids: tuple[int, ...]
    is_cut: bool = False
    """it ended at the length limit"""


_FIXED = (
    "What is the capital of Italy?", "How many minutes are in an hour?",
    "Why do leaves fall in autumn?", "Name two animals that live in the sea.",
    "What does a baker do?", "What is 7 plus 5?", "How do I make tea?", "What is a river?",
    "Who was Albert Einstein?", "What is the opposite of hot?", "Why do we sleep?",
    "Write one sentence about the moon.", "What is bread made of?", "How many legs has a spider?",
    "What is a map for?", "Say hello to my neighbour.",
)
FIXED = tuple(
    Question(f"fixed:{i}", ({"role": "user", "content": text},)) for i, text in enumerate(_FIXED)
)
"""in no training set of ours, nor among the gate's texts"""

_REFUSES = re.compile(
    r"\b(?:I(?:'m| am) (?:sorry|unable)|I (?:can(?:no|')t|won't|will not) (?:help|answer|assist|do)"
    r"|as an AI)\b", re.IGNORECASE)
_LIST = re.compile(r"^\s*(?:[-*\u2022]|\d+[.)])\s", re.MULTILINE)
_SHORTER = re.compile(r"\b(?:short|shorter|brief|briefly|concise|too long|less)\b", re.IGNORECASE)
_LONGER = re.compile(r"\b(?:longer|more detail|in detail|too short|elaborate)\b", re.IGNORECASE)
_NO_LIST = re.compile(r"\b(?:no|not a|without) (?:lists?|bullets?)\b|\bplain text\b", re.IGNORECASE)
_A_LIST = re.compile(r"\b(?:as a|in a|with a|make a|give me a) (?:bulleted |numbered )?list\b",
                     re.IGNORECASE)


def broken(answer: Answer) -> str:
    """Return what is wrong with an answer whoever reads it, or nothing."""
    if not answer.text.strip():
        return "is empty"
    if is_loop(np.array(answer.ids, np.int32)):
        return "repeats itself"
    return "refuses" if _REFUSES.search(answer.text[:300]) else ""


async def verdict(question: Question, old: Answer, new: Answer, judge: Any) -> tuple[int, str]:
    """Return (+1 the new one is better, 0 neither, -1 worse; why)."""
    was, now = broken(old), broken(new)
    if bool(was) != bool(now):
        return (-1, f"the new answer {now}") if now else (1, f"the old answer {was}")
    if old.text == new.text:
        return 0, "the same words"
    if judge is not None and hasattr(judge, "prefer"):
        return await judge.prefer(question.messages, question.wishes, old.text, new.text)
    return _by_wish(" ".join(question.wishes), old, new)


def _by_wish(wish: str, old: Answer, new: Answer) -> tuple[int, str]:
    """By the forms that the person asked for in plain words; they may speak against each other."""
    found: list[tuple[int, str]] = []
    change = (len(new.ids) - len(old.ids)) / max(len(old.ids), 1)
    if _SHORTER.search(wish) and abs(change) >= MIN_CHANGE:
        found.append((-1 if change > 0 else 1, f"{'longer' if change > 0 else 'shorter'}, and "
                                               "shorter was asked for"))
    elif _LONGER.search(wish) and abs(change) >= MIN_CHANGE:
        found.append((1 if change > 0 else -1, f"{'longer' if change > 0 else 'shorter'}, and "
                                               "longer was asked for"))
    lists = bool(_LIST.search(new.text)) - bool(_LIST.search(old.text))
    if lists and _NO_LIST.search(wish):
        found.append((-lists, f"{'a' if lists > 0 else 'no'} list, and none was asked for"))
    elif lists and _A_LIST.search(wish):
        found.append((lists, f"{'a' if lists > 0 else 'no'} list, and one was asked for"))
    total = sum(value for value, _ in found)
    sign = (total > 0) - (total < 0)
    return sign, "; ".join(why for _, why in found) or "nothing measurable that was asked for"
