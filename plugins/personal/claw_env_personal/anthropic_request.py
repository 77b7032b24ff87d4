"""A request of Anthropic's Messages API as a chat request.

Owns: content blocks, the system field, tools and limits under their other names.
Does not own: checking what is the same in both (`requests`, `messages`, `sampling`).
"""

import json
from typing import Any

from .body import array_of, kind_of
from .errors import bad

_SAME = ("model", "stream", "temperature", "top_p", "top_k", "session_id", "turn_type",
         "session_done", "max_tokens")
_CHOICES = {"auto": "auto", "none": "none"}


def from_anthropic(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the chat request that means the same."""
    if body.get("max_tokens") is None:
        raise bad("max_tokens is missing.", "max_tokens")
    made = {name: body[name] for name in _SAME if name in body}
    made["messages"] = [*_system(body.get("system")), *_messages(body.get("messages"))]
    made["tools"] = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(array_of(body, "tools"))]
    if body.get("stop_sequences"):
        made["stop"] = body["stop_sequences"]
    if body.get("tool_choice") is not None:
        made["tool_choice"] = _choice(body["tool_choice"])
        if isinstance(body["tool_choice"], dict):
            made["parallel_tool_calls"] = not body["tool_choice"].get("disable_parallel_tool_use")
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("user_id"):
        made["user"] = metadata["user_id"]
    return made


def _system(value: Any) -> list[dict[str, Any]]:
    if not value:
        return []
    return [{"role": "system", "content": _plain(value, "system")}]


def _tool(tool: Any, at: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") not in (None, "custom"):
        raise bad(f"{at} must be {{name, description, input_schema}}: nothing is hosted here.", at)
    function = {"name": tool.get("name"), "parameters": tool.get("input_schema") or {}}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _choice(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else value
    return _CHOICES.get(str(kind), kind)  # what forces a call is refused like any other


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise bad("messages must be an array with at least one message.", "messages")
    made: list[dict[str, Any]] = []
    for i, item in enumerate(value):
        at = f"messages[{i}]"
        if not isinstance(item, dict) or item.get("role") not in ("user", "assistant"):
            raise bad(f"{at}.role must be user or assistant.", f"{at}.role")
        content = item.get("content")
        if not isinstance(content, list):
            made.append({"role": item["role"], "content": content})
        elif item["role"] == "assistant":
            made.append(_assistant(content, at))
        else:
            made += _user(content, at)
    return made


def _assistant(blocks: list[Any], at: str) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for i, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            texts.append(str(block.get("text", "")))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking", "")))
        elif kind == "tool_use":
            function = {"name": block.get("name"),
                        "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind != "redacted_thinking":
            raise _unknown(kind, f"{at}.content[{i}]", "text, thinking, tool_use")
    made: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        made["reasoning_content"] = "\n".join(thoughts)
    if calls:
        made["tool_calls"] = calls
    return made


def _user(blocks: list[Any], at: str) -> list[dict[str, Any]]:
    """Tool results come first, as they do on the wire of chat completions."""
    made, said = [], []
    for i, block in enumerate(blocks):
        here = f"{at}.content[{i}]"
        if isinstance(block, dict) and block.get("type") == "tool_result":
            content = _plain(block.get("content") or "", f"{here}.content")
            made.append({"role": "tool", "tool_call_id": block.get("tool_use_id"),
                         "content": content})
        else:
            said += _plain([block], here)
    return [*made, {"role": "user", "content": said}] if said or not made else made


def _plain(value: Any, at: str) -> Any:
    """Return a string as it is, or the parts of a chat message."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad(f"{at} must be a string or an array of blocks, not {kind_of(value)}.", at)
    return [_part(block, at) for block in value]


def _part(block: Any, at: str) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return {"type": "text", "text": block.get("text")}
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _url_of(block.get("source"))}}
    if kind == "document":
        return {"type": "file"}  # refused with its place
    raise _unknown(kind, at, "text, tool_result")


def _url_of(source: Any) -> str:
    """A picture's data URL, or its address; empty for what is neither."""
    given = source if isinstance(source, dict) else {}
    if given.get("type") == "base64":
        return f"data:{given.get('media_type')};base64,{given.get('data')}"
    return str(given.get("url") or "")


def _unknown(kind: Any, at: str, allowed: str) -> Exception:
    said = json.dumps(kind)[:80] if isinstance(kind, str) else "missing"
    return bad(f"{at}.type is {said}; allowed: {allowed}.", f"{at}.type")
