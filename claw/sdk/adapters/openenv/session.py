"""A session with a server: WebSocket first, HTTP where the server has no `/ws`.

Owns: connecting, waiting for room, deadlines, bounded answers, what an error of the server means.
Does not own: what actions and observations mean (`actions`).

A session's episode lives in its socket. So it is connected again, with growing pauses, until the
first reset is answered, and never after: a socket that is lost then has lost the episode.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from claw.sdk.adapters import foreign
from claw.sdk.adapters.openenv.settings import OpenenvConfig
from claw.sdk.foreign_json import from_json

log = logging.getLogger(__name__)

FULL = {"CAPACITY_REACHED"}
"""errors after which another try may succeed"""
WRONG = {"VALIDATION_ERROR", "INVALID_JSON"}
"""errors of the one who acts: the policy"""
MAX_PAUSE_S = 5.0
PING_S = 120.0
"""servers that compute in their event loop answer pings late"""


class ServerError(Exception):
    """The server says that it failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}"[:2000])
        self.code = code


class WrongAction(Exception):
    """The server says that the action is none of its own."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to a reset or a step."""

    observation: dict[str, Any]
    reward: float
    done: bool


class Session(Protocol):
    """One episode on a server."""

    async def reset(self, about: dict[str, Any]) -> Seen:
        """Begin the episode."""

    async def step(self, action: dict[str, Any]) -> Seen:
        """Act."""

    async def state(self) -> dict[str, Any]:
        """Return what the server tells of the episode."""

    async def close(self) -> None:
        """End the session; twice is fine."""


async def begin(config: OpenenvConfig, about: dict[str, Any]) -> tuple[Session, Seen]:
    """Open a session and reset it; wait for room until `connect_s` is over."""
    pause_s, until = 0.1, asyncio.get_running_loop().time() + config.connect_s
    while True:
        session: Session | None = None
        try:
            session = await _open(config)
            return session, await session.reset(about)
        except BaseException as error:
            if session is not None:
                await session.close()
            is_late = asyncio.get_running_loop().time() + pause_s > until
            if not _may_pass(error):
                raise
            if is_late:
                raise ConnectionError(
                    f"no session at {config.url} within {config.connect_s:g} s: {error}"
                ) from error
            log.info("no session yet: %s", error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)


def _may_pass(error: BaseException) -> bool:
    """Whether another try may succeed: nobody listens yet, it is full, or the socket was lost."""
    if isinstance(error, ServerError):
        return error.code in FULL
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)


async def _open(config: OpenenvConfig) -> Session:
    client = foreign.load("websockets.asyncio.client", of="openenv", install="claw-rl[openenv]")
    errors = foreign.load("websockets.exceptions", of="openenv", install="claw-rl[openenv]")
    try:
        socket = await client.connect(
            config.ws_url, max_size=config.max_bytes, open_timeout=config.connect_s,
            ping_timeout=PING_S, close_timeout=2.0,
        )
    except errors.InvalidStatus as error:
        status = error.response.status_code
        if status in (403, 404, 405, 426, 501):  # no such route: the server speaks HTTP only
            return HttpSession(config)
        raise ConnectionError(f"{config.ws_url} answers {status}") from error
    except errors.InvalidHandshake as error:
        raise ConnectionError(f"{config.ws_url}: {error}") from error
    return SocketSession(config, socket, errors.ConnectionClosed)


