"""Whatever a client sends to the endpoint, it is answered, and never by a failure of ours.

The endpoint is the whole application, in process; behind it is what a request meets on its way to a
worker: it travels over the wire, is checked and placed by the actor's parts, and made a prompt.
"""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from asgi import Answered, ask
from claw_env_personal.app import build
from claw_env_personal.settings import PersonalConfig
from some_json import changed, cut, deep, one_of, text, value, written
from tried import Tried

from claw.engine import wire
from claw.engine.actor.parts import Parts
from claw.engine.runner.link import travelling
from claw.sdk import Ask, EngineError, Event, Person
from claw.sdk.doubles import Line, ScriptedEngine, ScriptedPeople

sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "actor"))
from actor_doubles import WITH_TOOLS, make_model, run_config

KEY = "key-of-the-tests"
CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{\"p\": 1}"}}
PARAMETERS = {"type": "object", "properties": {"p": {"type": "integer", "maximum": 9}}}
FUNCTION = {"name": "ls", "description": "lists", "parameters": PARAMETERS}
CHATS = (
    {"model": "claw-policy", "messages": [{"role": "user", "content": "hello"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"},
                  {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "call_1", "content": "bin"},
                  {"role": "user", "content": [{"type": "text", "text": "thanks"}]}],
     "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "auto",
     "stream": True, "stream_options": {"include_usage": True}, "user": "anna"},
    {"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "top_p": 0.9, "top_k": 3,
     "seed": 1, "max_tokens": 5, "max_completion_tokens": 9, "stop": ["a"], "logprobs": True,
     "top_logprobs": 2, "n": 1, "presence_penalty": 0, "session_id": "s", "turn_type": "main",
     "session_done": True, "prompt_cache_key": "a:1", "response_format": {"type": "text"}},
)
RESPONSES = (
    {"input": "hello", "model": "claw-policy"},
    {"instructions": "Be brief.", "stream": True, "max_output_tokens": 9, "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "content": []},
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "bin"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "bin"}, {"type": "refusal", "refusal": "no"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}],
     "tools": [{"type": "function", **FUNCTION}], "text": {"format": {"type": "text"}}},
)
MESSAGES = (
    {"model": "claw-policy", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]},
    {"max_tokens": 9, "stream": True, "system": [{"type": "text", "text": "Be brief."}],
     "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "so", "signature": ""}, {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c", "name": "ls", "input": {"p": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "b"}]},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                         "data": "eA=="}}]}],
     "tools": [{"name": "ls", "input_schema": PARAMETERS}], "tool_choice": {"type": "auto"},
     "stop_sequences": ["a"], "metadata": {"user_id": "anna"}, "top_k": 3},
)
FEEDBACK = ({"id": "chatcmpl-turn_1", "value": 1, "text": "good", "edit": "better"},
            {"id": "turn_1", "value": -1})
BODIES = {"/v1/chat/completions": CHATS, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES,
          "/v1/feedback": FEEDBACK}
ARGUMENTS = ("", "{\"p\": 1}", "{\"p\": [1", "{\"p\": NaN}", "{\"p\": 1e999}", "[" * 3000, "[1]",
             "\udc9d", "{\"p\": " + "[" * 900 + "]" * 900 + "}")
"""of calls as a policy may write them"""
HEADERS = (b"content-type", b"content-length", b"content-encoding", b"transfer-encoding", b"accept",
           b"x-session-id", b"session_id", b"x-session-affinity", b"x-parent-session-id",
           b"x-turn-type", b"x-request-id",
           b"cookie", b"origin", b"host", b"sec-fetch-site", b"authorization", b"x-api-key",
           b"expect", b"range", b"if-none-match", b"x-forwarded-for")


