"""People for tests: they ask, correct and thank through the official client, without a pause.

Owns: what is said, what came back and when. Does not own: the run (system).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import openai
from system import System

CORRECTION = "No, that is wrong. Answer in one short sentence."
THANKS = "Thanks, that is perfect."


@dataclass
class Heard:
    """One answer as a client saw it."""

    id: str
    content: str
    finish: str
    version: int
    tokens: int
    times: list[float] = field(default_factory=list)
    """when each chunk with text came; empty for an answer that came whole"""

    @property
    def turn_id(self) -> str:
        return self.id.removeprefix("chatcmpl-")


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], **rest: Any) -> Heard:
    """Ask for a whole answer; it is added to the messages."""
    said = client.chat.completions.create(model="claw-policy", messages=messages, **rest)
    choice = said.choices[0]
    messages.append({"role": "assistant", "content": choice.message.content})
    return Heard(said.id, choice.message.content, choice.finish_reason,
                 _version(said.system_fingerprint), said.usage.completion_tokens)


def listen(client: openai.OpenAI, messages: list[dict[str, Any]], **rest: Any) -> Heard:
    """Ask for a stream and note when its pieces came; it is added to the messages."""
    heard = Heard("", "", "", -1, 0)
    for chunk in client.chat.completions.create(
        model="claw-policy", messages=messages, stream=True,
        stream_options={"include_usage": True}, **rest,
    ):
        heard.id, heard.version = chunk.id, _version(chunk.system_fingerprint)
        heard.tokens = chunk.usage.completion_tokens if chunk.usage else heard.tokens
        for choice in chunk.choices:
            heard.finish = choice.finish_reason or heard.finish
            if choice.delta.content:
                heard.content += choice.delta.content
                heard.times.append(time.time())
    messages.append({"role": "assistant", "content": heard.content})
    return heard


def _version(fingerprint: str) -> int:
    return int(fingerprint.removeprefix("claw-v"))


class Person(threading.Thread):
    """Talks in short conversations until told to stop; keeps what was heard and what failed."""

    def __init__(self, system: System, number: int, *, tokens: int = 24) -> None:
        super().__init__(daemon=True)
        self.system, self.number, self.tokens = system, number, tokens
        self.heard: list[Heard] = []
        self.failures: list[tuple[float, str]] = []
        self.over = threading.Event()

    def run(self) -> None:
        count = 0
        while not self.over.is_set():
            count += 1
            try:
                with self.system.client() as client:
                    self._talk(client, count)
            except openai.OpenAIError as error:
                self.failures.append((time.time(), f"{type(error).__name__}: {error}"))
                self.over.wait(0.5)

    def _talk(self, client: openai.OpenAI, count: int) -> None:
        say = listen if (self.number + count) % 2 else ask
        messages: list[dict[str, Any]] = []
        for words in (f"Question {count} of person {self.number}?", CORRECTION, THANKS):
            messages.append({"role": "user", "content": words})
            self.heard.append(say(client, messages, max_tokens=self.tokens))
            if self.over.is_set():
                return


def longest_gap_s(talkers: list[Person]) -> float:
    """The longest time between two chunks of a stream that somebody heard."""
    times = [heard.times for person in talkers for heard in person.heard]
    return max((b - a for of in times for a, b in pairwise(of)), default=0.0)


@contextmanager
def people(system: System, count: int, **rest: Any) -> Iterator[list[Person]]:
    """Let so many people talk for as long as the block lasts; then they finish their answers."""
    talkers = [Person(system, number, **rest) for number in range(count)]
    for person in talkers:
        person.start()
    try:
        yield talkers
    finally:
        for person in talkers:
            person.over.set()
        for person in talkers:
            person.join(120)
    assert not any(person.is_alive() for person in talkers), "a client still waits for its answer"
