"""Which conversation a request belongs to, where the client says so.

Owns: headers, body fields and text marks by which known clients name their session.
Does not own: finding the conversation of a client that says nothing (the engine does, from the
messages themselves). The `user` field names a person, not a conversation.
"""

import re
from collections.abc import Mapping
from typing import Any

from claw.sdk import Message

from .errors import bad

KINDS = ("main", "side")
_AFFINITY = ("x-session-affinity", "session_id", "session-id")
_MARK = re.compile(r"^Runtime: .*\bagent=.*\bsessionId=([\w.:-]+)", re.MULTILINE)
_MAX_ID = 256


def session_of(
    headers: Mapping[str, str], body: dict[str, Any], messages: list[Message]
) -> str:
    """Return the session that the client named, or an empty string."""
    named = headers.get("x-session-id") or body.get("session_id")
    if named:
        return checked_id(named, "session_id")
    for name in _AFFINITY:
        if headers.get(name):
            return checked_id(re.sub(r":\d+$", "", headers[name]), name)
    first = next((m["content"] for m in messages if m["role"] == "user"), None) or ""
    mark = _MARK.search(first)
    return mark.group(1)[:_MAX_ID] if mark else ""


def kind_of_turn(headers: Mapping[str, str], body: dict[str, Any]) -> str:
    """Return main, side, or an empty string when the client does not say."""
    said = headers.get("x-turn-type") or body.get("turn_type") or ""
    kind = said.strip().lower() if isinstance(said, str) else said
    if kind and kind not in KINDS:
        raise bad(f"turn_type must be one of: {', '.join(KINDS)}.", "turn_type")
    return str(kind)


def checked_id(value: Any, name: str) -> str:
    """Return a session id that is one printable line."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > _MAX_ID:
        raise bad(f"{name} must be at most {_MAX_ID} printable characters.", name)
    return value.strip()
