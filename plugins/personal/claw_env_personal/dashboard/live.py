"""Updates while a page is open: server-sent events.

Owns: one watcher a person that asks the engine, however many pages are open; their events.
Does not own: what a row looks like (`pages`).
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from claw.sdk import Engine, EngineError

from .door import guarded, owner_of
from .pages import Pages

log = logging.getLogger(__name__)

EVERY_S = 1.0
MAX_PAGES = 64
"""open at once; one more is told to come back"""
MAX_BEHIND = 256
"""events that a slow page may be behind before its connection ends; it then comes back"""
QUIET_S = 15.0
"""of silence, after which a comment keeps the connection open"""


class Live:
    """Tells open pages which turns changed."""

    def __init__(self, engine: Engine, pages: Pages, every_s: float = EVERY_S) -> None:
        self._engine, self._pages, self._every_s = engine, pages, every_s
        self._open: dict[str, set[asyncio.Queue[str]]] = {}
        """pages by whose they are"""
        self._watchers: dict[str, asyncio.Task[None]] = {}

    async def events(self, request: Request) -> Response:
        """GET /events"""
        if sum(len(pages) for pages in self._open.values()) >= MAX_PAGES:
            raise EngineError(503, "Too many open pages.", retry_after_s=30)
        owner = owner_of(request)
        response = StreamingResponse(self._stream(owner), media_type="text/event-stream",
                                     headers={"x-accel-buffering": "no"})
        return guarded(response)

    async def _stream(self, owner: str) -> AsyncGenerator[str, None]:
        queue: asyncio.Queue[str] = asyncio.Queue(MAX_BEHIND)
        pages = self._open.setdefault(owner, set())
        pages.add(queue)
        if owner not in self._watchers:
            self._watchers[owner] = asyncio.create_task(self._watch(owner))
        try:
            yield "retry: 2000\n\n"
            while not queue.full():
                try:
                    yield await asyncio.wait_for(queue.get(), QUIET_S)
                except TimeoutError:
                    yield ": quiet\n\n"
        finally:
            pages.discard(queue)

    async def _watch(self, owner: str) -> None:
        """Ask for one person while they look."""
        try:
            await self._tell_changes(owner, self._open[owner])
        finally:
            del self._watchers[owner], self._open[owner]

    async def _tell_changes(self, owner: str, pages: set[asyncio.Queue[str]]) -> None:
        since, last = time.time(), ""
        while pages:
            try:
                changed = (await self._engine.look("turns", owner=owner, since=since,
                                                   main=True))["turns"]
                status = _status(await self._engine.status(owner=owner))
            except EngineError as error:
                log.info("the dashboard's watcher waits: %s", error.message)
                await asyncio.sleep(self._every_s)
                continue
            for turn in changed:
                since = max(since, float(turn["updated"]))
                _tell(pages, "turn", {"id": turn["id"], "html": self._pages.row(turn)})
            if (said := json.dumps(status)) != last:
                last = said
                _tell(pages, "status", status)
            await asyncio.sleep(self._every_s)


def _tell(pages: set[asyncio.Queue[str]], name: str, value: dict[str, Any]) -> None:
    event = f"event: {name}\ndata: {json.dumps(value)}\n\n"
    for queue in pages:
        if not queue.full():
            queue.put_nowait(event)


def _status(status: dict[str, Any]) -> dict[str, Any]:
    """What the head of a page shows."""
    trainer = status.get("trainer") or {}
    return {"version": status.get("served_version", status.get("version", 0)),
            "trainer": trainer.get("state", "none"), "step": trainer.get("step", 0),
            "turns": status.get("turns") or {}, "paused_until": status.get("paused_until") or 0}
