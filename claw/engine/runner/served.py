"""`claw env host --listen`: a plugin's environments, offered over the wire.

Owns: environments by id, their judges and tasks, what is done once although it was asked twice.
Does not own: the plugin's side of the other end (`remote`), episodes (the runner over there).

The other end is a runner that trusts this process with nothing but its environments: it sends
tasks and replies, and gets messages and verdicts. Nothing here can reach its actor.
"""

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import zmq
import zmq.asyncio

from claw.engine import process, wire
from claw.engine.runner.judges import label
from claw.engine.wire import Message
from claw.errors import BoundaryError, ClawError, WireError
from claw.records import Task, Trace, new_id
from claw.sdk import Case, EnvTurn, hooks
from claw.sdk.lane import Lane
from claw.sdk.registry import Plugin

log = logging.getLogger(__name__)

MAX_ENVS = 1024
MAX_REQUESTS = 4096
"""in hand at once"""
MAX_SAID = 1024
"""newest answers, for requests that are sent again"""
MAX_CURSORS = 64
"""open readings of tasks; the oldest is forgotten"""
MAX_PAGE = 64
CALL_S = 1800.0
"""longest call of plugin code"""
CLOSE_S = 60.0


@dataclass(eq=False)
class _Env:
    env: Any
    lane: Lane
    peer: bytes
    gold: Any = None
    """the policy that `claw_gold` returned, where it depends on what is seen"""


@dataclass(eq=False)
class _Cursor:
    tasks: Iterator[Task]
    lane: Lane