class Way(ScriptedEngine):
    """Takes a request the way that it takes to a worker, and answers it by script."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(script=lambda ask: Line(
            text="fine \ud83c <b>", reasoning="so",
            calls=tuple(("ls", a) for a in ARGUMENTS) if ask.tools else ()))
        self._parts = parts

    async def ask(self, ask: Ask) -> AsyncIterator[Event]:
        frames = travelling(wire.record_message("turn.ask", ask, "1", trace_id=""))
        talk = self._parts.talk
        came = wire.read_record(wire.decode([bytes(f) for f in frames]), Ask)
        came = await talk.checked(came)
        place, kind, rule, sampling = talk.find(came, "")
        if place.retry_of is None:
            await talk.open(came, place, kind, rule, sampling, 2048)
        self.asks.clear()
        async for event in super().ask(ask):
            yield event


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


@pytest.fixture
def app(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    logging.getLogger("claw_env_personal").setLevel(logging.ERROR)

    async def nobody(peer: bytes, message: wire.Message) -> None:
        raise AssertionError("no worker is asked")

    model = make_model(tmp_path / "model", WITH_TOOLS)
    parts = Parts(run_config(), model, tmp_path, nobody, resume=False)
    serve = {"model_name": "claw-policy", "model": "smollm2-135m", "max_body_mb": 1,
             "people": ScriptedPeople({KEY: Person()})}
    yield build(Way(parts), PersonalConfig(), serve)
    loop.run_until_complete(parts.stop()) if hasattr(parts, "open_gateway") else None
    parts.journal.close()


def check_answer(answered: Answered) -> None:
    """Not our failure, and of the shape that clients read."""
    assert 200 <= answered.status < 500, f"{answered.status}: {answered.body[:300]!r}"
    assert b"x-request-id" in answered.headers
    kind = answered.headers.get(b"content-type", b"")
    if kind.startswith(b"application/json"):
        said = json.loads(answered.body)
        if answered.status >= 400:
            assert isinstance(said["error"]["message"], str) and len(answered.body) < 20_000
    elif kind.startswith(b"text/event-stream") and b"server_error" in answered.body:
        raise AssertionError(f"a stream broke off: {answered.body[-300:]!r}")


def key() -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {KEY}".encode()


def test_bodies_with_odd_parts_are_answered_or_refused(
    tried: Tried, app: Any, loop: asyncio.AbstractEventLoop
) -> None:
    def make(random: Random) -> tuple[str, bytes]:
        path = random.choice(list(BODIES))
        return path, written(changed(random, BODIES[path]))

    def check(asked: tuple[str, bytes]) -> None:
        check_answer(ask(loop, app, "POST", asked[0], [key()], [asked[1]]))

    tried(check, make, 400)


def test_bodies_that_are_no_json_objects_are_refused(
    tried: Tried, app: Any, loop: asyncio.AbstractEventLoop
) -> None:
    def make(random: Random) -> tuple[str, bytes]:
        path = random.choice(list(BODIES))
        whole = written(random.choice(BODIES[path]))
        return path, one_of(random, lambda r: cut(r, whole), lambda r: written(value(r)),
                            lambda r: written(deep(r)), lambda r: r.randbytes(r.randrange(30)),
                            lambda r: whole.decode().encode(r.choice(("utf-16", "utf-32"))))

    def check(asked: tuple[str, bytes]) -> None:
        path, body = asked
        pieces = [body[:7], body[7:], b""]
        check_answer(ask(loop, app, "POST", path, [key()], pieces))

    tried(check, make, 150)


def test_odd_headers_methods_and_paths_are_answered(
    tried: Tried, app: Any, loop: asyncio.AbstractEventLoop
) -> None:
    paths = [*BODIES, "/v1/models", "/v1/models/", "/v1/sessions/", "/v1/status", "/v1", "/health",
             "/ready", "/metrics", "/", "/login", "/turns", "/turns/", "/conversations/",
             "/versions", "/people", "/static/", "/events/"]

    def make(random: Random) -> tuple[Any, ...]:
        path = random.choice(paths)
        if random.random() < 0.5:
            path += text(random)
        odd = [(random.choice(HEADERS), text(random).encode("utf-8", "surrogatepass"))
               for _ in range(random.randrange(4))]
        own = [key()] if random.random() < 0.9 else []
        method = random.choice(("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "BREW"))
        body = written(random.choice(CHATS)) if random.random() < 0.6 else b"a=1&token=%ff"
        return method, path, [*own, *odd], [body], text(random).encode("utf-8", "surrogatepass")

    def check(asked: tuple[Any, ...]) -> None:
        answered = ask(loop, app, *asked)
        assert 200 <= answered.status < 500, f"{answered.status}: {answered.body[:300]!r}"

    tried(check, make, 200)


@pytest.mark.parametrize("status", [400, 404, 409, 429, 499])
def test_what_the_engine_refuses_keeps_its_status(
    status: int, loop: asyncio.AbstractEventLoop
) -> None:
    """The targets above would see a failure: an engine that refuses comes through as it is."""
    engine = ScriptedEngine(Line(error=EngineError(status, "no")))
    app = build(engine, PersonalConfig(), {"people": ScriptedPeople({KEY: Person()})})
    answered = ask(loop, app, "POST", "/v1/chat/completions", [key()], [written(CHATS[0])])
    assert answered.status == status
