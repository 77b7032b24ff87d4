"""Held-out measurements through side turns: hit rate on new questions, accuracy on facts."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from claw_env_personal.demo.run import SIDE, Run
from claw_env_personal.people import Fact, Person, Question, correct, facts, on_topic, questions

PARALLEL = 16
FACT_TOKENS = 40
Item = TypeVar("Item")


@dataclass(frozen=True)
class Measured:
    """One measurement of a version. Rates are in [0, 1]."""

    version: int
    hit_rate: float
    taste_rate: float
    topic_rate: float
    accuracy: float
    num_questions: int
    num_facts: int
    replies: tuple[tuple[Question, str, bool], ...]


def measure(run: Run, who: Person, max_tokens: int, seed: int) -> Measured:
    """Ask the held-out questions (sampled, as people are answered) and the facts (greedy)."""
    held = questions("held")
    replies = _ask_all(held, lambda q: _ask(run, q.text, max_tokens, seed=seed))
    hits = [who.is_hit(q, r) for q, r in zip(held, replies, strict=True)]
    known = facts()
    answers = _ask_all(known, lambda f: _ask(run, f.text, FACT_TOKENS, temperature=0.0))
    return Measured(
        version=int(run.status().get("served_version", 0)),
        hit_rate=_mean(hits),
        taste_rate=_mean([not who.unmet(r) for r in replies]),
        topic_rate=_mean([on_topic(q, r) for q, r in zip(held, replies, strict=True)]),
        accuracy=_mean([_knows(f, a) for f, a in zip(known, answers, strict=True)]),
        num_questions=len(held), num_facts=len(known),
        replies=tuple(zip(held, replies, hits, strict=True)),
    )


def _ask(run: Run, text: str, max_tokens: int, **sampling: float | int) -> str:
    answer = run.client.chat.completions.create(
        model=run.model, messages=[{"role": "user", "content": text}], max_tokens=max_tokens,
        extra_headers=SIDE, **sampling,  # type: ignore[arg-type]
    )
    return answer.choices[0].message.content or ""


def _ask_all(items: Sequence[Item], ask: Callable[[Item], str]) -> list[str]:
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(ask, items))


def _knows(fact: Fact, answer: str) -> bool:
    return correct(fact, re.sub(r"\s+", " ", answer))


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
