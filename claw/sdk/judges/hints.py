"""A person's own words in a message, and the hint that can be made of them.

Takes out what the person only passes on: quotations, code, logs, pasted text. Judges nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from claw.records import Message

MAX_EDGE_CHARS = 50_000
"""a message longer than twice this is cut in the middle before anything else"""
MAX_OWN_CHARS = 3000
"""of the person's own words, so many are read from the start and from the end"""
MAX_LINE_CHARS = 2000
"""a longer line is pasted text: nobody types it"""
MAX_SENTENCE_CHARS = 400
MAX_SENTENCES = 200
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
    own = _own_lines(_without_middle(text))
    if len(own) > 2 * MAX_OWN_CHARS:
        own = f"{own[:MAX_OWN_CHARS]}\n{own[-MAX_OWN_CHARS:]}"
    masked = _QUOTED.sub(lambda match: "_" * len(match[0]), own)
    found, start = [], 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(masked)), len(masked)]:
        found += _pieces(own, masked, start, end)
        start = end
    return (
        found
        if len(found) <= MAX_SENTENCES
        else found[: MAX_SENTENCES // 2] + found[-MAX_SENTENCES // 2 :]
    )


def hint(chosen: Iterable[Sentence]) -> tuple[str, ...]:
    """Return one hint of at most three sentences, or nothing when too little is said."""
    cleaned = [tidy(sentence.text) for sentence in chosen]
    text = " ".join(dict.fromkeys(sentence for sentence in cleaned if sentence))
    return (text,) if len(text) > MIN_HINT_CHARS else ()


def tidy(sentence: str) -> str:
    """Return the sentence without thanks, greetings and `could you please`, as a statement."""
    text = _SIGNS.sub("", _BULLET.sub("", " ".join(sentence.split())))
    polite = False
    while match := _POLITE.match(text):
        polite = polite or bool(match["ask"])
        text = text[match.end() :]
    text = _PLEASE.sub("", text)
    if polite:
        text = re.sub(r"^not\b", "do not", text.rstrip("? "))
    if not text.strip(" .,!?;:-"):
        return ""
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text.rstrip(" ,;:-") + "."


def _clean(text: str) -> str:
    paired = _PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return _CONTROL.sub(" ", _ANSI.sub("", _LONE.sub("\ufffd", paired)))


def _without_middle(text: str) -> str:
    """A huge message's start and end; a code fence that the middle closes stays closed."""
    if len(text) <= 2 * MAX_EDGE_CHARS:
        return text
    middle = text[MAX_EDGE_CHARS:-MAX_EDGE_CHARS]
    fence = "```\n" * (middle.count("\n```") % 2)
    return f"{text[:MAX_EDGE_CHARS]}\n{fence}{text[-MAX_EDGE_CHARS:]}"


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


_PAIR = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile(r"[\ud800-\udfff]+")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_QUOTED = re.compile(
    r'"[^"\n]{1,600}"|\u201c[^\u201d\n]{1,600}\u201d|\u00ab[^\u00bb\n]{1,600}\u00bb|`[^`\n]{1,600}`'
    r"|(?<!\w)'(?:[^'\n]|'(?=\w)){2,600}'(?!\w)|(?<!\w)\u2018[^\u2018\n]{2,600}\u2019(?!\w)"
)
_SENTENCE_END = re.compile(r"[.!?;]+[)\u2019\u201d\"']?(?=\s)|\n+|(?<=\w)\s+-+\s+(?=\w)")
_BULLET = re.compile(r"(?:[-*+\u2022]|\(?\d{1,2}[.)])\s+")
_SIGNS = re.compile(r"^[^\w\"'(\u201c\u2018]+")
_PASTED = re.compile(
    r"\s*>|(?:\t| {4,})(?!\s*(?:[-*+]|\d{1,2}[.)])\s)|\s*(?:Traceback \(most"
    r"|File \".{1,200}\", line"
    r"|at [\w.$<>]{1,200}\(|\d{4}-\d\d-\d\d[T ]\d\d:|\$ |[\w.]{0,80}(?:Error|Exception): "
    r"|\[?(?:ERROR|WARN|WARNING|INFO|DEBUG)\]?[: ])"
)
_INTRODUCES = re.compile(
    r"\s*(?:(?:ok|okay|now|please|next|thanks|great|and|can you|could you|would you|also"
    r"|then)[,!.]?\s+){0,4}(?:(?:(?:translate|summari[sz]e|proofread|read|analy[sz]e|check|review"
    r"|correct|improve|rewrite|edit|explain|reply to|answer|respond to|classify|look at|consider"
    r"|paraphrase)(?!\s+(?:it|that|your)\b|[^:\n]{0,120}\b(?:like this|as follows|this way)\b)"
    r"|here(?:'s| is| are)(?! what| how| why| the problem| the issue| my feedback))"
    r"[^:\n]{0,120}:(?=\s|$)|(?:i (?:get|got|see)|(?:it|terminal|console|compiler) (?:says|prints"
    r"|shows|gives))[^:\n]{0,120}:\s*$)",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"(?:(?:ok(?:ay)?|hi|hey|hello|hm+|oh|well|so|and|but|however|though|also|actually|(?:great"
    r"|nice|good"
    r"|excellent)(?: (?:job|start|work|try|answer|one|idea))?|perfect|cool|awesome|alright|right"
    r"|yes|no|nope|sorry|please|pls|kindly|just"
    r"|(?:many )?th(?:x|anks|ank you)(?: so much| a lot| very much"
    r"| again)?(?: for [^,.;:!]{1,60})?)"
    r"(?:\s*[,!.;:-]+\s*|\s+(?=but\b|please\b|could\b|can\b|would\b|make\b|though\b|you\b))"
    r"|(?:but|and|so|please|kindly|however|though)\s+"
    r"|[^.!?;:]{0,40}?\b(?:loved?|liked|i like|i really like|good|great|nice|perfect|better|fine"
    r"|thx|thanks|thank you)\b[^.!?;:]{0,30}?,?\s+(?:but|however)\b,?\s+"
    r"|(?P<ask>(?:can|could|would|will) you (?:please |maybe |perhaps |kindly |just |possibly )?"
    r"(?!mind|not\b|have|be\b|like|prefer))|(?:i would|i'd) like you to |i (?:want|need) you to )",
    re.IGNORECASE,
)
_PLEASE = re.compile(
    r",?\s+(?:please|pls|thanks|thank you|if possible|if you can)(?=[.!?]*$)", re.IGNORECASE
)
