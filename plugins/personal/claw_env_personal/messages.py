"""The `messages` of a request: checked, and made plain.

Owns: roles, content parts, tool calls. A part that the policy cannot read is refused, never lost.
Does not own: which conversation the messages belong to.
"""

import json
from typing import Any

from claw.sdk import Message

from .body import kind_of
from .errors import bad
from .pictures import unseen

_ROLES = ("system", "developer", "user", "assistant", "tool")
_MEDIA = {"image_url": "an image", "input_audio": "audio", "file": "a file", "video_url": "a video"}


def plain_messages(value: Any) -> list[Message]:
    """Return the messages with plain content; what cannot be honoured is a 400 with its place.

    Content is a string, or where there are pictures a list of `text` and `image_url` parts.
    """
    if not isinstance(value, list):
        raise bad(f"messages must be an array, not {kind_of(value)}.", "messages")
    if not value:
        raise bad("messages must hold at least one message.", "messages")
    return [_message(item, f"messages[{i}]") for i, item in enumerate(value)]


def _message(item: Any, at: str) -> Message:
    if not isinstance(item, dict):
        raise bad(f"{at} must be an object, not {kind_of(item)}.", at)
    role = item.get("role")
    if role not in _ROLES:
        said = f"{role!r}"[:80] if isinstance(role, str) else kind_of(role)
        raise bad(f"{at}.role is {said}; allowed: {', '.join(_ROLES)}.", f"{at}.role")
    made: Message = {"role": "system" if role == "developer" else role}
    made["content"] = _content(item.get("content"), f"{at}.content")
    if isinstance(item.get("name"), str):
        made["name"] = item["name"]
    if role == "assistant":
        return _assistant(made, item, at)
    if made["content"] is None:
        raise bad(f"{at}.content is missing; a {role} message needs text.", f"{at}.content")
    if role == "tool":
        made["tool_call_id"] = _text(item.get("tool_call_id"), f"{at}.tool_call_id")
    return made


def _assistant(made: Message, item: dict[str, Any], at: str) -> Message:
    if item.get("function_call"):
        raise bad(f"{at}.function_call is not supported; send tool_calls.", f"{at}.function_call")
    calls = item.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise bad(f"{at}.tool_calls must be an array.", f"{at}.tool_calls")
    if calls:
        made["tool_calls"] = [
            _call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(calls)
        ]
    thoughts = item.get("reasoning_content")
    if isinstance(thoughts, str):
        made["reasoning_content"] = thoughts
    if made["content"] is None and not calls:
        made["content"] = item["refusal"] if isinstance(item.get("refusal"), str) else ""
    return made


def _call(call: Any, at: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise bad(f"{at} must be {{id, type: 'function', function: {{name, arguments}}}}.", at)
    arguments = function.get("arguments", "")
    if isinstance(arguments, dict):  # some clients replay the parsed object
        arguments = json.dumps(arguments)
    return {
        "id": _text(call.get("id"), f"{at}.id"), "type": "function",
        "function": {
            "name": _text(function.get("name"), f"{at}.function.name"),
            "arguments": _text(arguments, f"{at}.function.arguments"),
        },
    }


def _content(value: Any, at: str) -> str | list[dict[str, Any]] | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad(f"{at} must be a string, null or an array of parts, not {kind_of(value)}.", at)
    parts = [_part(part, f"{at}[{i}]") for i, part in enumerate(value)]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]


def _part(part: Any, at: str) -> str | dict[str, Any]:
    """Return a text, or a picture as a part of its own."""
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "refusal"):
        return _text(part.get(kind), f"{at}.{kind}")
    if kind == "image_url" and (url := _url_of(part.get(kind))):
        return {"type": "image_url", "image_url": {"url": url}}
    if isinstance(kind, str) and kind in _MEDIA:
        raise unseen(at, _MEDIA[kind])
    raise bad(f"{at}.type must be 'text'.", at)


def _url_of(given: Any) -> str:
    url = given.get("url") if isinstance(given, dict) else given
    return url if isinstance(url, str) else ""


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise bad(f"{at} must be a string, not {kind_of(value)}.", at)
    return value
