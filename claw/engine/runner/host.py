"""The runner process: one plugin, its HTTP app or its episodes, until the run ends.

Owns: start, the address, signals, the parent's death.
Does not own: what the app answers (the plugin), what episodes do (`episodes`).
"""

import asyncio
import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

from claw.config import RunConfig
from claw.engine import parent, pulse, wire
from claw.engine.people import People
from claw.engine.runner.engine import WireEngine
from claw.engine.runner.episodes import Episodes, plays
from claw.errors import UsageError
from claw.sdk import registry

log = logging.getLogger(__name__)

STOP_S = 20.0
"""for episodes to close their environments; the launcher waits longer than this"""


def run(
    config: RunConfig, *, actor: str, run_dir: Path, api_key: str, ready: Path | None,
    trace_hooks: bool = False, watches_parent: bool = True,
) -> None:
    """Host the run's plugin until SIGTERM, the actor's stop, or the end of the parent."""
    plugin = registry.load(config.plugin_name, trace_hooks=trace_hooks)
    if not plugin.has("claw_app") and not plays(plugin):
        raise UsageError(
            f"plugin {plugin.name!r} has nothing to run",
            allowed="claw_app, or claw_tasks with claw_env", do="implement one of them",
        )
    made = Host(config, plugin, actor=actor, people=People(run_dir, api_key), api_key=api_key,
                ready=ready, watches_parent=watches_parent)
    asyncio.run(made.run())


class Host:
    """One plugin in this process."""

    def __init__(
        self, config: RunConfig, plugin: registry.Plugin, *, actor: str, people: People,
        api_key: str, ready: Path | None, watches_parent: bool = True,
    ) -> None:
        self._watches_parent = watches_parent
        self._config, self._plugin, self._key, self._ready = config, plugin, api_key, ready
        self._people = people
        keys = wire.keys_of(config.wire.keys)
        self._engine = WireEngine(
            actor, plugin=plugin.name, keys=keys, deadline_s=config.worker.deadline_s,
            heartbeat_s=config.wire.heartbeat_s, dead_after_s=config.wire.dead_after_s,
        )
        self._end = asyncio.Event()

    async def run(self) -> None:
        """Work until something says that it is over."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end.set)
        work = self._serve() if self._plugin.has("claw_app") else self._play()
        watchers = [asyncio.create_task(w) for w in (self._end.wait(), self._stopped())]
        if self._watches_parent:
            watchers.append(asyncio.create_task(_orphaned(parent.pid())))
        try:
            await _until_any(asyncio.create_task(work), watchers)
        finally:
            if self._ready is not None:
                self._ready.unlink(missing_ok=True)
            await self._engine.close()

    async def _stopped(self) -> bool:
        return await self._engine.stopped.wait()

    async def _serve(self) -> None:
        from claw.engine.runner.http import Http  # uvicorn, for plugins with an app only

        serve = self._config.serve.model_dump() | {
            "people": self._people, "model": self._config.model,
        }
        settings = self._plugin.settings(self._config.plugin.get(self._plugin.name, {}))
        app = self._plugin.hook.claw_app(engine=self._engine, config=settings, serve=serve)
        http = Http(app, self._config.serve, self._key)
        self._engine.address = http.address
        await self._engine.open()
        await http.serve(on_ready=lambda: self._say_ready(http.address))

    async def _play(self) -> None:
        episodes = Episodes(self._engine, self._plugin, self._config)
        await self._engine.open()
        self._say_ready("")
        self._engine.num_episodes = lambda: episodes.num_running
        await episodes.forever(self._engine)

    def _say_ready(self, address: str) -> None:
        log.info("ready %s", address)
        if self._ready is None:
            return
        self._ready.parent.mkdir(parents=True, exist_ok=True)
        part = self._ready.with_name(self._ready.name + ".part")
        part.touch(mode=0o600)
        part.write_text(json.dumps({"address": address, "pid": os.getpid()}))
        part.replace(self._ready)  # a reader sees all of it or nothing


async def _until_any(work: "asyncio.Task[None]", watchers: list["asyncio.Task[Any]"]) -> None:
    """Return when the work or a watcher ends; then the work is cancelled and has STOP_S."""
    try:
        await asyncio.wait([work, *watchers], return_when=asyncio.FIRST_COMPLETED)
    finally:
        pulse.rest(pulse.LOOP)
        for task in (work, *watchers):
            task.cancel()
        done, late = await asyncio.wait([work], timeout=STOP_S)
    if late:
        log.warning("the plugin did not stop within %g s", STOP_S)
    for task in done:
        if not task.cancelled():
            task.result()


async def _orphaned(launcher: int) -> bool:
    """Return when the process that started this one has gone; it hears that the loop turns."""
    while os.getppid() == launcher:
        pulse.mark(pulse.LOOP)
        await asyncio.sleep(0.5)
    log.warning("the launcher is gone; stopping")
    return True
