"""The sources of tools that the settings name.

Owns: names -> sources, made anew for each episode.
Does not own: the sources.
"""

from dataclasses import dataclass

from .settings import ToolcallConfig
from .tools.calculator import calculator
from .tools.function import from_function, named
from .tools.tool import Source, Tool


@dataclass(frozen=True, slots=True)
class Functions:
    """Tools that are there and hold nothing."""

    tools: tuple[Tool, ...]

    async def open(self) -> list[Tool]:
        """Return the tools."""
        return list(self.tools)

    async def close(self) -> None:
        """Nothing to free."""


def sources(config: ToolcallConfig) -> list[Source]:
    """Return new sources for one episode."""
    functions = {"calculator": calculator}
    plain = [functions.get(name) or named(name) for name in config.tools if name != "python"]
    made: list[Source] = [Functions(tuple(map(from_function, plain)))]
    if "python" in config.tools:
        from .tools.python import Python  # and docker with it

        made.append(Python(config))
    if config.mcp:
        from .tools.mcp import McpServer

        made += [McpServer(name, about) for name, about in config.mcp.items()]
    return made
