"""How an answer is sent: what comes together goes out together, and a slow client holds it up."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from claw_env_personal.answers import Chunks
from claw_env_personal.requests import ChatRequest
from claw_env_personal.stream import KEEPALIVE, MAX_HEARD, EventStream
from starlette.requests import ClientDisconnect

from claw.sdk import Ask, EngineError, Event

WANTED = ChatRequest(Ask([]), True, False, False, 0, False)
START = Event("start", "turn_1", "trace_1")


def text(said: str) -> Event:
    return Event("text", "turn_1", text=said)


def done(said: str, finish: str = "stop") -> Event:
    return Event("done", "turn_1", message={"role": "assistant", "content": said},
                 finish_reason=finish)


class Client:
    """Reads one piece at a time, each when `reads` is set; leaves when `leaves` is set."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.reads, self.leaves = asyncio.Event(), asyncio.Event()
        self.reads.set()

    async def receive(self) -> dict[str, Any]:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await self.reads.wait()
            self.pieces.append(message["body"])

    def said(self) -> list[str]:
        """The text of each piece."""
        lines = [p.decode().split("\n\n") for p in self.pieces]
        return ["".join(_content(line) for line in piece) for piece in lines]


def _content(line: str) -> str:
    if not line.startswith("data: {"):
        return ""
    [choice] = json.loads(line[6:]).get("choices") or [{"delta": {}}]
    return str(choice["delta"].get("content") or "")


def serve(events: AsyncIterator[Event], client: Client, keepalive_s: float = 60.0) -> Any:
    stream = EventStream(events, Chunks(WANTED, "m"), keepalive_s=keepalive_s, stalled_s=60.0)
    return stream({"type": "http", "path": "/v1/chat/completions", "state": {}},
                  client.receive, client.send)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.001)


def test_what_came_together_goes_out_in_one_piece() -> None:
    async def run() -> None:
        client = Client()

        async def events() -> AsyncIterator[Event]:
            yield START
            yield text("a")
            await until(lambda: client.pieces)
            yield text("b")
            yield text("c")
            yield done("abc")

        await serve(events(), client)
        assert [said for said in client.said() if said] == ["a", "bc"]
        assert client.pieces[-1].endswith(b"data: [DONE]\n\n")
    asyncio.run(run())


def test_nothing_more_is_read_for_a_client_that_reads_nothing() -> None:
    async def run() -> None:
        client, given = Client(), []

        async def events() -> AsyncIterator[Event]:
            yield START
            for n in range(4 * MAX_HEARD):
                given.append(n)
                yield text("x")
            yield done("x" * 4 * MAX_HEARD)

        client.reads.clear()
        serving = asyncio.ensure_future(serve(events(), client))
        await until(lambda: len(given) >= MAX_HEARD)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(given) <= 2 * MAX_HEARD + 2
        client.reads.set()
        await serving
        assert "".join(client.said()) == "x" * 4 * MAX_HEARD
    asyncio.run(run())


@pytest.mark.parametrize("breaks", ["in the engine", "at the end"])
def test_what_came_before_an_error_is_sent_with_it(breaks: str) -> None:
    async def run() -> None:
        client = Client()

        async def events() -> AsyncIterator[Event]:
            yield START
            yield text("half")
            if breaks == "in the engine":
                raise EngineError(503, "gone", type="server_error")
            yield done("half", "error")

        await serve(events(), client)
        assert "".join(client.said()) == "half"
        assert b'"error":{"message":' in client.pieces[-1]
        assert b"[DONE]" not in b"".join(client.pieces)
    asyncio.run(run())


def test_a_silent_engine_is_bridged_by_comments_and_a_lively_one_is_not() -> None:
    async def run() -> None:
        client, gaps = Client(), []

        def num_comments() -> int:
            return client.pieces.count(KEEPALIVE)

        async def events() -> AsyncIterator[Event]:
            yield START
            for _ in range(12):
                since = time.monotonic()
                await asyncio.sleep(0.05)
                yield text("x")
                gaps.append(time.monotonic() - since)
            # unless the machine was too busy to be lively
            assert num_comments() == 0 or max(gaps) > 0.3
            before = num_comments()
            await until(lambda: num_comments() == before + 2)
            yield done("x" * 12)

        await serve(events(), client, keepalive_s=0.4)
        assert num_comments() >= 2 and client.pieces[-1].endswith(b"data: [DONE]\n\n")
    asyncio.run(run())


def test_a_client_that_leaves_ends_the_engines_work() -> None:
    async def run() -> None:
        client, ended = Client(), []

        async def events() -> AsyncIterator[Event]:
            try:
                yield START
                yield text("a")
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        serving = asyncio.ensure_future(serve(events(), client))
        await until(lambda: client.pieces)
        client.leaves.set()
        with pytest.raises(ClientDisconnect):
            await serving
        assert ended
    asyncio.run(run())
