"""Messages of verifiers (v0 and v1 write them alike) <-> messages of claw."""

from collections.abc import Iterable
from typing import Any

from claw.records import Message


def plain(messages: Any) -> list[Message]:
    """Return messages in OpenAI's shape; a string is one user's message."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    return [_plain(message) for message in messages]


def _plain(message: Any) -> Message:
    raw = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    made: Message = {"role": raw["role"], "content": _text(raw.get("content"))}
    if calls := raw.get("tool_calls"):
        made["tool_calls"] = [_call(call) for call in calls]
    for key in ("tool_call_id", "name", "reasoning_content"):
        if raw.get(key):
            made[key] = raw[key]
    return made


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    raw = part if isinstance(part, dict) else part.model_dump()
    if raw.get("type") != "text":
        raise ValueError(f"a message holds {raw.get('type')!r}; the policy reads text only")
    return str(raw["text"])


def _call(call: Any) -> dict[str, Any]:
    raw = call if isinstance(call, dict) else call.model_dump()
    function = raw.get("function") or {"name": raw["name"], "arguments": raw["arguments"]}
    return {"id": raw["id"], "type": "function", "function": dict(function)}


def calls_of(reply: Message) -> list[dict[str, str]]:
    """The tool calls of a reply as verifiers writes them: id, name, arguments."""
    return [
        {"id": call["id"], **{k: call["function"][k] for k in ("name", "arguments")}}
        for call in reply.get("tool_calls") or ()
    ]


def same(one: Message, other: Message) -> bool:
    """Whether two messages say the same; ids and thoughts do not count."""
    return _essence(one) == _essence(other)


def _essence(message: Message) -> tuple[Any, ...]:
    calls = [(call["name"], call["arguments"]) for call in calls_of(message)]
    return message["role"], _text(message.get("content")), calls


def tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A tool in OpenAI's shape."""
    about = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": about}


def images(messages: Iterable[Message]) -> bool:
    """Whether a prompt holds anything but text."""
    try:
        plain(messages)
    except ValueError:
        return True
    return False
