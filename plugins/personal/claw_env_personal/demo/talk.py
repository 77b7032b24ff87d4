"""Conversations of a simulated person over HTTP, through the official client."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from claw_env_personal.demo.run import Run
from claw_env_personal.people import Person, Question, person

Say = Callable[[list[dict[str, Any]]], str]


@dataclass
class Conversation:
    """One conversation: the question, every message, and how the first reply was."""

    number: int
    question: Question
    messages: list[dict[str, Any]] = field(default_factory=list)
    is_hit: bool = False
    """the first reply met the taste and was on topic"""

    @property
    def first_reply(self) -> str:
        return next((m["content"] for m in self.messages if m["role"] == "assistant"), "")


def converse(who: Person, number: int, say: Say) -> Conversation:
    """Ask, correct in words while displeased, thank when pleased, and leave."""
    question = who.ask(number)
    talk = Conversation(number, question, [{"role": "user", "content": question.text}])
    while True:
        reply = say(talk.messages)
        talk.messages.append({"role": "assistant", "content": reply})
        if talk.first_reply is reply:
            talk.is_hit = who.is_hit(question, reply)
        reaction = who.react(question, reply)
        if reaction is None:
            return talk
        talk.messages.append({"role": "user", "content": reaction})
        if who.is_hit(question, reply):
            say(talk.messages)  # the thanks are heard; what the model answers does not matter
            return talk


def sayer(run: Run, max_tokens: int, short: int = 8) -> Say:
    """Ask the run for a reply, streamed as chat clients do. After thanks a word is enough."""

    def say(messages: list[dict[str, Any]]) -> str:
        is_farewell = len(messages) > 1 and _is_thanks(messages)
        stream = run.client.chat.completions.create(
            model=run.model, messages=messages, stream=True,  # type: ignore[arg-type]
            max_tokens=short if is_farewell else max_tokens,
        )
        parts = [c.choices[0].delta.content or "" for c in stream if c.choices]
        return "".join(parts)

    return say


def _is_thanks(messages: list[dict[str, Any]]) -> bool:
    from claw_env_personal.people.people import THANKS

    return messages[-1]["content"] in THANKS


def talk_round(
    run: Run, name: str, seed: int, numbers: range, max_tokens: int
) -> list[Conversation]:
    """Several conversations at once, each with its own copy of the same person."""
    say = sayer(run, max_tokens)

    def one(number: int) -> Conversation:
        return converse(person(name, seed), number, say)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(one, numbers))


def streak_at(hits: list[bool], length: int = 3) -> int | None:
    """Number of conversations until `length` consecutive first replies were hits."""
    for end in range(length, len(hits) + 1):
        if all(hits[end - length:end]):
            return end
    return None
