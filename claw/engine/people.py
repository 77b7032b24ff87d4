"""The people of a run: whose key is whose, and how much each may ask.

Owns: people.json in the run folder, which only its owner can read; making and checking keys.
Does not own: what a person may see (the plugin), counting what they use (actor.meter).

The run's own key is the administrator's; everybody else has one that was made here. Of a key only
its sha256 is kept: it is drawn from 192 random bits, so no list of guesses finds it. Each person is
one owner: of conversations, versions, and an adapter on the base that all share.
"""

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from claw.errors import UsageError
from claw.records import DEFAULT_OWNER
from claw.sdk.app import SCOPES, Person

FILE = "people.json"
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
MAX_PEOPLE = 10_000
MAX_LIMIT = 10**12
MAX_KEY = 512
"""characters of a key that is looked at"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the file."""

    person: Person
    digest: str
    """sha256 of the key, hex"""
    created: float


class People:
    """Reads the file again when it changed, so that a key counts at once and no longer at once."""

    def __init__(self, run_dir: Path, key: str = "") -> None:
        """`key` is the run's own; without one everybody is its administrator."""
        self._file, self._key = run_dir / FILE, key
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, Entry] = {}
        self._by_digest: dict[str, Entry] = {}

    def of(self, key: str) -> Person | None:
        """Whose key this is; None: nobody's."""
        given = key.strip()[:MAX_KEY].encode("utf-8", "replace")
        if not self._key or hmac.compare_digest(given, self._key.encode()):
            return Person()
        self._read()
        digest = hashlib.sha256(given).hexdigest()
        found = self._by_digest.get(digest)
        return found.person if found and hmac.compare_digest(found.digest, digest) else None

    def named(self, name: str) -> Person | None:
        """The person of that name as they are now."""
        if name == DEFAULT_OWNER:
            return Person()
        self._read()
        return self._entries[name].person if name in self._entries else None

    def secret(self, name: str = DEFAULT_OWNER) -> str:
        """What changes with a person's key and tells nothing of it: to sign their sessions with.

        Empty: nobody is called so, or the run has no key.
        """
        if name == DEFAULT_OWNER:
            return hashlib.sha256(self._key.encode()).hexdigest() if self._key else ""
        self._read()
        return self._entries[name].digest if name in self._entries else ""

    def all(self) -> list[Entry]:
        """Everybody but the administrator, by name."""
        self._read()
        return sorted(self._entries.values(), key=lambda e: e.person.name)

    # --- changes -----------------------------------------------------------------------------

    def add(self, person: Person) -> str:
        """Let a person in; return their key, which is shown this once. UsageError: not so."""
        check_name(person.name)
        check_limits(person)
        if not person.scopes or not set(person.scopes) <= set(SCOPES):
            raise UsageError("not the scopes of a key", found=", ".join(person.scopes) or "none",
                             allowed=f"one or more of {', '.join(SCOPES)}")
        key = f"sk-claw-{secrets.token_urlsafe(24)}"
        with self._changing() as entries:
            if person.name in entries:
                raise UsageError("there is a person of this name", found=person.name,
                                 do=f"claw people remove {person.name}, for a new key")
            if len(entries) >= MAX_PEOPLE:
                raise UsageError("a run has so many people and no more",
                                 found=str(len(entries)), allowed=str(MAX_PEOPLE))
            digest = hashlib.sha256(key.encode()).hexdigest()
            entries[person.name] = Entry(person, digest, time.time())
        return key

    def budget(
        self, name: str, *, requests_per_minute: int | None = None,
        tokens_per_day: int | None = None, is_paused: bool | None = None,
    ) -> Person:
        """Change what a person may use, from their next request on; None leaves it as it is."""
        limits = {"requests_per_minute": requests_per_minute, "tokens_per_day": tokens_per_day,
                  "is_paused": is_paused}
        given = {k: v for k, v in limits.items() if v is not None}
        with self._changing() as entries:
            if (old := entries.get(name)) is None:
                raise _nobody(name, entries)
            person = replace(old.person, **given)  # type: ignore[arg-type]
            check_limits(person)
            entries[name] = replace(old, person=person)
        return person

    def remove(self, name: str) -> None:
        """Their key opens nothing any more; what they said and taught stays."""
        with self._changing() as entries:
            if entries.pop(name, None) is None:
                raise _nobody(name, entries)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Entry]]:
        lock = os.open(self._file.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            entries = dict(self._entries)
            yield entries
            self._write(entries)
        finally:
            os.close(lock)

    def _write(self, entries: dict[str, Entry]) -> None:
        rows = [asdict(e.person) | {"key_sha256": e.digest, "created": e.created}
                for e in entries.values()]
        part = self._file.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump({"people": rows}, out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        part.replace(self._file)

    def _read(self) -> None:
        try:
            stat = self._file.stat()
        except FileNotFoundError:
            self._stamp, self._entries, self._by_digest = None, {}, {}
            return
        if self._stamp == (stat.st_mtime_ns, stat.st_ino):
            return
        if stat.st_mode & 0o077:
            raise UsageError("the file of people is readable by others", found=str(self._file),
                             do=f"chmod 600 {self._file}")
        rows = json.loads(self._file.read_text(encoding="utf-8"))["people"]
        entries = [_entry(row) for row in rows]
        self._entries = {e.person.name: e for e in entries}
        self._by_digest = {e.digest: e for e in entries}
        self._stamp = (stat.st_mtime_ns, stat.st_ino)


def _entry(row: dict[str, Any]) -> Entry:
    values = dict(row)
    digest, created = str(values.pop("key_sha256")), float(values.pop("created"))
    values["scopes"] = tuple(values.get("scopes", SCOPES))  # older files know none: all
    return Entry(Person(**values), digest, created)


def _nobody(name: str, entries: dict[str, Entry]) -> UsageError:
    return UsageError("nobody is called so", found=name,
                      allowed=", ".join(sorted(entries)[:20]) or "there is nobody yet")


def check_limits(person: Person) -> None:
    """Refuse a limit that is no count."""
    for name in ("requests_per_minute", "tokens_per_day"):
        if not 0 <= getattr(person, name) <= MAX_LIMIT:
            raise UsageError(f"{name} is a count", found=str(getattr(person, name)),
                             allowed=f"0, which is no limit, to {MAX_LIMIT}")


def check_name(name: str) -> None:
    """Refuse a name that cannot be a folder's, or is the administrator's."""
    if not NAME.fullmatch(name) or name == DEFAULT_OWNER:
        raise UsageError("not a name for a person", found=repr(name), allowed="at most 40 small "
                         f"letters, digits and _ . - , other than {DEFAULT_OWNER!r}")
