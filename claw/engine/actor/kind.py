"""Is a request the person's own turn, or a client's helper call?

Owns: the rules and their counters. What nobody recognises is the person's.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from claw.engine.actor import speech
from claw.records import Message, TurnKind
from claw.sdk.app import HELPERS

PROBE_TOKENS = 5
"""a lone message that wants so few tokens only asks whether somebody is there"""
GREETING_TOKENS = 16
"""and so does a lone greeting that wants hardly more"""
SEARCHED = 2000
"""characters at each end of a message that are searched for the marks of a helper call"""
SUBAGENT = "main by setting: subagent"
"""the rule of a turn whose request the policy itself wrote, learned from all the same"""
WARN_AFTER = 10
"""requests, none of them trainable, before the run says so"""

_HEARTBEAT = re.compile(r"HEARTBEAT_OK|^\[?(?:openclaw\s{1,4})?heartbeat\b"
                        r"|^Follow the heartbeat monitor\b", re.IGNORECASE)
"""not the file HEARTBEAT.md alone: people ask for changes of it"""
_GREETING = re.compile(r"^\W*(hi|hello|hey|ping|test)\W*$", re.IGNORECASE)
_ECHO = re.compile(r"^\W*(?:please )?(?:reply|respond|answer) with (?:exactly|only)\b.{0,60}$",
                   re.IGNORECASE)
"""a lone wish for given words: `openclaw infer model run` asks for "pong" in this way"""
_STAMP = r"^\s*(?:\[[^\]\n]*\d{4}-\d\d-\d\d[^\]\n]*\]\s*)?"
_CRON = re.compile(_STAMP + r"\[cron:")
_SUBAGENT = re.compile(_STAMP + r"\[Subagent (Context|Task)\]")
_FLUSH = re.compile(r"\bpre-compaction memory flush\b", re.IGNORECASE)
_HELPER = re.compile(
    r"(\b(generate|create|write|provide|suggest|give)\b.{0,60}\b(title|headline|name|tags?)\b"
    r".{0,80}\b(chat|conversation|session|thread|dialog(ue)?)\b)"
    r"|(\b(chat|conversation|session|thread)\s+title\b)|(\bfilename slug\b)"
    r"|(\bsummar(y|i[sz](e|ation))\b.{0,80}\b(chat|conversation|session|thread|dialog(ue)?|history)\b)"
    r"|(\bsuggest\b.{0,60}\bfollow-?up\b.{0,60}\bquestions?\b)",
    re.IGNORECASE | re.DOTALL,
)
_HELPER_WORDS = ("title", "headline", "name", "tag", "slug", "summar", "suggest")
"""without one of these nothing matches _HELPER, which takes longer than all the rest"""
_TRANSCRIPT = re.compile(r"<chat_history>|<conversation>|^### Task:", re.IGNORECASE | re.MULTILINE)


class Kinds:
    """Decides main or side, and counts by which rule."""

    def __init__(self, *, learns_subagents: bool = False) -> None:
        """`learns_subagents`: what a sub-agent says is learned from like an answer to a person."""
        self._learns_subagents = learns_subagents
        self.counts: Counter[str] = Counter()

    def decide(
        self, given: str, messages: Sequence[Message], tools: Sequence[Any], max_tokens: int
    ) -> tuple[TurnKind, str]:
        """Return the kind and the rule that decided it."""
        kind, rule = _decide(given, messages, tools, max_tokens)
        if self._learns_subagents and rule.endswith(": subagent"):
            kind, rule = TurnKind.MAIN, SUBAGENT
        self.counts[rule] += 1
        return kind, rule

    def warning(self) -> str:
        """Return a warning when many requests came and none can be trained, else nothing."""
        total = self.counts.total()
        main = sum(n for rule, n in self.counts.items() if rule.startswith("main"))
        if total < WARN_AFTER or main:
            return ""
        causes = ", ".join(f"{n} {rule}" for rule, n in self.counts.most_common())
        return (f"{total} requests, none trainable: every one was a side turn ({causes}); "
                "check the turn type that the client sends")


def _decide(
    given: str, messages: Sequence[Message], tools: Sequence[Any], max_tokens: int
) -> tuple[TurnKind, str]:
    if given in ("main", "side"):
        return TurnKind(given), f"{given} by name"
    if given in HELPERS:
        return TurnKind.SIDE, f"side by name: {given}"
    spoken = speech.words(messages)
    users = [speech.own_words(m) for m in spoken if m.get("role") == "user"]
    if any(speech.is_routed(m) for m in spoken[-1:]):
        return TurnKind.MAIN, "main by text: a sub-agent's result"
    last = _ends(users[-1]) if users else ""
    for name, mark in (("heartbeat", _HEARTBEAT), ("cron", _CRON), ("memory flush", _FLUSH),
                       ("subagent", _SUBAGENT)):
        if mark.search(last):
            return TurnKind.SIDE, f"side by text: {name}"
    if users and _SUBAGENT.search(users[0][:SEARCHED]):
        return TurnKind.SIDE, "side by text: subagent"
    limit = GREETING_TOKENS if _GREETING.match(last) else PROBE_TOKENS
    is_bare = len(messages) == 1 and not tools
    if (len(messages) == 1 and max_tokens <= limit) or (is_bare and _ECHO.match(last)):
        return TurnKind.SIDE, "side: probe"
    is_lone = len(spoken) <= 1 or bool(_TRANSCRIPT.search(last))
    if is_lone and not tools and _helps(_instruction(messages, last)):
        return TurnKind.SIDE, "side by text: title or summary"
    return TurnKind.MAIN, "main by default"


def _helps(instruction: str) -> bool:
    folded = instruction.lower()
    return any(word in folded for word in _HELPER_WORDS) and bool(_HELPER.search(instruction))


def _ends(text: str) -> str:
    """Helper calls say what they are at their start or end; megabytes between are not searched."""
    return text if len(text) <= 2 * SEARCHED else f"{text[:SEARCHED]}\n{text[-SEARCHED:]}"


def _instruction(messages: Sequence[Message], last: str) -> str:
    """Helper calls say what they want at the start of the system or the user message."""
    system = next((speech.text(m.get("content")) for m in messages
                   if m.get("role") in ("system", "developer")), "")
    return f"{system[:600]}\n\n\n{last[:600]}\n{last[-300:]}"
