"""The runner's side: asks for turns, feedback, ends, status (docs/wire.md).

Owns: what a runner may ask, and the task that makes each answer.
Does not own: prompts (`conversations.py`), tokens (`generation.py`), episodes (`episodes.py`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from claw.config import RunConfig
from claw.engine import wire
from claw.engine.actor import request
from claw.engine.actor.answer import Answer, error_fields
from claw.engine.actor.call import Call, GenerationError
from claw.engine.actor.conversations import Conversations, Opened
from claw.engine.actor.generation import Generation, engine_error
from claw.engine.actor.meter import Charge, Meter
from claw.engine.actor.policy import Policy, new_call
from claw.engine.actor.published import Published
from claw.engine.actor.store import NoRoom
from claw.engine.wire import Message
from claw.errors import WireError
from claw.records import End, Turn
from claw.sdk.app import Ask, EngineError

log = logging.getLogger(__name__)

MAX_ASKS = 4096
"""asks in hand at once, over all runners"""
KEEP_S = 10.0
"""an answer stays so long after its end, for a client that asks again"""

NO_ROOM_S = 10.0
"""after which a client may ask again when the journal could not be written"""

Send = Callable[[bytes, Message], Awaitable[None]]


class Gateway:
    """Answers `turn.ask`."""

    def __init__(
        self, config: RunConfig, send: Send, talk: Conversations, generation: Generation,
        policy: Policy, published: Published, meter: Meter,
    ) -> None:
        self._config, self._send, self._talk = config, send, talk
        self._generation, self._policy, self._published = generation, policy, published
        self._meter = meter
        self._answers: dict[str, Answer] = {}
        self._asks: dict[tuple[bytes, str], asyncio.Task[None]] = {}
        self._heard_before: dict[tuple[bytes, str], Answer] = {}
        """answers by who asked: a lost answer is asked for again under the same id"""
        self._owed: dict[str, tuple[Turn, Call, str]] = {}
        """turns without an answer whose end is not written yet, and why they have none"""
        self._opening = asyncio.Lock()
        self.on_episode_turn: Callable[[str, str], None] = lambda trace_id, turn_id: None

    @property
    def context(self) -> int:
        """Longest prompt + reply: the run's setting, the model's, the smallest worker's."""
        limits = [self._config.worker.context, self._talk.model_context]
        limits += [w.context for w in self._policy.workers.values()]
        return min(n for n in limits if n > 0)

    # --- asks --------------------------------------------------------------------------------

    def ask(self, peer: bytes, message: Message) -> None:
        """Begin to answer one ask; the same ask sent again is not begun twice."""
        key = (peer, message.id)
        if key in self._asks:
            return  # its answer is on the way
        task = asyncio.create_task(self._answer(peer, message))
        self._asks[key] = task
        task.add_done_callback(lambda _: self._asks.pop(key, None))

    def cancel(self, peer: bytes, id: str) -> None:
        if task := self._asks.get((peer, id)):
            task.cancel()

    def cancel_peer(self, peer: bytes) -> None:
        """A runner is gone: nobody hears its answers."""
        for (of, _), task in list(self._asks.items()):
            if of == peer:
                task.cancel()

    async def drop(self, turn_ids: list[str]) -> None:
        """End the answers that are being made to these turns, and wait until they have ended."""
        tasks = [a.task for id in turn_ids if (a := self._answers.get(id)) and a.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for id in turn_ids:
            self._answers.pop(id, None)

    async def _answer(self, peer: bytes, message: Message) -> None:
        try:
            answer = self._heard_before.get((peer, message.id))
            if answer is None:
                answer = await self._begin_whole(message)
                self._heard_before[peer, message.id] = answer
            async for type, fields in answer.hear():
                await self._send(peer, Message(type, message.id, fields))
        except EngineError as error:
            await self._send(peer, Message("turn.error", message.id, error_fields(error)))
        except WireError as error:
            refused = request.bad(f"not an ask: {error}", "ask")
            await self._send(peer, Message("turn.error", message.id, error_fields(refused)))
        except NoRoom as error:
            log.error("%s", error)
            await self._send(peer, Message("turn.error", message.id, error_fields(_full(error))))
        except Exception as error:  # one ask's trouble must not end the others
            log.exception("an ask failed")
            broken = EngineError(500, f"claw failed: {type(error).__name__}", type="server_error")
            await self._send(peer, Message("turn.error", message.id, error_fields(broken)))

    async def _begin_whole(self, message: Message) -> Answer:
        """A turn is opened whole or not at all, also when its asker leaves meanwhile."""
        begin = asyncio.ensure_future(self._begin(message))
        try:
            return await asyncio.shield(begin)
        except asyncio.CancelledError:
            begin.add_done_callback(_end_unheard)
            raise

    async def _begin(self, message: Message) -> Answer:
        """Return the answer to an ask: a new one, or the one that a retry asks for again."""
        ask = await self._talk.checked(wire.read_record(message, Ask))
        if len(self._asks) > MAX_ASKS:
            raise engine_error(GenerationError("overloaded", f"{MAX_ASKS} asks are in hand"))
        async with self._opening:  # an equal request must find this one's turn
            return await self._open(ask, str(message.get("trace_id") or ""))

    async def _open(self, ask: Ask, trace_id: str) -> Answer:
        place, kind, rule, sampling = self._talk.find(ask, trace_id)
        if place.retry_of is not None and place.retry_of.turn_id in self._answers:
            return self._answers[place.retry_of.turn_id]
        try:
            self._policy.check_room()
        except GenerationError as error:
            raise engine_error(error) from error
        charge = self._meter.begin(ask.owner, sampling.max_tokens)
        try:
            opened = await self._talk.open(ask, place, kind, rule, sampling, self.context)
        except BaseException:
            if charge is not None:
                charge.tokens = 0
            raise
        if trace_id:
            self.on_episode_turn(trace_id, opened.turn.id)
        answer = Answer(opened.turn.id, reports=(ask.sampling or {}).get("logprobs_k") is not None,
                        tells_calls=ask.tells_calls, one_call=ask.one_call)
        self._answers[opened.turn.id] = answer
        deadline_s = ask.deadline_s if ask.deadline_s > 0 else self._config.worker.deadline_s
        answer.task = asyncio.create_task(self._make(opened, answer, deadline_s, charge))
        return answer

    async def _make(
        self, opened: Opened, answer: Answer, deadline_s: float, charge: Charge | None
    ) -> None:
        """Make one answer from start to done; what goes wrong is in the answer and the journal."""
        turn = opened.turn
        call = new_call(turn.id, turn.prompt_ids, turn.sampling, session=turn.trace_id,
                        owner=turn.owner, adapter=turn.adapter, deadline_s=deadline_s)
        try:
            await self._make_from(opened, call, answer)
        finally:
            if charge is not None:
                charge.tokens = len(turn.prompt_ids) + sum(len(c.ids) for c in call.chunks)

    async def _make_from(self, opened: Opened, call: Call, answer: Answer) -> None:
        turn = opened.turn
        answer.add("turn.start", turn_id=turn.id, trace_id=turn.trace_id,
                   version=self._published.newest(turn.owner, turn.adapter),
                   prompt_tokens=len(turn.prompt_ids))
        made = None
        try:
            call.pictures = await self._talk.pictures(turn.images)
            made = await self._generation.run(turn, call, answer, opened.prompt.starts_thinking)
            if made is None:
                self._talk.sessions.fail(opened.node)
                return
        except asyncio.CancelledError:
            self._talk.sessions.fail(opened.node)
            await self._abandon(turn, call, "cancelled")
            answer.fail(EngineError(499, "the asker went away", type="server_error"))
            return
        except Exception as error:  # our bug: the turn ends, the actor goes on
            log.exception("turn %s failed", turn.id)
            self._talk.sessions.fail(opened.node)
            answer.fail(_full(error) if isinstance(error, NoRoom) else
                        EngineError(500, "claw failed at this turn", type="server_error"))
            await self._abandon(turn, call, f"failed: {type(error).__name__}")
            return
        done, raw, finish = made
        self._talk.answered(opened, done, raw)
        c = done.completion
        assert c is not None, "a finished turn has its tokens"
        usage = {"prompt_tokens": len(turn.prompt_ids), "completion_tokens": len(c.ids),
                 "total_tokens": len(turn.prompt_ids) + len(c.ids),
                 "reasoning_tokens": self._talk.num_thinking(done)}
        answer.add("turn.done", turn_id=turn.id, trace_id=turn.trace_id, message=done.reply,
                   finish_reason=str(finish), usage=usage,
                   version=int(c.versions[-1]) if len(c.versions) else 0)

    async def _abandon(self, turn: Turn, call: Call, reason: str) -> None:
        self._owed[turn.id] = (turn, call, reason)
        await self._settle()

    async def _settle(self) -> None:
        """Write the end of turns that have no answer; where there is no room, again later."""
        for id in list(self._owed):
            if (owed := self._owed.pop(id, None)) is None:
                continue  # somebody else settles it
            try:
                await self._generation.abandon(*owed)
            except NoRoom:
                self._owed[id] = owed
                return

    # --- ends --------------------------------------------------------------------------------

    def end_session(self, session: str, owner: str) -> dict[str, Any]:
        """End a conversation by the client's name for it, or by its trace id."""
        trace_id = self._talk.sessions.trace_of(owner, session) or session
        known = self._talk.traces.get(trace_id)
        if known is None or known.owner != owner:
            return {"ended": ""}
        trace = self._talk.end(trace_id, End.CLOSED)
        return {"ended": trace.id if trace else ""}

    async def tend(self) -> None:
        """Let go of answers that everybody has."""
        await self._settle()
        now = time.monotonic()
        for id, answer in list(self._answers.items()):
            if answer.over_at and not answer.askers and now - answer.over_at > KEEP_S:
                del self._answers[id]
        kept = set(self._answers.values())
        self._heard_before = {k: a for k, a in self._heard_before.items() if a in kept}

    async def stop(self) -> None:
        """End every answer; their turns become `interrupted`."""
        for answer in self._answers.values():
            if answer.task is not None and not answer.over_at:
                answer.fail(EngineError(503, "the run is stopping", type="server_error",
                                        retry_after_s=5.0))
        await asyncio.sleep(0)
        tasks = [a.task for a in self._answers.values() if a.task] + list(self._asks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _full(error: NoRoom) -> EngineError:
    return EngineError(503, error.what, type="server_error", code="disk_full",
                       retry_after_s=NO_ROOM_S)


def _end_unheard(begin: "asyncio.Future[Answer]") -> None:
    """The asker left while its turn was being opened."""
    if begin.cancelled() or begin.exception() is not None:
        return
    answer = begin.result()
    if not answer.askers and answer.task is not None:
        answer.task.cancel()