class SocketSession:
    """A session over one socket."""

    def __init__(self, config: OpenenvConfig, socket: Any, closed: type[Exception]) -> None:
        self._config, self._socket, self._closed = config, socket, closed

    async def reset(self, about: dict[str, Any]) -> Seen:
        return seen(await self._ask("reset", about))

    async def step(self, action: dict[str, Any]) -> Seen:
        return seen(await self._ask("step", action))

    async def state(self) -> dict[str, Any]:
        return await self._ask("state", None)

    async def _ask(self, type: str, data: dict[str, Any] | None) -> dict[str, Any]:
        message = {"type": type} if data is None else {"type": type, "data": data}
        wanted = "state" if type == "state" else "observation"
        try:
            async with asyncio.timeout(self._config.step_s):
                # a server that is full says so and closes: its words can be read after the close
                with contextlib.suppress(self._closed):
                    await self._socket.send(json.dumps(message))
                answer = _object(await self._socket.recv())
        except TimeoutError:
            raise TimeoutError(
                f"the server did not answer {type} within {self._config.step_s:g} s"
            ) from None
        except self._closed as error:
            raise ConnectionError(f"the socket was lost during {type}: {error}") from error
        if answer.get("type") == "error":
            raise _error(type, answer.get("data"))
        found = answer.get("data")
        if answer.get("type") != wanted or not isinstance(found, dict):
            raise ServerError("PROTOCOL", f"{answer.get('type')!r} in answer to {type}")
        return found

    async def close(self) -> None:
        with contextlib.suppress(Exception):  # a socket that is gone is closed
            async with asyncio.timeout(2):
                await self._socket.send('{"type": "close"}')
        await self._socket.close()


_turns: dict[str, asyncio.Lock] = {}
"""by address: a server without sessions has one environment, so one episode at a time"""


class HttpSession:
    """An episode by requests, on a server that keeps one environment between them."""

    def __init__(self, config: OpenenvConfig) -> None:
        self._config = config
        httpx = foreign.load("httpx", of="openenv", install="claw-rl[openenv]")
        self._failed: type[Exception] = httpx.HTTPError
        self._client = httpx.AsyncClient(base_url=config.http_url, timeout=config.step_s)
        self._turn = _turns.setdefault(config.http_url, asyncio.Lock())
        self._has_turn = False

    async def reset(self, about: dict[str, Any]) -> Seen:
        await self._turn.acquire()  # as long as the runner lets one call of an environment take
        self._has_turn = True
        first = seen(await self._ask("POST", "/reset", about))
        kept = (await self.state()).get("episode_id")
        if kept != about["episode_id"]:
            raise ServerError("NO_SESSION", (
                f"the server has no /ws and forgets the episode between requests (asked for "
                f"{about['episode_id']}, /state says {kept}); only one that keeps it can be played"
            ))
        return first

    async def step(self, action: dict[str, Any]) -> Seen:
        return seen(await self._ask("POST", "/step", {"action": action}))

    async def state(self) -> dict[str, Any]:
        return await self._ask("GET", "/state", None)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._config.step_s), self._client.stream(
                method, path, json=body
            ) as answer:
                data = b""
                async for part in answer.aiter_bytes():
                    data += part
                    if len(data) > self._config.max_bytes:
                        raise ServerError("TOO_LARGE", f"more than {self._config.max_bytes} bytes")
        except TimeoutError:
            raise TimeoutError(
                f"the server did not answer {path} within {self._config.step_s:g} s"
            ) from None
        except self._failed as error:
            raise ConnectionError(f"{path}: {type(error).__name__}: {error}") from error
        if answer.status_code == 422 and path == "/step":
            raise WrongAction(data.decode(errors="replace")[:2000])
        if not answer.is_success:
            said = data.decode(errors="replace")[:500]
            raise ServerError(f"HTTP {answer.status_code}", f"{path}: {said}")
        return _object(data)

    async def close(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turn.release()
        await self._client.aclose()


def seen(data: dict[str, Any]) -> Seen:
    """Check what the server says of a reset or a step."""
    observation, reward = data.get("observation"), data.get("reward")
    if not isinstance(observation, dict):
        raise ServerError("PROTOCOL", "an answer without an observation")
    if reward is not None and not isinstance(reward, bool | int | float):
        raise ServerError("PROTOCOL", f"a reward that is no number: {reward!r}")
    return Seen(observation, float(reward or 0.0), data.get("done") is True)


def _error(type: str, data: Any) -> Exception:
    data = data if isinstance(data, dict) else {}
    code, message = str(data.get("code") or "ERROR"), str(data.get("message") or "")
    if type == "step" and code in WRONG:
        return WrongAction(f"{message} {json.dumps(data.get('errors') or '')}"[:2000])
    return ServerError(code, message)


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        found = from_json(text)
    except ValueError as error:
        raise ServerError("PROTOCOL", f"an answer that is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ServerError("PROTOCOL", "an answer that is no JSON object")
    return found
