"""What the policy sees: the instruction, then the screen after each of its replies.

Owns: the messages, and which of the older observations stay in them.
Does not own: taking screenshots, the tree's lines.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from claw.sdk import Message

from . import tree
from .machine import Machine
from .settings import GuiConfig
from .spaces import SPACES

GONE = "[this screen is no longer shown]"


@dataclass(frozen=True, slots=True)
class Screen:
    """One observation."""

    picture: bytes
    """PNG; taken whatever the policy sees, for trajectories and judges"""
    text: str
    """windows and tree; empty where only pictures are seen"""


def look(machine: Machine, config: GuiConfig) -> Screen:
    """Return what is on the screen now."""
    picture = machine.screenshot()
    if config.observation == "screenshot":
        return Screen(picture, "")
    windows = machine.windows()
    titles = "; ".join(w.title + (" (active)" if w.is_active else "") for w in windows) or "none"
    lines = tree.lines(machine.nodes(), machine.size, max_lines=config.max_tree_lines,
                       max_chars=config.max_tree_chars)
    return Screen(picture, f"Windows: {titles}\n{lines}")


def first(instruction: str, screen: Screen, config: GuiConfig) -> list[Message]:
    """Return the messages at the start."""
    prompt = SPACES[config.actions].PROMPT
    if config.actions != "computer_use":
        prompt = prompt.format(width=config.width, height=config.height)
    return [{"role": "system", "content": prompt},
            message(f"Task: {instruction}", screen, config)]


def message(said: str, screen: Screen, config: GuiConfig, **more: Any) -> Message:
    """Return what the policy sees next: words, then the screen."""
    words = "\n".join(part for part in (said, "The screen:" if screen.text else "") if part)
    text = f"{words}\n{screen.text}" if screen.text else words
    if config.observation == "tree":
        return {"role": "user", "content": text, **more}
    return {"role": "user", "content": [
        *([{"type": "text", "text": text}] if text else []), image(screen.picture)], **more}


def image(picture: bytes) -> dict[str, Any]:
    """Return a PNG as a content part."""
    url = "data:image/png;base64," + base64.b64encode(picture).decode("ascii")
    return {"type": "image_url", "image_url": {"url": url}}


def shown(messages: Sequence[Message], keep: int) -> list[Message]:
    """Return a conversation with only the newest `keep` screens in it."""
    made = [dict(m) for m in messages]
    places = [i for i, m in enumerate(made) if m.get("role") == "user"]
    for i in places[:-keep]:
        made[i]["content"] = _without_screen(made[i].get("content"))
    return made


def _without_screen(content: Any) -> str:
    if isinstance(content, list):
        content = "\n".join(str(p["text"]) for p in content if p.get("type") == "text")
    words, mark, _ = str(content or "").partition("The screen:\n")
    return f"{words.rstrip()}\n{GONE}".lstrip() if mark or not words else f"{words}\n{GONE}"
