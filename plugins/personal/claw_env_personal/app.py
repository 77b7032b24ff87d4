"""The routes of the endpoint.

Owns: which path does what.
Does not own: shapes (`answers`, `errors`), checks (`requests`), sending (`stream`).
"""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from claw.sdk import Ask, Engine, EngineError, Event

from .answers import Chunks, turn_id_of
from .anthropic_answer import MessageEvents
from .anthropic_request import from_anthropic
from .body import read_object
from .dashboard.routes import routes as dashboard
from .errors import Json, bad, on_bug, on_engine_error, on_http_error
from .guard import Guard, for_scope
from .metrics import PATH, Metrics
from .pictures import asked, first_place
from .pieces import read
from .requests import ChatRequest, chat_request, check_model
from .responses_answer import ResponseEvents
from .responses_request import from_responses
from .sessions import checked_id
from .settings import PersonalConfig
from .stream import EventStream, Writer, unless_gone

log = logging.getLogger(__name__)


def build(engine: Engine, settings: PersonalConfig, serve: dict[str, Any]) -> ASGIApp:
    """Return the application. `serve` holds model_name, model, people and max_body_mb."""
    routes, people = Routes(engine, settings, serve), serve["people"]
    app = Starlette(
        routes=[*routes.table(), *dashboard(engine, people)],
        exception_handlers={
            EngineError: on_engine_error, HTTPException: on_http_error, Exception: on_bug,
        },
    )
    app.router.redirect_slashes = False  # a redirect is not the error shape
    guarded: ASGIApp = Guard(app, people, routes.metrics.count)
    if not settings.cors_origin:
        return guarded
    return CORSMiddleware(
        guarded, allow_origins=[settings.cors_origin], allow_headers=["*"],
        allow_methods=["GET", "POST", "DELETE"], expose_headers=["x-request-id"],
    )


