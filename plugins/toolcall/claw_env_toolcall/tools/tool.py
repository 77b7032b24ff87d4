"""One tool, and the sources tools come from.

Owns: the shape of a tool.
Does not own: checking arguments (`arguments`), running calls (`toolbox`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

Arguments = dict[str, Any]


class ToolError(Exception):
    """A call that failed; the text is what the policy reads. `kind` names the failure in a word."""

    def __init__(self, text: str, kind: str = "exception") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Tool:
    """A name, a JSON schema of its arguments, and what it does with them."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments, an object"""
    call: Callable[[Arguments], Awaitable[str]]
    grace_s: float = 0.0
    """a tool that keeps the deadline of a call itself gets so much more before it is given up"""

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in OpenAI's `tools` shape."""
        function = {"name": self.name, "description": self.description,
                    "parameters": self.parameters}
        return {"type": "function", "function": function}


class Source(Protocol):
    """Where tools of one episode come from."""

    async def open(self) -> list[Tool]:
        """Make ready and return the tools."""

    async def close(self) -> None:
        """Free everything; twice is fine."""
