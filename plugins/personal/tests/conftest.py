"""Fixtures of the plugin's tests: the endpoint in process, and a real server on loopback."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from claw_env_personal.app import build
from claw_env_personal.settings import PersonalConfig

from claw.sdk import Person
from claw.sdk.doubles import ScriptedEngine, ScriptedPeople

KEY = "key-of-the-tests"
SERVE = {"model_name": "claw-policy", "model": "smollm2-135m", "max_body_mb": 8,
         "people": ScriptedPeople({KEY: Person()})}


class Endpoint:
    """The app around a scripted engine, asked in process."""

    def __init__(self, engine: Any, settings: dict[str, Any], serve: dict[str, Any]) -> None:
        self.engine = engine
        self.app = build(engine, PersonalConfig(**settings), SERVE | serve)

    def ask(self, method: str, path: str, *, auth: bool = True, **rest: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {KEY}"} if auth else {}
        headers |= rest.pop("headers", {})

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
                return await client.request(method, path, headers=headers, **rest)

        return asyncio.run(asyncio.wait_for(send(), 30))

    def chat(self, messages: Any = None, **rest: Any) -> httpx.Response:
        headers = rest.pop("headers", {})
        if messages is None:
            messages = [{"role": "user", "content": "hello"}]
        body = {"model": "claw-policy", "messages": messages} | rest
        return self.ask("POST", "/v1/chat/completions", json=body, headers=headers)

    def raw(self, body: bytes) -> httpx.Response:
        return self.ask("POST", "/v1/chat/completions", content=body)


@pytest.fixture
def endpoint() -> Callable[..., Endpoint]:
    def make(
        *lines: Any, engine: Any = None, settings: dict[str, Any] | None = None, **serve: Any
    ) -> Endpoint:
        return Endpoint(engine or ScriptedEngine(*lines), settings or {}, serve)

    return make


@contextlib.contextmanager
def _served(app: Any) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)  # callers may connect before the loop runs
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[str, Any]]]:
    """Serve a scripted engine on loopback; returns (address, engine)."""
    with contextlib.ExitStack() as stack:
        def start(
            *lines: Any, engine: Any = None, settings: dict[str, Any] | None = None, **serve: Any
        ) -> tuple[str, Any]:
            made = Endpoint(engine or ScriptedEngine(*lines), settings or {}, serve)
            return stack.enter_context(_served(made.app)), made.engine

        yield start
