"""Words that must not become a lesson unseen: orders, control tokens, secrets, tricks of Unicode.

Owns: bringing a text to one form, and a short pure function for each kind of such words.
Does not own: whose words they are, and what becomes of them (`guard.py`).

Patterns, so both sides err: an order in other words, or in a language that they do not know,
passes, and an honest wish in the same words is held until the person releases it. Every repetition
in a pattern is bounded: the time is linear in the text. Insults, and wishes for a role ("talk like
a pirate"), are taste.
"""

import re
import unicodedata

_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
"""Unicode's default ignorable characters, and those that mark annotations"""
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,10}\U000e007f")
"""the flags of England, Scotland and Wales are written with tag characters"""
_TAG = re.compile("[\U000e0001\U000e0020-\U000e007f]")
_SMUGGLED = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3,}")
"""one variation selector chooses how a character looks; several in a row carry bytes"""
_SPLIT = re.compile("[A-Za-z][\u180e\u200b-\u200f\u2060-\u2064\ufeff]+[A-Za-z]")
_OVERRIDE = re.compile("[\u202d\u202e]")
_EMBEDDING = re.compile("[\u202a\u202b\u2066-\u2069]")
_LOOKALIKE = re.compile(
    "[A-Za-z][{0}]|[{0}][A-Za-z]".format("\u0400-\u04ff\u0391\u0392\u0395-\u0397\u0399\u039a"
                                         "\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"))
"""Cyrillic beside Latin, and of Greek the letters that look Latin: omega and mu are units"""

_MARK = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|\[/?inst\]|<</?sys>>|</?s>|<(?:start|end)_of_turn>"
    r"|</?(?:think|tool_call|tool_response|system|assistant)>"
    r"|^[\s#*>_]{0,8}(?:system|assistant|developer|human)[*_]{0,2}\s{0,4}:",
    re.MULTILINE,
)
_ASIDE = "sets earlier instructions aside"
_ORDERS = (
    (_ASIDE, re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b(?:(?!\b(?:my|our)\b)[^.!?\n]){0,30}"
        r"\b(?:previous|prior|above|earlier|preceding|system|original|safety|your)\b"
        r"[^.!?\n]{0,20}\b(?:instructions?|prompts?|guidelines?|policy|policies|programming"
        r"|training|rules?)\b")),
    (_ASIDE, re.compile(
        r"\b(?:ignorier\w{0,3}|vergi\u00df|vergiss|missachte\w?|umgeh\w{0,2})\b"
        r"(?:(?!\b(?:mein|unser))[^.!?\n]){0,30}"
        r"\b(?:vorherig|bisherig|fr\u00fcher|obig|vorig|dein|urspr\u00fcnglich|system)\w{0,3}\b"
        r"[^.!?\n]{0,20}(?:anweisung|vorgabe|richtlinie|regel|instruktion|prompt)"
        r"|\b(?:ignore[rz]?|oublie[rz]?)\b(?:(?!\b(?:mes|nos)\b)[^.!?\n]){0,30}"
        r"\b(?:instructions|consignes|r\u00e8gles)\b[^.!?\n]{0,12}\b(?:pr\u00e9c\u00e9dentes"
        r"|ant\u00e9rieures|initiales|du\s{1,4}syst\u00e8me)\b"
        r"|\b(?:ignor[ae]|olvid[ae])\b(?:(?!\b(?:mis|nuestras)\b)[^.!?\n]){0,30}"
        r"\b(?:instrucciones|reglas|directrices)\b[^.!?\n]{0,12}\b(?:anteriores|previas|iniciales"
        r"|del\s{1,4}sistema)\b")),
    ("asks for hidden instructions", re.compile(
        r"\b(?:reveal|leak|expose|print|show|repeat|output|quote|tell|give|send|share|display"
        r"|include|append|recite|begin|start|end|say|write|answer|reply)\b[^.!?\n]{0,40}"
        r"\b(?:system|hidden|secret|internal|initial|developer)\s{1,4}(?:prompts?|instructions?)\b")),
    ("makes it somebody else", re.compile(
        r"\byou(?:['\u2019]re|\s{1,4}are)\s{1,4}(?:now|no\s{1,4}longer)\s{1,4}"
        r"(?:an?\s(?!lot\b|bit\b|little\b)|the\s|called\b|named\b|dan\b|free\b|unrestricted\b"
        r"|bound\b|restricted\b|in\s{1,4}\w{1,20}\s{1,4}mode\b)"
        r"|\bjailbr(?:eak|oken)\s{1,4}(?:mode|yourself)\b|\bdo\s{1,4}anything\s{1,4}now\b"
        r"|\b(?:enter|enable|activate|use|switch\s{1,4}(?:in)?to|turn\s{1,4}on|go\s{1,4}into)"
        r"\s{1,4}(?:the\s{1,4}|your\s{1,4})?(?:developer|god|dan|jailbreak)\s{1,4}mode\b"
        r"|\bwithout\s{1,4}(?:any\s{1,4})?(?:restrictions|guardrails|censorship)\b"
        r"(?!\s{1,4}(?:on|of)\b)")),
    ("asks for secrets", re.compile(
        r"\b(?:reveal|leak|expose|exfiltrate|disclose)\b[^.!?\n]{0,40}\b(?:passwords?"
        r"|api\s{0,4}-?keys?|credentials|private\s{1,4}keys?|secrets?)\b"
        r"|\b(?:print|show|tell|give|send|include|output|repeat|share|append)\b[^.!?\n]{0,40}"
        r"\b(?:users?['\u2019]?s?|people['\u2019]s|customers?['\u2019]?s?|everyone['\u2019]s|your)"
        r"\s{1,4}(?:passwords?|api\s{0,4}-?keys?|credentials|private\s{1,4}(?:data|messages|keys?)"
        r"|secrets?)\b")),
)
_TRIGGER = re.compile(
    r"\b(?:whenever|when|if|every\s{1,4}time|each\s{1,4}time|as\s{1,4}soon\s{1,4}as)\b"
    r"[^.!?\n]{0,80}(?:[\"\u201c\u00ab'\u2018][^\n]{1,60}[\"\u201d\u00bb'\u2019]"
    r"|\b(?:word|phrase|string|trigger|code\s?word)\b)[^\n]{0,80}"
    r"\b(?:answer|reply|respond|say|begin|start|output|print|write|approve|return)\b"
)
_SECRET = re.compile(
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAKIA[0-9A-Z]{12,}|\bAIza[0-9A-Za-z_-]{20,}"
    r"|\bhf_[A-Za-z0-9]{20,}|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
    r"|(?i:\b(?:password|passwd|api[ _-]?key|secret[ _-]?key|access[ _-]?token)\b"
    r"\s{0,4}(?:[:=]|is)\s{0,4}[\"'`]?)(?=[^\s\"'`]*\d)[^\s\"'`]{6,}"
)
_LONG = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_HEX = re.compile(r"[0-9a-fA-F]{32,}")


