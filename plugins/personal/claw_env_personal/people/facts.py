"""Short factual questions with known answers: the check that a model still knows what it knew."""

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Fact:
    """A question and the strings any of which makes a reply right."""

    id: str
    text: str
    answers: tuple[str, ...]


@cache
def facts() -> tuple[Fact, ...]:
    """All facts, in file order."""
    path = resources.files(__package__) / "data" / "facts.jsonl"
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines() if line)
    return tuple(Fact(row["id"], row["text"], tuple(row["answers"])) for row in rows)


def correct(fact: Fact, reply: str) -> bool:
    """The reply holds an accepted answer between word boundaries, in any case.

    A long reply can hold a right answer by chance: ask with a small limit of tokens.
    """
    return any(
        re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", reply, re.I) for answer in fact.answers
    )
