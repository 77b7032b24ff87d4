"""Tools of an MCP server: started for one episode over stdio, or reached by streamable HTTP.

Owns: the connection, for as long as an episode lasts, and reading results.
Does not own: what the tools do; the words of a server are data, never settings or hints.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import PaginatedRequestParams

from claw.sdk import ClawError, UsageError

from ..settings import McpConfig
from .tool import Arguments, Tool, ToolError

log = logging.getLogger(__name__)

MAX_TOOLS = 512
CLOSE_S = 15.0


class McpServer:
    """A source of tools. The connection lives in a task of its own: it has to be closed where it
    was opened, and an episode closes its environment from another task.
    """

    def __init__(self, name: str, config: McpConfig) -> None:
        self._name, self._config = name, config
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> list[Tool]:
        """Connect and return the server's tools."""
        ready: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready))
        try:
            async with asyncio.timeout(self._config.start_s):
                return await ready
        except TimeoutError:
            raise self._failed(f"no answer within {self._config.start_s:g} s") from None

    async def close(self) -> None:
        """Disconnect; a server that was started ends."""
        self._over.set()
        task, self._task = self._task, None
        if task is not None and (await asyncio.wait([task], timeout=CLOSE_S))[1]:
            log.warning("the MCP server %r did not end within %g s", self._name, CLOSE_S)
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_S)

    async def _live(self, ready: "asyncio.Future[list[Tool]]") -> None:
        try:
            async with self._client() as client:
                tools = await self._tools(client)
                if not ready.done():
                    ready.set_result(tools)
                await self._over.wait()
        except Exception as error:  # told to whoever waits; later calls fail by themselves
            if not ready.done():
                ready.set_exception(self._failed(_said(error)))
            else:
                log.warning("the MCP server %r: %s", self._name, _said(error))

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        c = self._config
        if c.command:
            # the library passes on HOME, PATH and the like, and nothing else of our environment
            stdio = StdioServerParameters(command=c.command, args=list(c.args), env=c.env)
            async with Client(stdio) as client:
                yield client
            return
        headers = {"Authorization": f"Bearer {self._token}"} if c.token_env else None
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(c.url, http_client=http)) as client,
        ):
            yield client

    @property
    def _token(self) -> str:
        token = os.environ.get(self._config.token_env, "")
        if not token:
            raise UsageError(
                f"the token of the MCP server {self._name!r} is not set",
                found=f"{self._config.token_env} is empty", do="export it",
            )
        return token

    async def _tools(self, client: Client) -> list[Tool]:
        tools: list[Tool] = []
        page: str | None = None
        while True:
            found = await client.session.list_tools(params=PaginatedRequestParams(cursor=page))
            tools += [self._tool(client, about) for about in found.tools]
            page = found.next_cursor
            if not page:
                return tools
            if len(tools) > MAX_TOOLS:
                raise self._failed(f"more than {MAX_TOOLS} tools")

    def _tool(self, client: Client, about: Any) -> Tool:
        async def call(arguments: Arguments) -> str:
            if self._over.is_set() or self._task is None or self._task.done():
                raise ToolError(f"the server of {about.name} is gone", "gone")
            try:
                result = await client.call_tool(about.name, arguments)
            except MCPError as error:
                raise ToolError(str(error)) from error
            text = "\n".join(map(_text, result.content))
            if result.is_error:
                raise ToolError(text or "the tool failed")
            return text

        return Tool(about.name, about.description or "", about.input_schema, call)

    def _failed(self, why: str) -> ClawError:
        where = self._config.url or self._config.command
        return ClawError(f"the MCP server {self._name!r} cannot be used",
                         found=f"{where}: {why}", do=f"see plugin.toolcall.mcp.{self._name}")


def _text(part: Any) -> str:
    """Text as it is; what a text model cannot read is named."""
    if part.type == "text":
        return str(part.text)
    resource = getattr(part, "resource", None)
    return str(getattr(resource, "text", None) or f"[{part.type}]")


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):  # task groups wrap what happened
        error = error.exceptions[0]
    return str(error) if isinstance(error, ClawError) else f"{type(error).__name__}: {error}"
