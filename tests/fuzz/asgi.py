"""Asks an ASGI application in process; headers and bodies may be those that no client sends."""

import asyncio
from collections.abc import Sequence
from typing import Any

PATIENCE_S = 60.0


class Answered:
    """What came back."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""


def ask(
    loop: asyncio.AbstractEventLoop, app: Any, method: str, path: str,
    headers: Sequence[tuple[bytes, bytes]] = (), body: Sequence[bytes] = (b"",), query: bytes = b"",
) -> Answered:
    """Return the answer; raise what the application raises, and when it hangs."""
    return loop.run_until_complete(
        asyncio.wait_for(_ask(app, method, path, headers, body, query), PATIENCE_S))


async def _ask(
    app: Any, method: str, path: str, headers: Sequence[tuple[bytes, bytes]],
    body: Sequence[bytes], query: bytes,
) -> Answered:
    answered, pieces = Answered(), list(body)
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if pieces:
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            assert not answered.status, "an answer begins once"
            answered.status, answered.headers = message["status"], dict(message["headers"])
        else:
            assert answered.status, "an answer begins with its status"
            answered.body += message.get("body", b"")

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode("utf-8", "replace"),
        "query_string": query, "root_path": "", "headers": list(headers),
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }
    try:
        await app(scope, receive, send)
    finally:
        gone.set()
    return answered
