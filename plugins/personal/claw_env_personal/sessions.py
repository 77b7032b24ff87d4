"""Which conversation a request belongs to, where the client says so.

Owns: headers, body fields and text marks by which known clients name their session, in order.
Does not own: finding the conversation of a client that says nothing (the engine does, from the
messages themselves). The `user` field names a person, so it counts only together with the words
that the conversation began with.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from claw.sdk import Message
from claw.sdk.app import HELPERS

from .errors import bad

KINDS = ("main", "side", *HELPERS)
_AFFINITY = ("x-session-affinity", "session_id", "session-id")
_MARK = re.compile(r"^Runtime: .*\bagent=.*\bsessionId=([\w.:-]+)", re.MULTILINE)
_KEY = re.compile(r"^Runtime: .*\bsession=([\w:.@-]{1,256})(?: \||$)", re.MULTILINE)
_NUMBER = re.compile(r":\d+$")
_MAX_ID = 256


def session_of(
    headers: Mapping[str, str], body: dict[str, Any], messages: list[Message]
) -> tuple[str, str]:
    """Return the session that the client named and by which mark; two empty strings for none."""
    named = headers.get("x-session-id") or body.get("session_id")
    if named:
        return checked_id(named, "session_id"), "name"
    for name in _AFFINITY:
        if headers.get(name):
            return _without_number(checked_id(headers[name], name)), "affinity"
    cache_key = body.get("prompt_cache_key")
    if isinstance(cache_key, str) and _NUMBER.search(cache_key):  # others name an application
        return _without_number(checked_id(cache_key, "prompt_cache_key")), "affinity"
    first = _first_words(messages)
    mark = _MARK.search(first)
    if mark:
        return mark.group(1)[:_MAX_ID], "runtime line"
    if isinstance(body.get("user"), str) and body["user"]:
        return _of_user(body["user"], first), "user"
    return "", ""


def kin_of(
    headers: Mapping[str, str], body: dict[str, Any], messages: list[Message]
) -> tuple[str, str]:
    """Return how other conversations call this one, and the session that asked for it.

    OpenClaw tells the one who spawned a sub-agent its session key, which is no session id.
    """
    key = _KEY.search(_first_words(messages))
    parent = headers.get("x-parent-session-id") or body.get("parent_session_id") or ""
    return key.group(1) if key else "", checked_id(parent, "parent_session_id")


def _first_words(messages: list[Message]) -> str:
    return _words(next((m["content"] for m in messages if m["role"] == "user"), ""))


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def _without_number(id: str) -> str:
    return _NUMBER.sub("", id)


def _of_user(user: str, first: str) -> str:
    said = json.dumps([user, first]).encode("ascii")  # lone surrogates are escapes here
    return f"user-{hashlib.blake2b(said, digest_size=12).hexdigest()}"


def kind_of_turn(headers: Mapping[str, str], body: dict[str, Any]) -> str:
    """Return one of KINDS, or an empty string when the client does not say."""
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
