"""The plugin `remote`: the tasks, environments and judges of a `claw env host --listen`.

    claw env host --plugin NAME --listen tcp://0.0.0.0:7000 --keys KEYS         there
    claw train --plugin remote plugin.remote.address=tcp://HOST:7000 ...        here

Owns: the hooks whose work is done at the other end, and what its failures mean.
Does not own: the other end (`served`), the socket (`link`).

A host that is away, or knows an environment no more, is a failure of the infrastructure: the
attempt is played again. What the plugin's own code raised there is a failure of the environment.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from claw.engine import wire
from claw.engine.runner.link import Link
from claw.errors import Boundary, BoundaryError, ClawError, UsageError, WireError
from claw.records import Message, Task, Trace, new_id
from claw.sdk import Case, EngineError, EnvTurn, Verdict, hookimpl
from claw.sdk.hooks import Gold, Said

T = TypeVar("T")
PAGE = 16
"""tasks that are fetched at once"""
CALL_S = 1830.0
"""longest wait for one call; the host has a shorter one"""
CANNOT_TRAVEL = ("claw_app", "claw_credit", "claw_loss")


class RemoteConfig(BaseModel):
    """Where the environments are."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    address: str = ""
    """of `claw env host --listen`: tcp://HOST:PORT, or ipc://PATH on this machine"""
    keys: str = ""
    """folder made by `claw keys`, the same as at the host; tcp:// needs it"""
    dead_after_s: float = Field(30.0, gt=0)
    """silence after which the host counts as gone"""
    settings: dict[str, Any] = {}
    """the hosted plugin's own settings; checked there"""


class RemoteError(Exception):
    """What the plugin's code raised at the other end."""


class Client:
    """One host, asked from any thread. Its socket lives on a thread of its own."""

    def __init__(self, config: RemoteConfig) -> None:
        keys = wire.keys_of(config.keys)
        wire.check_address(config.address, keys)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="remote", daemon=True).start()
        self._link = Link(
            config.address, keys=keys, dead_after_s=config.dead_after_s,
            heartbeat_s=min(2.0, config.dead_after_s / 4),
            hello=lambda: wire.Message("remote.hello", fields={"pid": os.getpid()}),
            beat=lambda: wire.Message("remote.beat"),
        )
        self.address, self._dead_after_s = config.address, config.dead_after_s
        self._on_loop(self._link.open()).result(10)

    def close(self) -> None:
        """Leave; what waits fails."""
        self._on_loop(self._link.close()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, message: wire.Message, deadline_s: float = CALL_S) -> dict[str, Any]:
        """Ask and wait, on the caller's thread."""
        answer: dict[str, Any] = self._on_loop(self._call(message, deadline_s)).result()
        return answer

    async def acall(self, message: wire.Message, deadline_s: float = CALL_S) -> dict[str, Any]:
        """Ask and wait, on the caller's loop."""
        future = self._on_loop(self._call(message, deadline_s))
        answer: dict[str, Any] = await asyncio.wrap_future(future)
        return answer

    def tell(self, message: wire.Message) -> None:
        """Ask without waiting; what comes of it interests nobody."""
        self._on_loop(self._call(message, 10.0)).add_done_callback(lambda f: f.exception())

    async def _call(self, message: wire.Message, deadline_s: float) -> dict[str, Any]:
        until = self._loop.time() + deadline_s
        try:
            async with self._link.request(message) as pending:
                reply = await pending.following(until)
        except (EngineError, WireError, TimeoutError) as error:
            said = f"the environment host {self.address} does not answer: {error}"
            raise BoundaryError(Boundary.SANDBOX, RemoteError(said)) from error
        return _checked(reply)


def _checked(reply: wire.Message) -> dict[str, Any]:
    failure = reply.get("failure")
    if failure is None:
        return reply.fields
    if reply.get("where") in set(Boundary):
        raise BoundaryError(Boundary(reply["where"]), RemoteError(str(failure)))
    if reply.get("kind") == "usage":
        raise BoundaryError(Boundary.SANDBOX, ClawError(str(failure)))
    raise RemoteError(str(failure))


def _request(type: str, config: RemoteConfig, **fields: Any) -> wire.Message:
    return wire.Message(type, new_id("req"), {"settings": config.settings, **fields})


# --- what a runner meets -------------------------------------------------------------------------


