"""Sampled text -> reply: thinking, tool calls and what the person sees.

Owns: the families of markup, chosen by what the model's template mentions.
Does not own: ids, templates. Malformed markup stays text.
"""

import json
import re
import secrets
import string
from dataclasses import dataclass
from typing import Any

from claw.records import FinishReason, Message
from claw.sdk.foreign_json import from_json

THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>\s*", re.DOTALL)
_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Markup:
    """What to look for in one reply."""

    calls: str = ""
    """hermes, llama or empty"""
    thinks: bool = False
    starts_thinking: bool = False
    """the prompt itself opened `<think>`"""


def call_id() -> str:
    """Return a fresh tool-call id; letters and digits only, since clients rewrite the rest."""
    return "call" + "".join(secrets.choice(_ALPHABET) for _ in range(12))


def reply(text: str, markup: Markup, finish: FinishReason) -> tuple[Message, FinishReason]:
    """Return the assistant message of a whole reply and the finish reason a client gets."""
    thought, body = split_thinking(text, markup)
    return made(thought, *_calls(body, markup), finish)


def made(
    thought: str | None, content: str, calls: list[dict[str, Any]], finish: FinishReason
) -> tuple[Message, FinishReason]:
    """Put the parts of a whole reply together."""
    message: Message = {"role": "assistant", "content": content}
    if thought is not None:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
        message["content"] = content if content.strip() else None
        if finish is FinishReason.STOP:
            finish = FinishReason.TOOL_CALLS
    return message, finish


def split_thinking(text: str, markup: Markup) -> tuple[str | None, str]:
    """Return (thinking or None, the rest); thinking that never ends is all thinking."""
    opened = text.lstrip().startswith(THINK)
    if not (opened or markup.starts_thinking):
        return None, text
    inner = text.lstrip()[len(THINK) :] if opened else text
    thought, end, rest = inner.partition(THINK_END)
    return thought.strip("\n"), rest.lstrip("\n") if end else ""


def thought(text: str, markup: Markup) -> str:
    """Return the start of the thinking that is certain already, while it streams."""
    head = text.lstrip()
    if THINK.startswith(head):  # the marker itself may still be coming
        return ""
    opened = head.startswith(THINK)
    if not (opened or markup.starts_thinking):
        return ""
    said, end, _ = (head[len(THINK) :] if opened else text).partition(THINK_END)
    return (said if end else said[: len(said) - overlap(said, THINK_END)]).strip("\n")


def visible(text: str, markup: Markup) -> str:
    """Return the start of the reply's content that is certain already, while it streams."""
    markers = [CALL] if markup.calls == "hermes" else []
    body = after_thinking(text, markup)
    if markup.calls == "llama" and body.lstrip()[:1] in ("{", "<", ""):
        return ""
    for marker in markers:
        cut = body.find(marker)
        body = body[:cut] if cut >= 0 else body[: len(body) - overlap(body, marker)]
    return body


def after_thinking(text: str, markup: Markup) -> str:
    """Return what follows the thinking, empty while that may go on."""
    head = text.lstrip()
    may_think = markup.starts_thinking or THINK.startswith(head[: len(THINK)])
    if markup.thinks and may_think and THINK_END not in text:
        return ""
    return split_thinking(text, markup)[1]


def overlap(text: str, marker: str) -> int:
    """Return how many characters at the end of `text` may be the start of `marker`."""
    for n in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:n]):
            return n
    return 0


def _calls(body: str, markup: Markup) -> tuple[str, list[dict[str, Any]]]:
    if markup.calls == "hermes":
        return _hermes(body)
    if markup.calls == "llama":
        return _llama(body)
    return body, []


def _hermes(body: str) -> tuple[str, list[dict[str, Any]]]:
    calls: list[dict[str, Any]] = []

    def take(match: re.Match[str]) -> str:
        found = call(match[1], "arguments")
        if found is None:
            return match[0]
        calls.append(found)
        return ""

    return _CALL.sub(take, body), calls


def _llama(body: str) -> tuple[str, list[dict[str, Any]]]:
    """The whole reply is one JSON call, or several divided by `;`."""
    text = body.strip().removeprefix(PYTHON_TAG).removesuffix("<|eom_id|>").strip()
    whole = call(text, "parameters")
    parts = [whole] if whole else [call(part, "parameters") for part in text.split(";")]
    calls = [part for part in parts if part]
    return ("", calls) if calls and len(calls) == len(parts) else (body, [])


def call(text: str, key: str) -> dict[str, Any] | None:
    """Read `{"name": ..., "<key>": {...}}`; None for what is no call."""
    try:
        value = from_json(text, strict=False, finite=True)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    arguments = value.get(key, value.get("arguments", value.get("parameters", {})))
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments, finite=True)
        except ValueError:
            return None
    if not isinstance(arguments, dict):
        return None
    said = json.dumps(arguments, ensure_ascii=False)
    function = {"name": value["name"], "arguments": said}
    return {"id": call_id(), "type": "function", "function": function}
