"""What the policy says -> an action of the server, and observations -> what the policy reads.

Owns: text or a tool for an action's schema; the tools of servers that speak MCP; cutting.
Does not own: sending (`session`).
"""

import json
from dataclasses import dataclass, field
from typing import Any

from claw.errors import UsageError

TOOL = "act"
"""the tool that stands for a server's action"""
GENERAL = {"metadata"}
"""fields of every action and observation that are no part of the game"""


@dataclass
class Actions:
    """How the policy acts on one server: by its text, by one tool, or by the server's tools."""

    text_field: str = ""
    """the action's one string field: the policy's text is its value"""
    tools: list[dict[str, Any]] = field(default_factory=list)
    is_mcp: bool = False
    """the server lists its tools in a session, and an action calls one of them"""

    @property
    def how(self) -> str:
        """What the policy is told about acting, where the tools do not say it."""
        return "" if self.text_field else "Act by calling a tool."

    def of_call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The action of a tool call."""
        if self.is_mcp:
            return {"type": "call_tool", "tool_name": name, "arguments": arguments}
        return arguments

    def names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.tools]


def understood(url: str, schema: Any) -> Actions:
    """Return how to act on a server with this action schema; refuse one that is none."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        raise UsageError(
            "the OpenEnv server's action cannot be understood", found=f"{url}/schema: {schema!r}",
            allowed="a JSON schema of an object", do="update the server",
        )
    own = {name: about for name, about in properties.items() if name not in GENERAL}
    if {"tool_name", "arguments"} <= own.keys() or not own:
        return Actions(is_mcp=True)
    if len(own) == 1 and (name := next(iter(own))) and own[name].get("type") == "string" \
            and not {"enum", "const", "pattern"} & own[name].keys():
        return Actions(text_field=name)
    return Actions(tools=[_tool(schema, own)])


def _tool(schema: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": own,
                  "required": [n for n in schema.get("required", ()) if n in own]}
    if definitions := schema.get("$defs"):
        parameters["$defs"] = definitions
    about = {"name": TOOL, "description": str(schema.get("description") or "Act."),
             "parameters": parameters}
    return {"type": "function", "function": about}


def listed(observation: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of a server that speaks MCP, from its answer to `list_tools`."""
    made = []
    for tool in observation.get("tools") or ():
        schema = tool.get("input_schema") or tool.get("inputSchema") or {"type": "object"}
        about = {"name": tool["name"], "description": str(tool.get("description") or ""),
                 "parameters": schema}
        made.append({"type": "function", "function": about})
    return made


def told(observation: dict[str, Any], limit: int) -> str:
    """An observation as the policy reads it: its one text, or JSON without what is empty."""
    own = {k: v for k, v in observation.items() if k not in GENERAL and v not in (None, "", [], {})}
    if len(own) == 1 and isinstance(text := next(iter(own.values())), str):
        return cut(text, limit)
    return cut(json.dumps(own, ensure_ascii=False), limit) if own else ""


def cut(text: str, limit: int) -> str:
    """Keep the head and the tail of a long text, and say what is missing."""
    if len(text) <= limit:
        return text
    half = limit // 2
    gone = len(text) - 2 * half
    return f"{text[:half]}\n[... {gone} characters left out ...]\n{text[-half:]}"
