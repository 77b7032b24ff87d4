"""The tool servers of a taskset, in this process.

Owns: starting a server's tools, naming them as verifiers' own harness does, calling them.
Does not own: what a tool does.

verifiers puts each server into a process and carries the rollout's state to it over HTTP. Here the
state is the rollout's own object, found by the call that runs; two episodes never share one.
"""

import contextvars
import importlib.util
import json
from importlib import import_module
from typing import Any

from claw.records import Message
from claw.sdk.adapters.verifiers import messages
from claw.sdk.foreign_json import from_json

_state: contextvars.ContextVar[Any] = contextvars.ContextVar("state of the episode that calls")


class Servers:
    """Some tool servers, opened together."""

    def __init__(self, toolsets: list[Any]) -> None:
        self._toolsets = toolsets
        self._tools: dict[str, tuple[Any, str]] = {}
        self.schemas: list[dict[str, Any]] = []

    async def open(self, data: Any = None) -> None:
        """Set the servers up; `data` is the row, for servers of one episode."""
        for toolset in self._toolsets:
            _share_state(toolset)
            await toolset.setup()
            if data is not None:
                await toolset.setup_task(data)
            server = _mcp_server()(toolset.server_name or type(toolset).__name__)
            toolset.register(server)
            for tool in await server.list_tools():
                self._add(toolset.server_name, server, tool)

    def _add(self, prefix: str, server: Any, tool: Any) -> None:
        name = f"{prefix}_{tool.name}" if prefix else tool.name
        if name in self._tools:
            raise ValueError(f"two tools are named {name!r}")
        self._tools[name] = (server, tool.name)
        schema = getattr(tool, "input_schema", None) or tool.inputSchema  # mcp 2, and before
        self.schemas.append(messages.tool(name, tool.description or "", schema))

    def has(self, name: str) -> bool:
        return name in self._tools

    async def call(self, name: str, arguments: dict[str, Any], state: Any) -> str:
        """Return what the tool says; raise what it raises."""
        server, tool = self._tools[name]
        token = _state.set(state)
        try:
            return _said(await server.call_tool(tool, arguments))
        finally:
            _state.reset(token)

    async def close(self) -> None:
        for toolset in self._toolsets:
            await toolset._exit_stack.aclose()


async def answer(call: dict[str, str], state: Any, servers: list[Servers]) -> Message:
    """Call a tool as the policy asked. What the policy did wrong is an observation."""
    return {"role": "tool", "tool_call_id": call["id"], "name": call["name"],
            "content": await _observation(call, state, servers)}


async def _observation(call: dict[str, str], state: Any, servers: list[Servers]) -> str:
    owner = next((s for s in servers if s.has(call["name"])), None)
    if owner is None:
        known = [schema["function"]["name"] for s in servers for schema in s.schemas]
        return f"Error: no tool {call['name']!r}; there are: {', '.join(known) or 'none'}"
    try:
        arguments = from_json(call["arguments"] or "{}")
    except ValueError as error:
        return f"Error: the arguments are no JSON: {error}"
    if not isinstance(arguments, dict):
        return "Error: the arguments are no JSON object"
    try:
        return await owner.call(call["name"], arguments, state)
    except Exception as error:  # a tool's failure is what the policy sees of it
        return f"Error: {error}"


def _said(result: Any) -> str:
    """The text of what a server's `call_tool` returns: mcp 2's result, or mcp 1's content."""
    content = getattr(result, "content", None)
    if content is None:
        content = result[0] if isinstance(result, tuple) else result
    if isinstance(content, dict):
        return json.dumps(content)
    return "\n".join(block.text if block.type == "text" else str(block) for block in content)


def _share_state(toolset: Any) -> None:
    """Let the server's tools work on the state of the episode that calls them."""
    async def pull() -> Any:
        return _state.get()

    async def push(before: bytes) -> None:
        """Nothing to send: the object is the same."""

    toolset._pull_state, toolset._push_state = pull, push


def _mcp_server() -> Any:
    if importlib.util.find_spec("mcp.server.mcpserver") is not None:
        return import_module("mcp.server.mcpserver").MCPServer
    return import_module("mcp.server.fastmcp").FastMCP
