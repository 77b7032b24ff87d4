"""One reply being made: tokens become text events, and at the end a finished turn.

Owns: streaming, stop strings, what state a finished turn comes to.
Does not own: prompts and sessions (`gateway.py`), workers (`policy.py`).
"""

import math
from contextlib import aclosing
from typing import Any

import numpy as np

from claw.engine.actor import parse
from claw.engine.actor.answer import Answer
from claw.engine.actor.call import Call, Chunk, GenerationError
from claw.engine.actor.chat import Chat
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.policy import Policy
from claw.engine.actor.told import Part, Told
from claw.records import Completion, FinishReason, Message, Turn, TurnKind, TurnState
from claw.sdk.app import EngineError

LOWEST = -9999.0
"""stands for a log-prob that is no finite number, as OpenAI writes it"""

_STATUS = {
    "overloaded": (429, "rate_limit_error", "rate_limit_exceeded", 2.0),
    "unavailable": (503, "server_error", "engine_unavailable", 5.0),
    "deadline": (504, "server_error", "deadline", 5.0),
    "bad_request": (400, "invalid_request_error", None, None),
}


class Writer:
    """Turns the chunks of one call into text for people."""

    def __init__(self, chat: Chat, answer: Answer, markup: parse.Markup, call: Call) -> None:
        self._chat, self._answer, self._markup, self._call = chat, answer, markup, call
        self._detok = chat.detokeniser()
        self._told = Told() if answer.tells_calls and markup.calls == "hermes" else None
        self.text = ""
        """everything sampled so far, without the end-of-turn token and what follows a stop"""
        self._sent = 0
        self._thought = 0
        """characters of the thinking that were given out"""
        self._version = 0
        """of the newest token: a worker may still serve another than the newest published one"""

    def take(self, new: list[Chunk]) -> bool:
        """Give out what is certain; return whether the reply has to end here."""
        for chunk in new:
            self.text += self._detok.add(self._chat.without_stop(chunk.ids).tolist())
            self._version = int(chunk.versions[-1]) if len(chunk.versions) else self._version
        is_stopped = self._cut()
        tokens = [t for chunk in new for t in self._tokens(chunk)] if self._answer.reports else []
        text = self._certain(is_stopped)
        calls = [] if self._told is None else self._told.take(
            parse.after_thinking(text, self._markup))
        self._emit(parse.thought(self.text, self._markup), parse.visible(text, self._markup),
                   tokens, calls)
        return is_stopped

    def end(self) -> None:
        """Take what the detokeniser still holds back."""
        self.text += self._detok.end()
        self._cut()

    def finish(self, finish: FinishReason) -> tuple[Message, FinishReason]:
        """Give out the rest and return the message and the finish reason."""
        calls: list[Part] = []
        if self._told is None:
            message, finish = parse.reply(self.text, self._markup, finish)
        else:
            thought, body = parse.split_thinking(self.text, self._markup)
            calls = self._told.take(body, is_whole=True)
            message, finish = parse.made(
                thought, self._told.content(body), self._told.calls, finish)
        self._emit(message.get("reasoning_content") or "", message["content"] or "", [], calls)
        return message, finish

    def _cut(self) -> bool:
        found = [at for s in self._call.sampling.stop if (at := self.text.find(s)) >= 0]
        if self._answer.one_call and (end := parse.first_call(self.text, self._markup)) >= 0:
            found.append(end)
        if found:
            self.text = self.text[: min(found)]
        return bool(found)

    def _certain(self, is_stopped: bool) -> str:
        """The text without what may be the start of a stop string."""
        if is_stopped:
            return self.text
        stops = self._call.sampling.stop
        held = max((parse.overlap(self.text, s) for s in stops), default=0)
        return self.text[: len(self.text) - held]

    def _emit(
        self, thought: str, content: str, tokens: list[dict[str, Any]], calls: list[Part]
    ) -> None:
        new, thinking = content[self._sent :], thought[self._thought :]
        self._sent = max(self._sent, len(content))
        self._thought = max(self._thought, len(thought))
        if new or thinking or tokens or calls:
            more = {"calls": calls} if calls else {}
            self._answer.add("turn.text", text=new, reasoning=thinking, tokens=tokens,
                             version=self._version, **more)

    def _tokens(self, chunk: Chunk) -> list[dict[str, Any]]:
        name = self._chat.token
        return [
            {"id": int(id), "token": name(int(id)), "logprob": _finite(logp),
             "top": [[name(int(t)), _finite(p)] for t, p in zip(ids, logps, strict=True) if t >= 0]}
            for id, logp, ids, logps in zip(
                chunk.ids, chunk.logps, chunk.topk_ids, chunk.topk_logps, strict=True
            )
        ]


