"""The events of one answer, also when an actor was restarted in the middle of it.

Owns: messages `turn.*` -> events; hearing an answer again without saying it twice.
Does not own: waiting, sockets.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from claw.engine.runner.pending import unavailable
from claw.engine.wire import Message
from claw.sdk import EngineError, Event

Tokens = tuple[dict[str, Any], ...]


class Progress:
    """Call `events(message)` for each message of one ask.

    The start is held back until there is something to say: until then a restarted actor may begin
    anew, under another turn id, and nobody has seen the first one.
    """

    def __init__(self) -> None:
        self._start: Event | None = None
        self._turn_id = ""
        self._said = ""
        self._thought = ""
        self._num_tokens = 0
        self._told: list[dict[str, Any]] = []
        """parts of calls that the reader has had"""
        self._heard_calls = 0
        self._heard_text: str | None = None
        """while an answer is heard again: its text so far"""
        self._heard_thought = ""
        self._heard_tokens = 0

    def events(self, message: Message) -> list[Event]:
        """Return the events that are new to the reader, in order."""
        if message.type == "turn.start":
            return self._on_start(message)
        if message.type == "turn.text":
            return self._on_text(message)
        if message.type == "turn.done":
            return self._on_done(message)
        if message.type in ("turn.error", "error", "reply"):
            raise error_of(message.fields)
        return []

    def _on_start(self, message: Message) -> list[Event]:
        if self._turn_id and message["turn_id"] != self._turn_id:
            raise _restarted()
        self._start = Event(
            "start", message["turn_id"], message.get("trace_id", ""),
            usage={"prompt_tokens": message.get("prompt_tokens", 0)},
            version=message.get("version", 0),
        )
        if self._turn_id:
            self._start, self._heard_text, self._heard_tokens = None, "", 0
            self._heard_thought, self._heard_calls = "", 0
        return []

    def _on_text(self, message: Message) -> list[Event]:
        text, tokens = message["text"], tuple(message.get("tokens", ()))
        thought = message.get("reasoning", "")
        if self._heard_text is not None:
            thought = self._new_thought(thought)
            text, tokens = self._unheard(text, tokens)
        calls = self._new_calls(message.get("calls", ()))
        if not text and not tokens and not thought and not calls:
            return []
        self._said += text
        self._thought += thought
        self._num_tokens += len(tokens)
        first = self._take_start(message)
        return [*first, Event("text", self._turn_id, text=text, reasoning=thought, tokens=tokens,
                              calls=calls)]

    def _new_calls(self, parts: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Leave out the parts that the reader has had; a call made anew has another id."""
        new = []
        for part in parts:
            if self._heard_calls == len(self._told):
                self._told.append(part)
                new.append(part)
            elif part != self._told[self._heard_calls]:
                raise _restarted()
            self._heard_calls += 1
        return tuple(new)

    def _new_thought(self, thought: str) -> str:
        """Cut off the thinking that the reader has had."""
        old = self._thought[len(self._heard_thought) :][: len(thought)]
        if not thought.startswith(old):
            raise _restarted()
        self._heard_thought += thought
        return thought[len(old) :]

    def _unheard(self, text: str, tokens: Tokens) -> tuple[str, Tokens]:
        """Cut off what the reader has had; another text than before cannot be continued."""
        assert self._heard_text is not None
        old = self._said[len(self._heard_text) :][: len(text)]
        if not text.startswith(old):
            raise _restarted()
        skip = min(len(tokens), self._num_tokens - self._heard_tokens)
        self._heard_text += old
        self._heard_tokens += skip
        if len(self._heard_text) == len(self._said) and len(text) > len(old):
            self._heard_text = None
        return text[len(old) :], tokens[skip:]

    def _on_done(self, message: Message) -> list[Event]:
        said = (message["message"] or {}).get("content") or ""
        if self._turn_id and message["turn_id"] != self._turn_id:
            raise _restarted()
        if self._heard_text is not None and not said.startswith(self._said.rstrip()):
            raise _restarted()
        if self._heard_calls < len(self._told):
            raise _restarted()
        first = self._take_start(message)
        return [*first, Event(
            "done", message["turn_id"], message.get("trace_id", ""), message=message["message"],
            finish_reason=message.get("finish_reason", ""), usage=message.get("usage", {}),
            version=message.get("version", 0),
        )]

    def _take_start(self, message: Message) -> list[Event]:
        if self._turn_id:
            return []
        start = self._start or Event(
            "start", message.get("turn_id", ""), message.get("trace_id", ""),
            version=message.get("version", 0),
        )
        start = replace(start, version=message.get("version", start.version))
        self._turn_id = start.turn_id
        return [start]


def error_of(fields: dict[str, Any]) -> EngineError:
    """Return the error in a `turn.error`, or in a `reply` or `error` (a text, or a map)."""
    said = fields.get("error", fields)
    if not isinstance(said, dict):
        said = fields | {"message": str(said)}
    status = said.get("status")
    return EngineError(
        status if isinstance(status, int) and 400 <= status < 600 else 500,
        str(said.get("message") or said.get("text") or "the engine failed"),
        type=said.get("type") or "server_error", code=said.get("code"), param=said.get("param"),
        retry_after_s=said.get("retry_after_s"),
    )


def _restarted() -> EngineError:
    return unavailable("the engine was restarted in the middle of the answer", 1.0)
