"""A real MCP server for the tests: `python tool_server.py stdio`, or `http PORT`."""

import asyncio
import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tests")
notes: list[str] = []


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool()
def note(text: str) -> str:
    """Keep a note; return all notes."""
    notes.append(text)
    return ", ".join(notes)


@server.tool()
def fail() -> str:
    """Fail always."""
    raise ToolError("no luck today")


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
def variable(key: str) -> str:
    """Return an environment variable of the server."""
    return os.environ.get(key, "unset")


@server.tool()
def die() -> str:
    """End the server at once."""
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
