"""Which versions exist, which one serves, and which worker still lacks it.

Owns: the table of versions, the newest good one, what to tell a worker.
Does not own: weights (trainer and workers), rolling back (the trainer makes the new version).
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from claw.engine.actor.journal import Journal
from claw.records import Version, VersionStatus

Key = tuple[str, str]
ASK_AGAIN_S = 30.0
"""a worker that was told to load a version is not told again within this time"""


class Published:
    """Versions by (owner, adapter) and number."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._table: dict[Key, dict[int, Version]] = {}
        self._told: dict[tuple[bytes, Key, int], float] = {}
        self._refused_by: set[tuple[bytes, Key, int]] = set()
        for version in journal.versions():
            self._table.setdefault(_key(version), {})[version.number] = version

    def put(self, version: Version) -> None:
        """Take a version, or a newer word about a known one."""
        known = self._table.setdefault(_key(version), {})
        if known.get(version.number) != version:
            self._journal.put_version(version)
            known[version.number] = version

    def newest(self, owner: str, adapter: str = "default") -> int:
        """Return the number of the newest good version; 0 are the first weights."""
        good = self.good(owner, adapter)
        return good.number if good else 0

    def good(self, owner: str, adapter: str = "default") -> Version | None:
        """Return the version that should serve, or None when only the first weights do."""
        known = self._table.get((owner, adapter), {})
        fine = [v for v in known.values() if v.status is VersionStatus.PUBLISHED]
        return max(fine, key=lambda v: v.number, default=None)

    def roll_back(self, made: Version, to: int) -> None:
        """Take the version that a rollback made; those between are rolled back."""
        for version in list(self._table.get(_key(made), {}).values()):
            if to < version.number < made.number and version.status is VersionStatus.PUBLISHED:
                self.put(replace(version, status=VersionStatus.ROLLED_BACK))
        self.put(made)

    def refuse(self, peer: bytes, key: Key, number: int, why: str) -> None:
        """A worker will not load a version: it serves nowhere, an older one stays."""
        self._refused_by.add((peer, key, number))
        version = self._table.get(key, {}).get(number)
        if version is not None and version.status is VersionStatus.PUBLISHED:
            self.put(replace(version, status=VersionStatus.REFUSED, note=why[:500]))

    def lacking(self, peer: bytes, served: Iterable[Any]) -> list[Version]:
        """Return the versions that a worker should be told to load now."""
        has = {(str(o), str(a), int(n)) for o, a, n in served}
        now, missing = time.monotonic(), []
        for key in self._table:
            good = self.good(*key)
            if good is None or not good.path or (*key, good.number) in has:
                continue
            told = (peer, key, good.number)
            if told in self._refused_by or now - self._told.get(told, -1e9) < ASK_AGAIN_S:
                continue
            self._told[told] = now
            missing.append(good)
        return missing

    def forget_peer(self, peer: bytes) -> None:
        """A worker started anew: it may be told everything again."""
        self._told = {t: at for t, at in self._told.items() if t[0] != peer}
        self._refused_by = {t for t in self._refused_by if t[0] != peer}

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"owner": v.owner, "adapter": v.adapter, "number": v.number, "parent": v.parent,
             "status": str(v.status), "note": v.note, "created": v.created}
            for versions in self._table.values() for v in versions.values()
        ]


def _key(version: Version) -> Key:
    return version.owner, version.adapter
