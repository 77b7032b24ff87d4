"""Sampled text -> reply: thinking, tool calls and what the person sees.

Owns: thinking, and what may be shown while a reply streams.
Does not own: ids, templates, how calls are written (`families.py`).
"""

from dataclasses import dataclass
from typing import Any

from claw.engine.actor.families import FAMILIES
from claw.records import FinishReason, Message

THINK, THINK_END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Markup:
    """What to look for in one reply."""

    calls: str = ""
    """the family by which calls are read; empty: none are"""
    thinks: bool = False
    starts_thinking: bool = False
    """the prompt itself opened `<think>`"""
    tools: tuple[dict[str, Any], ...] = ()
    """of the request: some families write values without their types"""


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
    family = FAMILIES.get(markup.calls)
    body = after_thinking(text, markup)
    if family is None:
        return body
    if family.begins and body.lstrip()[:1] in ("", *family.begins):
        return ""
    for mark in family.marks:
        cut = body.find(mark)
        body = body[:cut] if cut >= 0 else body[: len(body) - overlap(body, mark)]
    return body


def after_thinking(text: str, markup: Markup) -> str:
    """Return what follows the thinking, empty while that may go on."""
    head = text.lstrip()
    may_think = markup.starts_thinking or THINK.startswith(head[: len(THINK)])
    if markup.thinks and may_think and THINK_END not in text:
        return ""
    return split_thinking(text, markup)[1]


def first_call(text: str, markup: Markup) -> int:
    """Return where the first call has ended, or -1."""
    family = FAMILIES.get(markup.calls)
    if family is None or not family.ends:
        return -1
    body = after_thinking(text, markup)
    starts = [at for mark in family.marks if (at := body.find(mark)) >= 0]
    end = body.find(family.ends, min(starts)) if starts else -1
    return -1 if end < 0 else len(text) - len(body) + end + len(family.ends)


def overlap(text: str, marker: str) -> int:
    """Return how many characters at the end of `text` may be the start of `marker`."""
    for n in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:n]):
            return n
    return 0


def _calls(body: str, markup: Markup) -> tuple[str, list[dict[str, Any]]]:
    if not markup.calls:
        return body, []
    return FAMILIES[markup.calls].read(body, markup.tools)
