"""Messages as the people and tools said them, for comparing and for judging.

Owns: what is the same message though a client wrote it differently; what is nobody's word.
Does not own: which turn a message belongs to (`session.py`).
"""

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from claw.engine.actor import families
from claw.records import Message
from claw.sdk.foreign_json import from_json

_INTERNAL = re.compile(
    r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?(<<<END_OPENCLAW_INTERNAL_CONTEXT>>>|\Z)", re.DOTALL
)
_ROUTED = re.compile(r"^\[Inter-session message\][^\n]{0,2000}\bisUser=false\b", re.MULTILINE)
_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_PUNCTUATION = re.compile(r"[^A-Za-z0-9]")


def text(content: Any) -> str:
    """Return a content's text: a string, a list of text parts, or nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [p.get("text") if isinstance(p, dict) else p for p in content]
    return "\n".join(p for p in parts if isinstance(p, str))


def own_words(message: Message) -> str:
    """Return the text without what the client's program put in between internal markers."""
    said = text(message.get("content"))
    return _INTERNAL.sub("", said).strip() if "OPENCLAW_INTERNAL" in said else said.strip()


def is_internal(message: Message) -> bool:
    """Whether nothing but a client's internal context is in this message."""
    said = text(message.get("content"))
    return "OPENCLAW_INTERNAL" in said and not own_words(message) and _is_text_only(message)


def _is_text_only(message: Message) -> bool:
    content = message.get("content")
    if not isinstance(content, list):
        return True
    return all(isinstance(p, str) or (isinstance(p, dict) and p.get("type") in (None, "text"))
               for p in content)


def is_routed(message: Message) -> bool:
    """Whether a client passes on another conversation's words, such as a sub-agent's result.

    Such a message asks for an answer, and says nothing about the one before.
    """
    said = text(message.get("content"))
    return message.get("role") == "user" and "isUser=false" in said and bool(_ROUTED.search(said))


def without_internal(message: Message) -> Message:
    """Return the message with internal context cut out of its text."""
    if "OPENCLAW_INTERNAL" not in text(message.get("content")):
        return message
    return {**message, "content": own_words(message)}


def words(messages: Sequence[Message]) -> list[Message]:
    """Return what people and tools said: no system messages, no internal context."""
    kept = (m for m in messages if m.get("role") not in ("system", "developer"))
    return [without_internal(m) for m in kept if not is_internal(m)]


def key(message: Message) -> bytes:
    """Return a digest that is equal for the same message written differently.

    White space at the ends, reasoning, call ids (of calls) and the punctuation of ids do not count.
    """
    role = str(message.get("role"))
    parts: list[Any] = [role]
    calls = message.get("tool_calls") if role == "assistant" else None
    if calls:
        parts.append([_call(c) for c in calls if isinstance(c, dict)])
    elif role == "assistant":
        parts.append(_THOUGHT.sub("", own_words(message)).strip())
    else:
        parts.append(own_words(message))
        parts.append(_attachments(message))
    if role == "tool":
        parts.append(_PUNCTUATION.sub("", str(message.get("tool_call_id") or "")))
    return digest(parts)


def _call(call: dict[str, Any]) -> list[Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    with suppress(ValueError):
        arguments = from_json(arguments) if isinstance(arguments, str) else arguments
    return [function.get("name"), arguments]


def _attachments(message: Message) -> list[Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [p for p in content if isinstance(p, dict) and p.get("type") not in (None, "text")]


def digest(value: Any) -> bytes:
    """Return 16 bytes that name a JSON value; lone surrogates are fine."""
    said = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


def shown(reply: Message) -> str:
    """Return a reply as one text: its content, then its tool calls."""
    calls = [_call(c) for c in reply.get("tool_calls") or []]
    lines = [text(reply.get("content")).strip()]
    lines += [f"{families.CALL} {name} {json.dumps(a, ensure_ascii=False)}" for name, a in calls]
    return "\n".join(line for line in lines if line)
