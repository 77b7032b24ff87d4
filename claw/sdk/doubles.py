"""Real, tiny stand-ins that plugin authors test with: an engine, keys, an environment, a plugin.

Owns: answers by script, deterministic and streamed.
Does not own: a model, a tokenizer, a network.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from claw.records import Message, Task
from claw.sdk.app import Ask, EngineError, Event, Person
from claw.sdk.env import EnvTurn
from claw.sdk.env import assistant as reply  # how scripts call it
from claw.sdk.foreign_json import from_json
from claw.sdk.hooks import hookimpl
from claw.sdk.judging import Case, Judge, Verdict

MAX_ASKS = 10_000
"""asks that ScriptedEngine remembers"""


@dataclass(frozen=True, slots=True)
class Line:
    """One scripted answer: `text` word by word, then the calls, then `error` if there is one."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """(function name, arguments as a JSON string), as many as the policy makes at once"""
    error: EngineError | None = None
    """raised after the text; with an empty text, before anything is said"""
    wait_s: float = 0.0
    """before the first word, like a request in a queue"""
    word_s: float = 0.0
    """before each further word"""
    finish_reason: str = ""
    """empty: tool_calls with calls, length when max_tokens cut the text, else stop"""
    reasoning: str = ""
    """thinking, word by word before the text"""


Script = Callable[[Ask], Line]


class ScriptedPeople:
    """The `People` protocol over a table of keys; without one everybody is the administrator."""

    def __init__(self, keys: Mapping[str, Person] | None = None) -> None:
        self.keys = dict(keys or {})

    def of(self, key: str) -> Person | None:
        """Whose key this is."""
        return self.keys.get(key.strip()) if self.keys else Person()

    def named(self, name: str) -> Person | None:
        """The person of that name."""
        return next((p for p in self.keys.values() if p.name == name),
                    None if self.keys else Person())

    def secret(self, name: str = "default") -> str:
        """The key itself, turned round."""
        return next((k[::-1] for k, p in self.keys.items() if p.name == name), "")


class ScriptedEngine:
    """The `Engine` protocol without a model: plays lines in order, the last one for ever.

    Words are its tokens. It remembers what it was asked and which answers were cancelled.
    """

    def __init__(self, *lines: str | Line, script: Script | None = None) -> None:
        self._lines = [line if isinstance(line, Line) else Line(line) for line in lines]
        self._script = script
        self.asks: list[Ask] = []
        self.cancelled: list[str] = []
        """turn ids whose iterator was closed before its end"""
        self.owners: list[str] = []
        """for whom everything but answers was asked"""
        self.votes: list[tuple[str, int, str]] = []
        self.edits: list[str] = []
        """the person's own version of the reply, beside each vote"""
        self.ended: list[str] = []
        self.version = 0
        self.state: dict[str, Any] = {"context": 4096, "workers": [
            {"pid": 1, "kind": "scripted", "running": 0, "room": 8, "context": 4096,
             "versions": [["default", "default", 0]], "tokens_per_s": 0.0}]}
        self.pages: dict[str, dict[str, Any]] = {}
        """what `look` returns, by `what`, or by `what/id` where an id is asked for"""
        self.acts: list[tuple[str, dict[str, Any]]] = []
        self.done: dict[str, dict[str, Any]] = {}
        """what `act` returns"""

    async def ask(self, ask: Ask) -> AsyncIterator[Event]:
        """Stream the next line of the script."""
        number = len(self.asks)
        if number >= MAX_ASKS:
            raise EngineError(429, "the script is over", type="rate_limit_error")
        self.asks.append(ask)
        turn_id = f"turn_{number:04d}"
        is_over = False
        try:
            async for event in self._play(self._line(ask, number), ask, turn_id):
                is_over = event.type == "done"
                yield event
        except EngineError:
            is_over = True
            raise
        finally:
            if not is_over:
                self.cancelled.append(turn_id)

    def _line(self, ask: Ask, number: int) -> Line:
        if self._script is not None:
            return self._script(ask)
        if not self._lines:
            return Line(f"You said: {_text(ask.messages[-1])}")
        return self._lines[min(number, len(self._lines) - 1)]

    async def _play(self, line: Line, ask: Ask, turn_id: str) -> AsyncIterator[Event]:
        await asyncio.sleep(line.wait_s)
        if line.error is not None and not line.text:
            raise line.error
        trace_id = ask.session or f"trace_{turn_id}"
        prompt = sum(len(_words(_text(m))) for m in ask.messages)
        usage = {"prompt_tokens": prompt}
        yield Event("start", turn_id, trace_id, usage=usage, version=self.version)
        for word in _words(line.reasoning):
            yield Event("text", turn_id, trace_id, reasoning=word)
        said = _words(line.text)[: ask.sampling.get("max_tokens", 1 << 30)]
        for index, word in enumerate(said):
            await asyncio.sleep(line.word_s if index else 0.0)
            tokens = (_token(index, word, ask),) if "logprobs_k" in ask.sampling else ()
            yield Event("text", turn_id, trace_id, word, tokens)
        if line.error is not None:
            raise line.error
        was_cut = len(said) < len(_words(line.text))
        if ask.one_call:
            line = replace(line, calls=line.calls[:1])
        done = self._done(line, "".join(said), was_cut, Event(
            "done", turn_id, trace_id, version=self.version,
            usage=usage | {"completion_tokens": len(said), "total_tokens": prompt + len(said)},
        ))
        for part in _parts(done) if ask.tells_calls else ():
            yield Event("text", turn_id, trace_id, calls=(part,))
        yield done

    def _done(self, line: Line, said: str, was_cut: bool, event: Event) -> Event:
        calls = () if was_cut else line.calls
        reason = "length" if was_cut else "tool_calls" if calls else "stop"
        message = reply(said, calls)
        if line.reasoning:
            message["reasoning_content"] = line.reasoning
        return Event(
            event.type, event.turn_id, event.trace_id, message=message,
            finish_reason=line.finish_reason or reason, usage=event.usage, version=event.version,
        )

    async def feedback(
        self, target: str, value: int, text: str = "", edit: str = "", *, owner: str = "default"
    ) -> dict[str, Any]:
        """Remember a vote; a turn that never was is a 404."""
        self.owners.append(owner)
        if target not in {f"turn_{i:04d}" for i in range(len(self.asks))}:
            raise EngineError(404, f"no turn {target!r}", code="turn_not_found", param="id")
        self.votes.append((target, value, text))
        self.edits.append(edit)
        return {"turn_id": target, "value": value}

    async def end_session(self, session: str, *, owner: str = "default") -> None:
        """Remember that the session ended."""
        self.owners.append(owner)
        self.ended.append(session)

    async def status(self, *, owner: str = "default") -> dict[str, Any]:
        """Return `state`, which a test may change."""
        self.owners.append(owner)
        return dict(self.state)

    async def look(self, what: str, *, owner: str = "default", **about: Any) -> dict[str, Any]:
        """Return a page that a test wrote; one that is missing is a 404."""
        self.owners.append(owner)
        found = self.pages.get(f"{what}/{about['id']}" if "id" in about else what)
        if found is None:
            raise EngineError(404, f"nothing here is called {what!r}", code="not_found")
        return found

    async def act(self, what: str, *, owner: str = "default", **about: Any) -> dict[str, Any]:
        """Remember what was asked for."""
        self.owners.append(owner)
        self.acts.append((what, about))
        return self.done.get(what, {})


