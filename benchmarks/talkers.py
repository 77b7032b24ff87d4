"""Clients of a soak: they talk, stream, leave in the middle, give thumbs, and note what they met.

Owns: what is said and how often, what was answered, refused or broken off, gaps in streams.
Does not own: the run, memory (`benchmarks.memory`), the verdict (`benchmarks.soak`).
"""

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

LEAVES, THUMBS, WHOLE = 0.05, 0.2, 0.3
"""shares of answers: left in the middle, judged with a thumb, asked for in one piece"""
THINK_S = (0.5, 4.0)
NOUNS = ("river", "engine", "letter", "garden", "planet", "market", "violin", "bridge", "winter",
         "harbour", "candle", "forest", "library", "mirror", "island", "teacher")
TIMEOUT_S = 300.0


@dataclass
class Met:
    """What all clients met together."""

    answered: list[str] = field(default_factory=list)
    """ids of turns whose whole answer a client has"""
    counts: Counter[str] = field(default_factory=Counter)
    """`answered`, `streamed`, `left`, `thumbs`, `429`, `503` and other statuses, `broken`"""
    gap_s: float = 0.0
    """the longest between two chunks of a stream"""
    first_s: float = 0.0
    """the longest to the first chunk"""
    errors: Counter[str] = field(default_factory=Counter)


class Talker:
    """One client with a connection of its own."""

    def __init__(self, number: int, address: str, key: str, model: str, met: Met) -> None:
        self._random, self._model, self._met = random.Random(number), model, met
        self._number, self._count = number, 0
        self._http = httpx.AsyncClient(
            base_url=f"{address}/v1", timeout=TIMEOUT_S,
            headers={"authorization": f"Bearer {key}"})

    async def talk(self, over: asyncio.Event) -> None:
        """Hold one conversation after the other until it is over."""
        async with self._http:
            while not over.is_set():
                try:
                    await self._converse(over)
                except httpx.HTTPError as error:
                    self._met.counts["broken"] += 1
                    self._met.errors[type(error).__name__] += 1
                    await _rest(over, 1.0)

    async def _converse(self, over: asyncio.Event) -> None:
        self._count += 1
        a, b = self._random.sample(NOUNS, 2)
        name = f"{self._number}-{self._count}"
        said = (f"Question {name}: what has a {a} to do with a {b}?",
                f"No, that is wrong. Answer {name} in one short sentence about the {a}.",
                "Thanks, that is perfect.")
        messages: list[dict[str, str]] = []
        for words in said:
            messages.append({"role": "user", "content": words})
            text = await self._ask(messages, over)
            if text is None or over.is_set():
                return
            messages.append({"role": "assistant", "content": text})
            await _rest(over, self._random.uniform(*THINK_S))

    async def _ask(self, messages: list[dict[str, str]], over: asyncio.Event) -> str | None:
        """Return what was answered; None when nothing was, or the client left."""
        body = {"model": self._model, "messages": messages,
                "max_tokens": self._random.randint(8, 32)}
        chance = self._random.random()
        if chance < WHOLE:
            answer = await self._http.post("/chat/completions", json=body)
            if answer.status_code != 200:
                return await self._refused(answer, over)
            found = answer.json()
            id, text = found["id"], found["choices"][0]["message"]["content"]
        else:
            streamed = await self._stream(body, leaves=chance > 1 - LEAVES, over=over)
            if streamed is None:
                return None
            id, text = streamed
            self._met.counts["streamed"] += 1
        self._met.counts["answered"] += 1
        self._met.answered.append(id.removeprefix("chatcmpl-"))
        if self._random.random() < THUMBS:
            await self._thumb(id)
        return str(text or "")

    async def _stream(
        self, body: dict[str, Any], *, leaves: bool, over: asyncio.Event
    ) -> tuple[str, str] | None:
        id, text, last, is_first = "", "", time.monotonic(), True
        async with self._http.stream("POST", "/chat/completions",
                                     json=body | {"stream": True}) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return await self._refused(answer, over)
            async for line in answer.aiter_lines():
                if not line.startswith("data: "):
                    continue
                now = time.monotonic()
                self._waited(now - last, is_first)
                last, is_first = now, False
                if line == "data: [DONE]":
                    return id, text
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    self._met.counts["broken"] += 1
                    self._met.errors[str(chunk["error"].get("code"))] += 1
                    return None
                id = chunk["id"]
                text += "".join(c["delta"].get("content") or "" for c in chunk["choices"])
                if leaves and text:
                    self._met.counts["left"] += 1
                    return None
        self._met.counts["broken"] += 1
        self._met.errors["a stream without an end"] += 1
        return None

    def _waited(self, seconds: float, is_first: bool) -> None:
        if is_first:
            self._met.first_s = max(self._met.first_s, seconds)
        else:
            self._met.gap_s = max(self._met.gap_s, seconds)

    async def _refused(self, answer: httpx.Response, over: asyncio.Event) -> None:
        self._met.counts[str(answer.status_code)] += 1
        await _rest(over, float(answer.headers.get("retry-after") or 1.0))

    async def _thumb(self, id: str) -> None:
        value = self._random.choice((-1, 1))
        answer = await self._http.post("/feedback", json={"id": id, "value": value})
        self._met.counts["thumbs" if answer.is_success else str(answer.status_code)] += 1


async def _rest(over: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        return