def one_form(text: str) -> str:
    """The text in NFKC, without characters that show nothing, in lower case; lines stay."""
    if text.isascii():
        return text.casefold()
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold()


def plain(text: str) -> str:
    """`one_form`, and all white space is one blank: what two writings of one text share."""
    return " ".join(one_form(text).split())


def control(text: str) -> str:
    """Role markers and the control tokens of chat templates."""
    found = _MARK.search(one_form(text))
    return f"a role marker or control token, {found[0].strip()!r}" if found else ""


def order(text: str) -> str:
    """Orders about what the assistant is, must keep to itself, or was told before."""
    form = one_form(text)
    return next((f"it {what}" for what, pattern in _ORDERS if pattern.search(form)), "")


def trigger(text: str) -> str:
    """A word, in quotes or called a word, upon which something is to be said: a backdoor's form."""
    return "an answer that a certain word sets off" if _TRIGGER.search(one_form(text)) else ""


def trick(text: str) -> str:
    """Characters that hide words, turn them round, or look like others."""
    bare = _FLAG.sub("", text)
    if _TAG.search(bare) or _SMUGGLED.search(bare):
        return "characters that show nothing and carry text"
    if _SPLIT.search(bare):
        return "characters that show nothing inside a word"
    if _OVERRIDE.search(bare) or (_EMBEDDING.search(bare) and not _is_rtl(bare)):
        return "characters that turn the order of the text round"
    return "letters of two alphabets in one word" if _LOOKALIKE.search(bare) else ""


def _is_rtl(text: str) -> bool:
    return any(unicodedata.bidirectional(c) in ("R", "AL") for c in text)


def secret(text: str) -> str:
    """Keys, tokens, passwords, and long strings that nobody says as words."""
    form = unicodedata.normalize("NFKC", text)
    if _SECRET.search(form):
        return "what looks like a key or password"
    return "a long string of code" if any(map(_is_code, _LONG.findall(form))) else ""


def _is_code(word: str) -> bool:
    """Hexadecimal, or letters of both cases with digits; paths and long words are neither."""
    if _HEX.search(word):
        return True
    kinds = (str.islower, str.isupper, str.isdigit)
    return len(word) >= 40 and all(any(map(kind, word)) for kind in kinds)


def masked(text: str) -> str:
    """The text for a list: what looks like a secret is shown by its first characters."""
    def short(found: re.Match[str]) -> str:
        return found[0][:4] + "…"

    text = _SECRET.sub(short, text)
    return _LONG.sub(lambda m: short(m) if _is_code(m[0]) else m[0], text)