def _parts(done: Event) -> Iterator[dict[str, Any]]:
    """The calls of a reply as they are told while it is made: three characters at a time."""
    for index, call in enumerate((done.message or {}).get("tool_calls") or ()):
        function, id = call["function"], call["id"]
        try:
            from_json(function["arguments"], finite=True)
        except ValueError:
            return  # told at the end, as it is
        yield {"index": index, "id": id, "name": function["name"], "arguments": ""}
        for at in range(0, len(function["arguments"]), 3):
            yield {"index": index, "arguments": function["arguments"][at : at + 3]}


def _token(index: int, word: str, ask: Ask) -> dict[str, Any]:
    count = int(ask.sampling["logprobs_k"])
    top = [[word, -0.5], *([f"other{i}", -1.0 - i] for i in range(count - 1))]
    return {"id": index, "token": word, "logprob": -0.5, "top": top}


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text)


class EchoEnv:
    """Asks, says back what it heard, and is over after `turns` turns. Counts its closings."""

    def __init__(self, turns: int = 2, ask: str = "Say something.") -> None:
        self.tools: list[dict[str, Any]] = []
        self.turns, self.ask = turns, ask
        self.heard: list[str] = []
        self.closed = 0

    def start(self) -> list[Message]:
        """Return the question."""
        return [{"role": "user", "content": self.ask}]

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Return what was heard, or None after the last turn."""
        self.heard.append(_text(turn.reply))
        if len(self.heard) >= self.turns:
            return None
        return [{"role": "user", "content": f"You said: {self.heard[-1]}"}]

    def close(self) -> None:
        """Count: closing twice is fine."""
        self.closed += 1


class EchoJudge:
    """Votes +1 when a reply says anything; the outcome is 1.0 for a last word, else 0.0."""

    name = "echo"

    async def judge(self, case: Case) -> Verdict:
        """Look at the reply's text only."""
        spoke = bool(_text(case.reply).strip())
        number = float(spoke) if case.final else None
        return Verdict(vote=1 if spoke else -1, number=number, reason="the reply's text")


class DoubleConfig(BaseModel):
    """Settings of the double."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tasks: int = 2
    """how many tasks there are"""
    turns: int = 2
    """turns of an episode"""


@dataclass
class DoublePlugin:
    """A complete plugin with tasks: `registry.from_object("double", DoublePlugin())`."""

    make_env: Callable[[Task], Any] | None = None
    """replaces EchoEnv"""
    judges: list[Judge] = field(default_factory=lambda: [EchoJudge()])
    envs: list[Any] = field(default_factory=list)
    """every environment that was made"""
    traces: list[Any] = field(default_factory=list)
    """every trace that ended"""

    @hookimpl
    def claw_config(self) -> type[BaseModel]:
        """Settings: how many tasks, how many turns."""
        return DoubleConfig

    @hookimpl
    def claw_tasks(self, config: DoubleConfig, split: str) -> list[Task]:
        """Return tasks named after the split."""
        return [
            Task(f"{split}-{i}", ({"role": "user", "content": f"Task {i}"},), answer=i)
            for i in range(config.tasks)
        ]

    @hookimpl
    def claw_env(self, task: Task, config: DoubleConfig) -> Any:
        """Return an EchoEnv that asks the task's question."""
        ask = str(task.messages[0]["content"])
        env = self.make_env(task) if self.make_env else EchoEnv(config.turns, ask)
        self.envs.append(env)
        return env

    @hookimpl
    def claw_judges(self, config: DoubleConfig) -> list[Judge]:
        """Return the judges at hand."""
        return self.judges

    @hookimpl
    def claw_on_trace(self, trace: Any) -> None:
        """Remember the trace."""
        self.traces.append(trace)
