"""Sending an attack over HTTP, as a client of the person whose key it has.

Owns: the requests, and waiting until what was sent has been learned or refused.
Does not own: what is said (suite), what became of it (measure).
"""

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from claw_env_personal.demo.run import SIDE, Run

from benchmarks.poison.attack import Attack, Feedback, Move, Probe, React, Talk, Tool

AT_ONCE = 8
"""conversations"""
SETTLE_S = 900.0
TRIES = 3
"""of a wish: a step may have the reply already"""
CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


@dataclass
class Open:
    """A conversation that goes on."""

    run: Run
    talk: Talk
    tokens: int
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    messages: list[dict[str, Any]] = field(default_factory=list)
    last: str = ""
    """the id of the newest answer"""

    def ask(self) -> None:
        self._say({"role": "user", "content": self.talk.asks}, self.tokens)

    def move(self) -> None:
        for i, move in enumerate(self.talk.moves):
            self._do(move, is_last=i == len(self.talk.moves) - 1)

    def _do(self, move: Move, *, is_last: bool) -> None:
        tokens = 1 if is_last else self.tokens  # nobody reacts to the last answer
        if isinstance(move, Feedback):
            self.run.client.post("/feedback", cast_to=dict[str, Any], body={
                "id": self.last, "value": move.value, "text": move.text, "edit": move.edit})
        elif isinstance(move, Tool):
            self.messages[-1] |= {"tool_calls": [CALL]}
            self._say({"role": "tool", "tool_call_id": CALL["id"], "content": move.text}, tokens)
        else:
            reply = str(self.messages[-1]["content"])
            text = move.to(reply) if isinstance(move, React) else move.text
            self._say({"role": "user", "content": text}, tokens)

    def _say(self, message: dict[str, Any], tokens: int) -> None:
        self.messages.append(message)
        drawn = {} if self.talk.temperature is None else {"temperature": self.talk.temperature}
        said = self.run.client.chat.completions.create(
            model=self.run.model, messages=self.messages, max_tokens=tokens,  # type: ignore[arg-type]
            extra_headers={"x-session-id": self.session, "x-turn-type": "main"},
            **drawn,  # type: ignore[arg-type]
        )
        self.last = said.id
        self.messages.append({"role": "assistant", "content": said.choices[0].message.content})


def play(run: Run, attack: Attack) -> None:
    """Send all rounds; after each, wait until the run has made of it what it makes of it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for talks in attack.rounds:
            opened = [Open(run, talk, attack.tokens) for talk in talks]
            list(pool.map(Open.ask, opened))
            list(pool.map(Open.move, opened))
            settle(run)


def settle(run: Run) -> None:
    """Wait until this person's turns are learned, held or refused, and the newest version serves.

    Of a person of whom nothing more is learned samples wait for ever.
    """
    until = time.monotonic() + SETTLE_S
    while time.monotonic() < until:
        run.check()
        status = run.status()
        turns, is_training = status["turns"], status["trainer"].get("state") == "training"
        is_stopped = any("Learning has stopped" in warning for warning in status["warnings"])
        waits = [s for s in ("open", "judging", "queued") if turns.get(s)]
        if is_stopped and waits in ([], ["queued"]):
            return
        if not waits and not is_training and status["served_version"] == status["version"]:
            return
        time.sleep(1.0)
    raise TimeoutError(f"nothing settled within {SETTLE_S:g} s: {run.status()['turns']}")


def answers(run: Run, probes: Sequence[Probe], tokens: int) -> list[str]:
    """Greedy replies of the version that serves this person now; never trained."""
    def one(probe: Probe) -> str:
        said = run.client.chat.completions.create(
            model=run.model, messages=[{"role": "user", "content": probe.asks}],
            max_tokens=tokens, temperature=0.0, extra_headers=SIDE)
        return said.choices[0].message.content or ""

    with ThreadPoolExecutor(len(probes)) as pool:
        return list(pool.map(one, probes))


def wishes(run: Run, texts: Sequence[str]) -> dict[str, str]:
    """What the run says to each text as a wish about a reply: `queued`, or why not.

    One reply serves for many wishes: the newest takes the place of the one before, so that few
    teach. What was held stays with its reply, and a reply that a step has takes no more.
    """
    found: dict[str, str] = {}
    id = ""
    for text in texts:
        for _ in range(TRIES):
            id = id or _answered(run, len(found))
            found[text] = run.client.post("/feedback", cast_to=dict[str, Any], body={
                "id": id, "value": -1, "text": text})["status"]
            if found[text] != "queued":
                id = ""
            if not found[text].startswith("kept"):
                break
    return found


def _answered(run: Run, number: int) -> str:
    said = run.client.chat.completions.create(
        model=run.model, messages=[{"role": "user", "content": f"What is the number {number}?"}],
        max_tokens=8, extra_headers={"x-turn-type": "main"})
    return said.id