def _finite(value: Any) -> float:
    return float(value) if math.isfinite(value) else LOWEST


class Generation:
    """Makes the reply of one open turn."""

    def __init__(self, chat: Chat, policy: Policy, ledger: Ledger) -> None:
        self._chat, self._policy, self._ledger = chat, policy, ledger

    async def run(
        self, turn: Turn, call: Call, answer: Answer, starts_thinking: bool
    ) -> tuple[Turn, str, FinishReason] | None:
        """Return (finished turn, sampled text, finish reason for the client); None on an error.

        The turn is in the journal, and the answer has its error, before this returns.
        """
        markup = self._chat.markup(turn.tools, starts_thinking)
        writer = Writer(self._chat, answer, markup, call)
        try:
            finish = await self._stream(call, writer)
        except GenerationError as error:
            await self._ledger.finish(turn.id, self._partial(call, turn), None,
                                      TurnState.SKIPPED, f"failed: {error.code}")
            answer.fail(engine_error(error))
            return None
        writer.end()
        completion = call.completion(finish, turn.sampling.logprobs_k)
        message, said = writer.finish(finish)
        state, reason = _settled(turn, completion, call, self._chat)
        done = await self._ledger.finish(turn.id, completion, message, state, reason)
        return done, writer.text, _for_client(said)

    async def _stream(self, call: Call, writer: Writer) -> FinishReason:
        async with aclosing(self._policy.generate(call)) as news:
            async for new in news:
                if writer.take(new):
                    return FinishReason.STOP  # leaving the block cancels the rest
        if call.finish is FinishReason.ERROR or call.finish is None:
            raise GenerationError("engine", "the worker ended without a known finish reason")
        return call.finish

    def _partial(self, call: Call, turn: Turn) -> Completion | None:
        if not call.num_tokens:
            return None
        return call.completion(FinishReason.ERROR, turn.sampling.logprobs_k)

    async def abandon(self, turn: Turn, call: Call, reason: str) -> None:
        """Settle a turn whose asker went away."""
        if turn.id in self._ledger.live:
            completion = (call.completion(FinishReason.CANCELLED, turn.sampling.logprobs_k)
                          if call.num_tokens else None)
            await self._ledger.finish(turn.id, completion, None, TurnState.SKIPPED, reason)


def _settled(
    turn: Turn, completion: Completion, call: Call, chat: Chat
) -> tuple[TurnState, str]:
    """Return the state a finished turn comes to; only a sound main turn waits."""
    if turn.kind is TurnKind.SIDE:
        return TurnState.SKIPPED, "side"
    if call.problem == "deadline":
        return TurnState.SKIPPED, "deadline"
    if completion.finish_reason is FinishReason.CANCELLED:
        return TurnState.SKIPPED, "cancelled"
    if call.problem:
        return TurnState.SKIPPED, f"bad_logprobs: {call.problem}"
    if (completion.ids >= chat.vocab_size).any():
        return TurnState.SKIPPED, "bad_logprobs: a token id outside the vocabulary"
    if not len(chat.without_stop(np.asarray(completion.ids))):
        return TurnState.SKIPPED, "empty_reply"
    return TurnState.WAITING, "no next state yet"


def _for_client(finish: FinishReason) -> FinishReason:
    """Clients know no reply that was cut by a deadline; for them it is one that grew too long."""
    return FinishReason.LENGTH if finish is FinishReason.CANCELLED else finish


def engine_error(error: GenerationError) -> EngineError:
    status, type, code, retry = _STATUS.get(error.code, (500, "server_error", None, None))
    return EngineError(status, str(error), type=type, code=code, retry_after_s=retry)

