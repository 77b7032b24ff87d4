"""The runners' side: asks go to the gateway, reports to the episodes, questions are answered.

Owns: which runner is alive, the answers called `reply`. Does not own: turns (`gateway.py`).
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from claw import config as settings
from claw.engine.actor.answer import error_fields
from claw.engine.actor.desk import QUESTIONS, Desk
from claw.engine.actor.pace import Pace
from claw.engine.actor.parts import Parts
from claw.engine.actor.trainer_link import TrainerLink
from claw.engine.wire import Message
from claw.errors import ClawError, WireError
from claw.sdk.app import EngineError

log = logging.getLogger(__name__)

RESPONSE = "chatcmpl-"
"""a response id is this and the turn's id"""
MAX_QUESTIONS = 1000
LOOKS = ("status", "settings", "look")
"""questions that change nothing: asked again they are answered anew, and a long page of a run that
has gone on for days is not kept a thousand times"""
Send = Callable[[bytes, Message], Awaitable[None]]


class RunnerLink:
    """What runners, and the command line, say."""

    def __init__(
        self, send: Send, parts: Parts, trainer: TrainerLink,
        status: Callable[[str], dict[str, Any]], stop: Callable[[], None], run_dir: Path,
    ) -> None:
        self._send, self._parts, self._trainer = send, parts, trainer
        self._status, self._stop = status, stop
        self._gateway = parts.gateway(send)
        self._pace = Pace(parts.config, parts.buffer, parts.crediting.groups,
                          lambda: trainer.is_heard(parts.config.wire.dead_after_s))
        self._desk = Desk(parts, run_dir)
        self._dead_after_s = parts.config.wire.dead_after_s
        self.peers: dict[bytes, float] = {}
        """runners that said hello, and when they were heard last"""
        self._questions: dict[tuple[bytes, str], asyncio.Task[None]] = {}
        self._said: OrderedDict[tuple[bytes, str], Message] = OrderedDict()
        """newest replies, for questions that are sent again"""

    async def heard(self, peer: bytes, message: Message) -> bool:
        """Handle a runner's message; return False for a type that is not of this link."""
        if peer in self.peers or message.type in ("runner.hello", "runner.beat"):
            self.peers[peer] = time.monotonic()
        match message.type:
            case "runner.hello" | "runner.beat":
                pass
            case "error":
                log.warning("a runner says: %s", message.get("text"))
            case "turn.ask":
                self._gateway.ask(peer, message)
            case "turn.cancel":
                self._gateway.cancel(peer, message.id)
            case ("feedback" | "session.end" | "trace.open" | "trace.next" | "trace.end"
                  | "status" | "settings" | "rollback" | "look" | "pause" | "exclude"
                  | "quarantine" | "forget" | "export" | "budget" | "end"):
                self._begin(peer, message)
            case _:
                return False
        return True

    def _begin(self, peer: bytes, message: Message) -> None:
        if len(self._questions) >= MAX_QUESTIONS:
            raise WireError(f"{MAX_QUESTIONS} questions are in hand")
        key = (peer, message.id)
        if key not in self._questions:
            task = asyncio.create_task(self._reply(peer, message))
            self._questions[key] = task
            task.add_done_callback(lambda _: self._questions.pop(key, None))

    async def _reply(self, peer: bytes, message: Message) -> None:
        key = (peer, message.id)
        if message.type in LOOKS:
            await self._send(peer, await self._made(peer, message))
            return
        if key not in self._said:
            self._said[key] = await self._made(peer, message)
            while len(self._said) > MAX_QUESTIONS:
                self._said.popitem(last=False)
        await self._send(peer, self._said[key])

    async def _made(self, peer: bytes, message: Message) -> Message:
        """Return the reply to a question; a question that fails gets an `error` in it."""
        type = "trace.opened" if message.type == "trace.open" else "reply"
        try:
            fields = await self._answer(peer, message)
        except EngineError as error:
            fields = error_fields(error) | {"error": error.message}
        except (ClawError, TypeError, ValueError) as error:
            fields = {"error": str(error), "status": 400, "type": "invalid_request_error"}
        except Exception as error:  # one question's trouble must not end the others
            log.exception("%s failed", message.type)
            fields = {"error": f"claw failed: {error.__class__.__name__}", "status": 500}
        return Message(type, message.id, fields)

    async def _answer(self, peer: bytes, message: Message) -> dict[str, Any]:
        owner = str(message.get("owner") or "default")
        match message.type:
            case "feedback":
                return await self._feedback(message, owner)
            case "session.end":
                return self._gateway.end_session(str(message["session"]), owner)
            case "trace.open":
                await self._pace.wait(str(message.get("group") or ""))
                return self._parts.episodes.open(peer, message)
            case "trace.next":
                return await self._parts.episodes.next(peer, message)
            case "trace.end":
                return await self._parts.episodes.end(peer, message)
            case "rollback":
                adapter = str(message.get("adapter") or "default")
                return await self._trainer.roll_back(owner, adapter, int(message["to"]))
            case "settings":
                return {"config": settings.resolved(self._parts.config)}
            case type if type in QUESTIONS:
                return await self._desk.answer(type, message.fields, owner)
            case "end":
                self._stop()
                return {}
        return self._status(owner)

    async def _feedback(self, message: Message, owner: str) -> dict[str, Any]:
        target, value = str(message["target"]), message["value"]
        if isinstance(value, bool) or value not in (-1, 0, 1):
            raise WireError(f"feedback is 1, 0 or -1; found {value!r}")
        turn = self._parts.ledger.get(target.removeprefix(RESPONSE))
        if turn is None or turn.owner != owner:
            raise EngineError(404, f"no such turn or response: {target!r}", param="target",
                              code="turn_not_found")
        said = await self._parts.crediting.feedback(
            turn, value, str(message.get("text") or ""), str(message.get("edit") or ""))
        return {"turn_id": turn.id, "status": said}

    def silent_s(self) -> list[float]:
        """For how long each runner has said nothing."""
        return [round(time.monotonic() - seen, 1) for seen in self.peers.values()]

    async def tend(self) -> None:
        """Find runners that are gone; what they had in hand ends, and nothing else."""
        limit = time.monotonic() - self._dead_after_s
        for peer in [p for p, seen in self.peers.items() if seen < limit]:
            log.warning("a runner is silent; it counts as gone")
            del self.peers[peer]
            self._gateway.cancel_peer(peer)
            await self._parts.episodes.peer_gone(peer)
