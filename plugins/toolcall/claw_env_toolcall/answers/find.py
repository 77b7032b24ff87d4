"""The answer in a reply.

Owns: which part of the text is the answer, strict and lenient.
Does not own: whether it is right (`check`).
"""

import re

BOX = "\\boxed{"
_SAID = re.compile(r"(?:final\s+)?answer\s*(?:is)?\s*[:=]\s*(.+)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_TAIL = 4000
"""characters at the end of a reply in which an answer is looked for"""


def find(text: str, mode: str) -> str | None:
    """Return the answer, or None. strict: the last box. lenient: what else a reader would take."""
    text = text[-_TAIL:]
    answer = boxed(text)
    return lenient(text) if answer is None and mode == "lenient" else answer


def boxed(text: str) -> str | None:
    """Return what stands in the last complete \\boxed{}, inner braces kept."""
    at = text.rfind(BOX)
    while at >= 0:
        inner = _to_closing(text[at + len(BOX) :])
        if inner is not None:
            return inner.strip()
        at = text.rfind(BOX, 0, at)
    return None


def lenient(text: str) -> str | None:
    """Return what follows the last `Answer:`, else the last number, else the last line."""
    if said := _SAID.findall(text):
        return str(said[-1]).strip().rstrip(".").strip("$ ") or None
    if numbers := _NUMBER.findall(text):
        return str(numbers[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def _to_closing(text: str) -> str | None:
    depth = 1
    for i, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return text[:i]
    return None
