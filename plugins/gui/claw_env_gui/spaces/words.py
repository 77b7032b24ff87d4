"""The three words that every space of text knows, and the blocks that replies are written in."""

import re

from claw.sdk import Message

from ..actions import DONE, FAIL, Action, pause

WORDS = {"WAIT": pause(2.0), "DONE": Action(DONE), "FAIL": Action(FAIL)}
_BLOCK = re.compile(r"```[a-z]*[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
_LAST = re.compile(r"(?:^|\n)\W*(WAIT|DONE|FAIL)\W*\Z")


def text_of(reply: Message) -> str:
    """Return the text of a reply without its thinking."""
    content = reply.get("content")
    if isinstance(content, list):
        content = "\n".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    return re.sub(r"\A\s*<think>.*?(?:</think>|\Z)", "", str(content or ""), flags=re.DOTALL)


def blocks(text: str) -> list[str]:
    """Return what stands between ``` marks; an open last block goes as far as it goes."""
    return [block.strip() for block in _BLOCK.findall(text) if block.strip()]


def last_word(text: str) -> Action | None:
    """Return the action of a word that stands alone at the end."""
    found = _LAST.search(text)
    return WORDS[found[1]] if found else None
