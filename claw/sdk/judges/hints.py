"""A person's own words in a message, and the hint that can be made of them.

Takes out what the person only passes on: quotations, code, logs, pasted text. Judges nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from claw.records import Message

MAX_OWN_CHARS = 4000
"""of a long message, so much is read at its start and at its end"""
MAX_LINE_CHARS = 2000
"""a longer line is pasted text: nobody types it"""
MAX_SENTENCE_CHARS = 400
MAX_HINT_SENTENCES = 3
MIN_HINT_CHARS = 10
"""a hint is longer than this"""


@dataclass(frozen=True, slots=True)
class Sentence:
    text: str
    """as the person wrote it"""
    own: str
    """the same, quoted characters replaced by underscores"""
    asks: bool
    """whether it ends with a question mark"""


def text_of(message: Message) -> str:
    """Return a message's text parts, lone surrogates and control characters replaced."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return _clean("\n".join(text for text in texts if isinstance(text, str)))


def sentences(text: str) -> list[Sentence]:
    """Return the person's own sentences, in order; of a long message its start and end."""
    own = _own_lines(text)
    if len(own) > 2 * MAX_OWN_CHARS:
        own = f"{own[:MAX_OWN_CHARS]}\n{own[-MAX_OWN_CHARS:]}"
    masked = _QUOTED.sub(lambda match: "_" * len(match[0]), own)
    found, start = [], 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(masked)), len(masked)]:
        found += _pieces(own, masked, start, end)
        start = end
    return found


def hint(chosen: Iterable[Sentence]) -> tuple[str, ...]:
    """Return one hint of at most three sentences, or nothing when too little is said."""
    cleaned = [tidy(sentence.text) for sentence in chosen]
    text = " ".join(dict.fromkeys(sentence for sentence in cleaned if sentence))
    return (text,) if len(text) > MIN_HINT_CHARS else ()


def tidy(sentence: str) -> str:
    """Return the sentence without thanks, greetings and `could you please`, as a statement."""
    text = _BULLET.sub("", " ".join(sentence.split()))
    polite = False
    while match := _POLITE.match(text):
        polite = polite or bool(match["ask"])
        text = text[match.end() :]
    text = _PLEASE.sub("", text)
    if polite:
        text = text.rstrip("? ")
    if not text.strip(" .,!?;:-"):
        return ""
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text.rstrip(" ,;:-") + "."


def _clean(text: str) -> str:
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROL.sub(" ", _ANSI.sub("", whole))


def _own_lines(text: str) -> str:
    lines, fence = [], ""
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and not _is_pasted(line):
            intro = _INTRODUCES.match(line)
            lines.append(intro[0] if intro else line)
            if intro:
                break
    return "\n".join(lines)


def _is_pasted(line: str) -> bool:
    return len(line) > MAX_LINE_CHARS or bool(_PASTED.match(line))


def _pieces(own: str, masked: str, start: int, end: int) -> list[Sentence]:
    found = []
    for first in range(start, end, MAX_SENTENCE_CHARS):
        piece = slice(first, min(first + MAX_SENTENCE_CHARS, end))
        words = masked[piece].strip()
        if words.strip(" .,;:-_*\n"):
            found.append(Sentence(own[piece].strip(), words, words.rstrip(" )!").endswith("?")))
    return found


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_QUOTED = re.compile(
    r'"[^"\n]{1,600}"|\u201c[^\u201d\n]{1,600}\u201d|\u00ab[^\u00bb\n]{1,600}\u00bb|`[^`\n]{1,600}`'
    r"|(?<!\w)'(?:[^'\n]|'(?=\w)){2,600}'(?!\w)|(?<!\w)\u2018[^\u2018\n]{2,600}\u2019(?!\w)"
)
_SENTENCE_END = re.compile(r"[.!?;]+[)\u2019\u201d\"']?(?=\s)|\n+|(?<=\w)\s+-+\s+(?=\w)")
_BULLET = re.compile(r"(?:[-*+\u2022]|\(?\d{1,2}[.)])\s+")
_PASTED = re.compile(
    r"\s*>|(?:\t| {4,})(?!\s*(?:[-*+]|\d{1,2}[.)])\s)|\s*(?:Traceback \(most|File \".{1,200}\", line"
    r"|at [\w.$<>]{1,200}\(|\d{4}-\d\d-\d\d[T ]\d\d:|\$ |[\w.]{0,80}(?:Error|Exception): "
    r"|\[?(?:ERROR|WARN|WARNING|INFO|DEBUG)\]?[: ])"
)
_INTRODUCES = re.compile(
    r"\s*(?:(?:ok|okay|now|please|next|thanks|great|and|can you|could you|would you|also|then)[,!.]?"
    r"\s+){0,4}(?:(?:translate|summari[sz]e|proofread|read|analy[sz]e|check|review|correct|improve"
    r"|rewrite|edit|explain|reply to|answer|respond to|classify|look at|consider|paraphrase)"
    r"(?!\s+(?:it|that|your)\b)|here(?:'s| is| are)(?! what| how| why| the problem| the issue"
    r"| my feedback)|i (?:get|got|see)|(?:it|terminal|console|compiler) (?:says|prints|shows|gives))"
    r"[^:\n]{0,120}:(?=\s|$)",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"(?:(?:ok(?:ay)?|hi|hey|hello|hm+|oh|well|so|and|but|however|though|also|actually|great|nice"
    r"|good|perfect|cool|awesome|excellent|alright|right|yes|no|nope|sorry|please|pls|kindly|just"
    r"|(?:many )?thank(?:s| you)(?: so much| a lot| very much| again)?(?: for [^,.;:!]{1,60})?)"
    r"(?:\s*[,!.;:-]+\s*|\s+(?=but\b|please\b|could\b|can\b|would\b|make\b|though\b|you\b))"
    r"|(?:but|and|so|please|kindly)\s+"
    r"|(?P<ask>(?:can|could|would|will) you (?:please |maybe |perhaps |kindly |just |possibly )?"
    r"(?!mind|not\b|have|be\b|like|prefer))|(?:i would|i'd) like you to |i (?:want|need) you to )",
    re.IGNORECASE,
)
_PLEASE = re.compile(
    r",?\s+(?:please|pls|thanks|thank you|if possible|if you can)(?=[.!?]*$)", re.IGNORECASE
)