class Routes:
    """The handlers, around one engine."""

    def __init__(self, engine: Engine, settings: PersonalConfig, serve: dict[str, Any]) -> None:
        self._engine, self._settings = engine, settings
        self.metrics = Metrics(engine)
        names = (serve.get("model_name") or "claw-policy", serve.get("model"))
        self._models = list(dict.fromkeys(str(name) for name in names if name))
        self._max_bytes = int(serve.get("max_body_mb", 64)) * 2**20
        self._began = int(time.time())

    def table(self) -> list[Route]:
        """Return path by path what is answered."""
        table = [
            Route("/v1/chat/completions", for_scope("chat", self.chat), methods=["POST"]),
            Route("/v1/responses", for_scope("chat", self.responses), methods=["POST"]),
            Route("/v1/messages", for_scope("chat", self.messages), methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/feedback", for_scope("feedback", self.feedback), methods=["POST"]),
            Route("/v1/sessions/{session:path}", for_scope("chat", self.end_session),
                  methods=["DELETE"]),
            Route("/v1/status", self.status),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route(PATH, self.metrics.page),
        ]
        self.metrics.know(table)
        return table

    # --- talking -----------------------------------------------------------------------------

    async def chat(self, request: Request) -> Any:
        """POST /v1/chat/completions"""
        body = await read_object(request, self._max_bytes)
        wanted = chat_request(body, request.headers, self._models)
        return await self._answer(request, wanted, Chunks(wanted, self._name(body)))

    async def responses(self, request: Request) -> Any:
        """POST /v1/responses"""
        body = await read_object(request, self._max_bytes)
        wanted = chat_request(from_responses(body), request.headers, self._models)
        return await self._answer(request, wanted, ResponseEvents(body, self._name(body)))

    async def messages(self, request: Request) -> Any:
        """POST /v1/messages"""
        body = await read_object(request, self._max_bytes)
        wanted = chat_request(from_anthropic(body), request.headers, self._models)
        return await self._answer(request, wanted, MessageEvents(self._name(body)))

    def _name(self, body: dict[str, Any]) -> str:
        return str(body.get("model") or self._models[0])

    async def _answer(self, request: Request, wanted: ChatRequest, writer: Writer) -> Any:
        events = self._events(wanted, request.state.request_id, _owner(request))
        if wanted.stream:
            return EventStream(
                events, writer, keepalive_s=self._settings.keepalive_s,
                stalled_s=self._settings.stalled_s,
            )
        return Json(await unless_gone(request.receive, self._whole(events, writer)))

    async def _whole(
        self, events: AsyncGenerator[Event, None], writer: Writer
    ) -> dict[str, Any]:
        async with aclosing(events):
            return writer.whole(*await read(events))

    async def _events(
        self, wanted: ChatRequest, request_id: str, owner: str
    ) -> AsyncGenerator[Event, None]:
        async with aclosing(self._ask(replace(wanted.ask, owner=owner))) as events:
            async for event in events:
                if event.type == "start":
                    log.info("%s is turn %s of %s", request_id, event.turn_id, event.trace_id)
                yield event
        if wanted.ends_session:
            await self._engine.end_session(wanted.ask.session, owner=owner)

    def _ask(self, ask: Ask) -> Any:
        events = asked(self._engine, ask) if first_place(ask.messages) else self._engine.ask(ask)
        return self.metrics.watch(ask.owner, events)

    async def feedback(self, request: Request) -> Response:
        """POST /v1/feedback: {"id": turn or response id, "value": 1 or -1, optional text, edit}"""
        body = await read_object(request, self._max_bytes)
        target, value = body.get("id"), body.get("value")
        text, edit = body.get("text") or "", body.get("edit") or ""
        if not isinstance(target, str) or not turn_id_of(target):
            raise bad("id must be a response id or a turn id.", "id")
        if isinstance(value, bool) or value not in (1, -1):
            raise bad("value must be 1 or -1.", "value")
        if not isinstance(text, str):
            raise bad("text must be a string.", "text")
        if not isinstance(edit, str):
            raise bad("edit must be a string: the reply as it should have been.", "edit")
        answer = await self._engine.feedback(turn_id_of(target), int(value), text, edit,
                                             owner=_owner(request))
        return Json({"object": "feedback", "id": target, "value": int(value)} | answer)

    async def end_session(self, request: Request) -> Response:
        """DELETE /v1/sessions/{id}: the conversation is over; its last turn waits no longer."""
        session = checked_id(request.path_params["session"], "session id")
        await self._engine.end_session(session, owner=_owner(request))
        return Json({"object": "session", "id": session, "ended": True})

    # --- looking -----------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        """GET /v1/models"""
        context = await self._context()
        return Json({"object": "list", "data": [self._model(n, context) for n in self._models]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{id}"""
        name = request.path_params["name"]
        check_model(name, self._models)
        return Json(self._model(name, await self._context()))

    def _model(self, name: str, context: int | None) -> dict[str, Any]:
        known = {} if context is None else {"max_model_len": context}
        return {"id": name, "object": "model", "created": self._began, "owned_by": "claw"} | known

    async def _context(self) -> int | None:
        """The list of models is also asked while nothing is ready; then the length is unknown."""
        try:
            context = (await self._engine.status()).get("context")
        except EngineError:
            return None
        return context if isinstance(context, int) else None

    async def status(self, request: Request) -> Response:
        """GET /v1/status"""
        return Json(await self._engine.status(owner=_owner(request)))

    async def health(self, request: Request) -> Response:
        """GET /health: the process lives"""
        return Json({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """GET /ready: 200 only when a request would be answered now"""
        if not (await self._engine.status()).get("workers"):
            raise EngineError(
                503, "No rollout worker is ready.", type="server_error",
                code="engine_unavailable", retry_after_s=2,
            )
        return Json({"status": "ready"})


def _owner(request: Request) -> str:
    """Whose conversations and adapter a request is about."""
    return str(request.state.person.name)