@dataclass(eq=False)
class Served:
    """`await Served(plugin, address).run()` until it is cancelled; closes what it made."""

    plugin: Plugin
    address: str
    keys: wire.Keys | None = None
    dead_after_s: float = 60.0
    _envs: dict[str, _Env] = field(default_factory=dict)
    _cursors: OrderedDict[str, _Cursor] = field(default_factory=OrderedDict)
    _seen: dict[bytes, float] = field(default_factory=dict)
    _tasks: dict[tuple[bytes, str], "asyncio.Task[None]"] = field(default_factory=dict)
    _said: OrderedDict[tuple[bytes, str], Message] = field(default_factory=OrderedDict)
    _settings: dict[str, Any] = field(default_factory=dict)

    async def run(self) -> None:
        """Listen until cancelled."""
        context = zmq.asyncio.Context()
        self._socket = wire.open_socket(context, zmq.ROUTER, self.address, bind=True,
                                        keys=self.keys)
        tending = asyncio.create_task(self._tend())
        try:
            while True:
                peer, *frames = await self._socket.recv_multipart()
                await self._heard(peer, frames)
        finally:
            tending.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(tending, *self._tasks.values(), return_exceptions=True)
            for id in list(self._envs):
                await self._close(id)
            self._socket.close(0)
            context.term()

    async def _heard(self, peer: bytes, frames: list[bytes]) -> None:
        try:
            message = wire.decode(frames)
        except WireError as error:
            log.warning("garbage: %s", error)
            return
        self._seen[peer] = time.monotonic()
        key = (peer, message.id)
        if message.type in ("remote.hello", "remote.beat") or key in self._tasks:
            return
        if len(self._tasks) >= MAX_REQUESTS:
            await self._send(peer, _refused(message, f"{MAX_REQUESTS} requests are in hand"))
            return
        task = asyncio.create_task(self._reply(peer, message))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _reply(self, peer: bytes, message: Message) -> None:
        key = (peer, message.id)
        if key not in self._said:
            self._said[key] = await self._made(peer, message)
            while len(self._said) > MAX_SAID:
                self._said.popitem(last=False)
        await self._send(peer, self._said[key])

    async def _send(self, peer: bytes, message: Message) -> None:
        try:
            frames = wire.encode(message)
        except (WireError, ValueError, OverflowError) as error:
            frames = wire.encode(_refused(message, f"the answer cannot travel: {error}"))
        try:
            await self._socket.send_multipart([peer, *frames], zmq.DONTWAIT)
        except zmq.ZMQError as error:
            log.warning("%s is not sent: %s", message.type, error)

    async def _made(self, peer: bytes, message: Message) -> Message:
        """What fails here is an answer too: which kind of failure, in words."""
        try:
            return Message("reply", message.id, await self._answer(peer, message))
        except BoundaryError as error:
            return _refused(message, f"{type(error.cause).__name__}: {error.cause}",
                            where=str(error.where))
        except ClawError as error:
            return _refused(message, str(error), kind="usage")
        except Exception as error:  # plugin code may raise anything; it is told where it is used
            log.warning("%s: %r", message.type, error)
            return _refused(message, f"{type(error).__name__}: {error}")

    async def _answer(self, peer: bytes, message: Message) -> dict[str, Any]:
        match message.type:
            case "describe":
                return self._describe(message)
            case "tasks":
                return await self._page(message)
            case "env.make":
                return await self._make(peer, message)
            case "env.start" | "env.reply":
                return await self._turn(peer, message)
            case "env.shown":
                env = self._env(str(message["env"]))
                shown = await env.lane.call(env.env.shown, message["messages"], deadline_s=CALL_S)
                return {"messages": list(shown)}
            case "env.close":
                await self._close(str(message["env"]))
                return {}
            case "gold" | "gold.next":
                return await self._gold(message)
            case "judge":
                return await self._judge(message)
            case "trace":
                self.plugin.hook.claw_on_trace(trace=wire.read_record(message, Trace))
                return {}
            case "status":
                return {"envs": len(self._envs)}
        raise WireError(f"no request of type {message.type!r} is known here")

    # --- the plugin --------------------------------------------------------------------------

    def _config(self, message: Message) -> Any:
        """The other end's settings for this plugin, checked by the plugin's own model."""
        values = message.get("settings") or {}
        key = json.dumps(values, sort_keys=True)
        if key not in self._settings:
            if len(self._settings) >= MAX_CURSORS:
                self._settings.clear()
            self._settings[key] = self.plugin.settings(values)
        return self._settings[key]

    def _describe(self, message: Message) -> dict[str, Any]:
        made = self.plugin.hook.claw_judges(config=self._config(message))
        return {
            "plugin": self.plugin.name, "version": process.version(),
            "hooks": [h.__name__ for h in hooks.HOOKS if self.plugin.has(h.__name__)],
            "judges": [{"name": judge.name, "is_checker": label(judge) != judge.name}
                       for part in made for judge in part or ()],
        }

    async def _page(self, message: Message) -> dict[str, Any]:
        """The next tasks of a reading; the first request opens it."""
        id = str(message.get("cursor") or "")
        if not id:
            config, split = self._config(message), str(message["split"])
            lane, id = Lane("tasks"), new_id("cursor")
            tasks = await lane.call(lambda: iter(
                self.plugin.hook.claw_tasks(config=config, split=split) or ()
            ), deadline_s=CALL_S)
            self._cursors[id] = _Cursor(tasks, lane)
            while len(self._cursors) > MAX_CURSORS:
                self._cursors.popitem(last=False)[1].lane.close()
        if id not in self._cursors:
            raise ClawError("this reading of tasks is not known here", found=id,
                            do="begin again; the host was restarted")
        cursor = self._cursors[id]
        count = min(int(message.get("count") or 1), MAX_PAGE)
        page = await cursor.lane.call(lambda: list(islice(cursor.tasks, count)),
                                      deadline_s=CALL_S)
        if len(page) < count:
            self._cursors.pop(id).lane.close()
        return {"cursor": id, "tasks": [wire.pack(task)[0] for task in page],
                "is_over": len(page) < count}

    async def _make(self, peer: bytes, message: Message) -> dict[str, Any]:
        if len(self._envs) >= MAX_ENVS:
            raise ClawError(f"{MAX_ENVS} environments are open here")
        task, config = wire.read_record(message, Task), self._config(message)
        lane = Lane(f"env-{task.id}")
        try:
            env = await lane.call(lambda: self.plugin.hook.claw_env(task=task, config=config),
                                  deadline_s=CALL_S)
            if env is None:
                raise ValueError("claw_env returned no environment")
        except BaseException:
            lane.close()
            raise
        id = new_id("env")
        self._envs[id] = _Env(env, lane, peer)
        return {"env": id, "tools": _tools(env), "has_shown": hasattr(env, "shown"),
                "has_pictures": hasattr(env, "takes_pictures")}

    async def _turn(self, peer: bytes, message: Message) -> dict[str, Any]:
        held = self._env(str(message["env"]))
        held.peer = peer
        if message.type == "env.start":
            if hasattr(held.env, "takes_pictures"):
                held.env.takes_pictures = bool(message.get("takes_pictures"))
            said = await held.lane.call(held.env.start, deadline_s=CALL_S)
        else:
            turn = wire.read_record(message, EnvTurn)
            said = await held.lane.call(held.env.reply, turn, deadline_s=CALL_S)
            if said is not None and not isinstance(said, list | tuple):
                raise TypeError(f"reply() returned {type(said).__name__}, not messages")
        messages = None if said is None else list(said)
        return {"messages": messages, "tools": _tools(held.env)}

    async def _gold(self, message: Message) -> dict[str, Any]:
        """How the gold solution plays an environment's task: replies, or a policy kept here."""
        held = self._env(str(message["env"]))
        if message.type == "gold.next":
            said = await held.lane.call(held.gold, message["messages"], deadline_s=CALL_S)
            return {"said": said}
        task, config = wire.read_record(message, Task), self._config(message)
        gold = await held.lane.call(lambda: self.plugin.hook.claw_gold(
            task=task, env=held.env, config=config), deadline_s=CALL_S)
        if gold is None or not callable(gold):
            return {"replies": None if gold is None else list(gold), "is_policy": False}
        held.gold = gold
        return {"replies": None, "is_policy": True}

    def _env(self, id: str) -> _Env:
        if id not in self._envs:
            raise ClawError("no such environment here", found=id,
                            do="begin again; the host was restarted or took its runner for dead")
        return self._envs[id]

    async def _judge(self, message: Message) -> dict[str, Any]:
        made = self.plugin.hook.claw_judges(config=self._config(message))
        known = {judge.name: judge for part in made for judge in part or ()}
        name = str(message["name"])
        if name not in known:
            raise ClawError(f"no judge {name!r} here", allowed=", ".join(known))
        case = wire.read_record(message, Case)
        if message.get("env"):
            metadata = case.metadata | {"env": self._env(str(message["env"])).env}
            case = replace(case, metadata=metadata)
        async with asyncio.timeout(CALL_S):
            return {"record": wire.pack(await known[name].judge(case))[0]}

    # --- ends --------------------------------------------------------------------------------

    async def _close(self, id: str) -> None:
        """Close once; a second time finds nothing and is fine."""
        held = self._envs.pop(id, None)
        if held is None:
            return
        lane = Lane("env-close") if held.lane.is_busy else held.lane
        try:
            await lane.call(held.env.close, deadline_s=CLOSE_S)
        except Exception as error:  # an environment that does not close takes nothing with it
            log.warning("close() of %s failed: %r", id, error)
        finally:
            lane.close()
            held.lane.close()

    async def _tend(self) -> None:
        """A runner that is silent is gone: its environments hold what others could use."""
        while True:
            await asyncio.sleep(min(1.0, self.dead_after_s / 4))
            limit = time.monotonic() - self.dead_after_s
            gone = {peer for peer, seen in self._seen.items() if seen < limit}
            for peer in gone:
                del self._seen[peer]
            for id in [id for id, held in self._envs.items() if held.peer in gone]:
                log.warning("the runner of %s is silent; it is closed", id)
                await self._close(id)


def _tools(env: Any) -> list[Any]:
    return list(getattr(env, "tools", None) or ())


def _refused(message: Message, text: str, *, where: str = "", kind: str = "env") -> Message:
    return Message("reply", message.id, {"failure": text[:4000], "kind": kind, "where": where})
