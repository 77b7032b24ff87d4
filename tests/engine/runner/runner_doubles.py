"""A small actor for tests: a ROUTER that answers asks by a script and remembers the rest."""

import asyncio
from collections.abc import Callable
from typing import Any

import zmq
import zmq.asyncio

from claw.engine import wire
from claw.engine.wire import Message

Script = Callable[["FakeActor", Message], list[Message]]


def text_answer(message: Message, *words: str, turn_id: str = "turn_1") -> list[Message]:
    """Return the messages of a whole answer."""
    said = "".join(words)
    reply = {"role": "assistant", "content": said}
    return [
        start(message, turn_id),
        *(text(message, word) for word in words),
        Message("turn.done", message.id, {
            "turn_id": turn_id, "trace_id": "trace_1", "message": reply, "finish_reason": "stop",
            "usage": {"prompt_tokens": 3, "completion_tokens": len(words)}, "version": 7,
        }),
    ]


def start(message: Message, turn_id: str = "turn_1") -> Message:
    fields = {"turn_id": turn_id, "trace_id": "trace_1", "version": 7, "prompt_tokens": 3}
    return Message("turn.start", message.id, fields)


def text(message: Message, word: str) -> Message:
    token = {"id": 1, "token": word, "logprob": -0.1, "top": [[word, -0.1]]}
    return Message("turn.text", message.id, {"text": word, "tokens": [token]})


def error(message: Message, status: int, **rest: Any) -> Message:
    fields = {"status": status, "message": "refused", "type": "server_error"} | rest
    return Message("turn.error", message.id, fields)


class FakeActor:
    """`async with FakeActor(address, script)`; `script` returns the answers to a `turn.ask`."""

    sees = False
    """whether its model takes pictures"""

    def __init__(self, address: str, script: Script | None = None) -> None:
        self.address = address
        self.script: Script = script or (lambda _, m: text_answer(m, "hello", " there"))
        self.seen: list[Message] = []
        self.peers: list[bytes] = []
        self.num_traces = 0

    async def __aenter__(self) -> "FakeActor":
        self._context = zmq.asyncio.Context()
        self._socket = wire.open_socket(self._context, zmq.ROUTER, self.address, bind=True)
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close(linger=0)
        self._context.term()

    def of(self, type: str) -> list[Message]:
        """Return what came of one type, in order."""
        return [m for m in self.seen if m.type == type]

    async def send(self, message: Message) -> None:
        await self._socket.send_multipart([self.peers[-1], *wire.encode(message)])

    async def send_raw(self, *frames: bytes) -> None:
        await self._socket.send_multipart([self.peers[-1], *frames])

    async def until(self, type: str, count: int = 1, seconds: float = 10.0) -> list[Message]:
        """Wait until `count` messages of a type have come."""
        async with asyncio.timeout(seconds):
            while len(self.of(type)) < count:
                await asyncio.sleep(0.01)
        return self.of(type)

    async def _read(self) -> None:
        while True:
            peer, *frames = await self._socket.recv_multipart()
            message = wire.decode(frames)
            self.seen.append(message)
            if peer in self.peers:
                self.peers.remove(peer)
            self.peers.append(peer)
            for answer in self._answers(message):
                await self._socket.send_multipart([peer, *wire.encode(answer)])

    def _answers(self, message: Message) -> list[Message]:
        if message.type == "turn.ask":
            return self.script(self, message)
        if message.type == "trace.open":
            self.num_traces += 1
            return [Message("trace.opened", message.id, {"trace_id": f"trace_{self.num_traces}"})]
        if message.type == "status":
            fields = {"workers": ["w"], "context": 128, "takes_pictures": self.sees}
            return [Message("reply", message.id, fields)]
        if message.type == "feedback" and message["target"] == "turn_none":
            refused = {"status": 404, "message": "no such turn", "code": "turn_not_found"}
            return [Message("reply", message.id, {"error": refused})]
        if message.type in ("feedback", "session.end", "trace.next", "trace.end"):
            return [Message("reply", message.id, {"ok": True})]
        return []