class RemoteEnv:
    """One environment at the host; its methods block the thread they are called on."""

    def __init__(self, client: Client, config: RemoteConfig, task: Task) -> None:
        self._client, self._config = client, config
        fields, _ = wire.pack(task)
        made = client.call(_request("env.make", config, record=fields))
        self.id = str(made["env"])
        self.tools: list[dict[str, Any]] = list(made.get("tools") or ())
        self._has_shown = bool(made.get("has_shown"))
        if made.get("has_pictures"):
            self.takes_pictures = False
        self._is_closed = False

    def start(self) -> list[Message]:
        """Return the first messages."""
        sees = getattr(self, "takes_pictures", False)
        said = self._turn(
            _request("env.start", self._config, env=self.id, takes_pictures=sees))
        return [] if said is None else said

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Return what the policy sees next, or None at the end."""
        fields, _ = wire.pack(turn)
        return self._turn(_request("env.reply", self._config, env=self.id, record=fields))

    def shown(self, messages: list[Message]) -> list[Message]:
        """Return what the policy sees of the conversation."""
        if not self._has_shown:
            return messages
        request = _request("env.shown", self._config, env=self.id, messages=messages)
        return _messages_of(self._client.call(request)) or []

    def _turn(self, request: wire.Message) -> list[Message] | None:
        answer = self._client.call(request)
        self.tools = list(answer.get("tools") or ())
        return _messages_of(answer)

    def close(self) -> None:
        """Free it there; closing twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._client.call(_request("env.close", self._config, env=self.id), 90.0)


def _messages_of(answer: Any) -> list[Message] | None:
    messages = answer.get("messages")
    if messages is None:
        return None
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise RemoteError("the host answered with what are no messages")
    return messages


class RemoteJudge:
    """One judge at the host. It sees the host's own environment."""

    def __init__(self, client: Client, config: RemoteConfig, name: str, is_checker: bool) -> None:
        self._client, self._config = client, config
        self.name, self.is_checker = name, is_checker

    async def judge(self, case: Case) -> Verdict:
        """Ask over the wire; an environment that is no remote one stays here."""
        env = case.metadata.get("env")
        plain = {k: v for k, v in case.metadata.items() if isinstance(v, str | int | float)}
        fields, _ = wire.pack(replace(case, metadata=plain, task=None))
        fields["task"] = wire.pack(case.task)[0] if case.task is not None else None
        answer = await self._client.acall(_request(
            "judge", self._config, name=self.name, record=fields,
            env=env.id if isinstance(env, RemoteEnv) else "",
        ))
        verdict = wire.unpack(Verdict, answer.get("record") or {}, {})
        assert isinstance(verdict, Verdict), "unpack returns what it is asked for"
        return verdict


_clients: dict[tuple[str, str], Client] = {}
_lock = threading.Lock()


def client_of(config: RemoteConfig) -> Client:
    """Return the client of a host; one socket serves all environments of this process."""
    if not config.address:
        raise UsageError("no environment host named", do="set plugin.remote.address")
    with _lock:
        key = (config.address, config.keys)
        if key not in _clients:
            _clients[key] = Client(config)
        return _clients[key]


@hookimpl
def claw_config() -> type[BaseModel]:
    """Where the host is."""
    return RemoteConfig


@hookimpl
def claw_tasks(config: RemoteConfig, split: str) -> Iterator[Task]:
    """Read the host's tasks page by page."""
    client, cursor, is_over = client_of(config), "", False
    while not is_over:
        page = client.call(_request("tasks", config, split=split, cursor=cursor, count=PAGE))
        cursor, is_over = str(page["cursor"]), bool(page["is_over"])
        for fields in page["tasks"]:
            yield wire.unpack(Task, fields, {})


@hookimpl
def claw_env(task: Task, config: RemoteConfig) -> RemoteEnv:
    """Make an environment at the host."""
    return RemoteEnv(client_of(config), config, task)


@hookimpl
def claw_gold(task: Task, env: Any, config: RemoteConfig) -> Gold | None:
    """How the host's gold solution plays its task."""
    client, fields = client_of(config), wire.pack(task)[0]
    made = client.call(_request("gold", config, env=env.id, record=fields))
    if not made["is_policy"]:
        replies: list[Said] | None = made["replies"]
        return replies

    def said(messages: list[Message]) -> Said | None:
        request = _request("gold.next", config, env=env.id, messages=messages)
        answer: Said | None = client.call(request)["said"]
        return answer

    return said


@hookimpl
def claw_judges(config: RemoteConfig) -> list[RemoteJudge]:
    """The host's judges, under their names."""
    client = client_of(config)
    try:
        about = client.call(_request("describe", config), config.dead_after_s)
    except BoundaryError as error:
        raise ClawError(
            "the environment host refuses or does not answer", found=str(error.cause),
            do=f"start it: claw env host --plugin NAME --listen {config.address}",
        ) from error
    if unfit := [hook for hook in CANNOT_TRAVEL if hook in about["hooks"]]:
        raise UsageError(
            f"plugin {about['plugin']!r} cannot be hosted elsewhere", found=", ".join(unfit),
            allowed="a plugin with tasks, environments and judges",
            do="install the plugin here: its other hooks run in this run's own processes",
        )
    return [RemoteJudge(client, config, str(judge["name"]), bool(judge["is_checker"]))
            for judge in about["judges"]]


@hookimpl
def claw_on_trace(trace: Trace) -> None:
    """Let the hosts see the trace."""
    fields, _ = wire.pack(trace)
    for client in list(_clients.values()):
        client.tell(wire.Message("trace", new_id("req"), {"record": fields}))
