"""Which versions exist, which one serves, and which worker still lacks it.

Owns: the table of versions, the newest good one, what workers say of each, what to tell a worker.
Does not own: weights (trainer and workers), going back (the trainer makes the new version).

A version that every connected worker refuses is refused: it serves nowhere. While another worker
serves it, it stays, and those that refuse it keep the one before.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from claw.engine.actor.journal import Journal
from claw.records import DEFAULT_OWNER, Version, VersionStatus

Key = tuple[str, str]
ASK_AGAIN_S = 30.0
"""a worker that was told to load a version is not told again within this time"""
REMEMBERED = 16
"""newest versions of which it is known what workers say"""
MAX_NOTE = 500
SHOWN = 100
"""newest versions of an adapter in a status; the journal has all of them"""


class Published:
    """Versions by (owner, adapter) and number."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._table: dict[Key, dict[int, Version]] = {}
        self._told: dict[tuple[bytes, Key, int], float] = {}
        self._said: dict[tuple[Key, int], dict[bytes, str]] = {}
        """of a version: worker -> why it refuses it, or nothing: it serves it"""
        for version in journal.versions():
            self._table.setdefault(_key(version), {})[version.number] = version

    def put(self, version: Version) -> None:
        """Take a version, or a newer word about a known one."""
        known = self._table.setdefault(_key(version), {})
        before = known.get(version.number)
        if before is not None and before.status is VersionStatus.REFUSED and (
            before.checksum == version.checksum
        ):
            return  # the workers' word stands, whatever the trainer has not heard yet
        if before != version:
            self._journal.put_version(version)
            known[version.number] = version

    def owners(self) -> list[str]:
        """Whoever has versions, and the run's first owner."""
        return sorted({DEFAULT_OWNER, *(owner for owner, _ in self._table)})

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

    def status(self, owner: str, adapter: str, number: int) -> VersionStatus | None:
        version = self._table.get((owner, adapter), {}).get(number)
        return version.status if version else None

    # --- what workers say --------------------------------------------------------------------

    def say(self, peer: bytes, key: Key, number: int, why: str = "") -> None:
        """A worker serves a version, or says why it does not."""
        said = self._said.setdefault((key, number), {})
        said[peer] = why
        oldest = self.newest(*key) - REMEMBERED
        self._said = {of: s for of, s in self._said.items() if of[0] != key or of[1] >= oldest}

    def settle(self, peers: Collection[bytes]) -> list[Version]:
        """Draw the conclusion for the workers that are connected; return what is refused now."""
        refused = []
        for (key, number), all_said in self._said.items():
            version = self._table.get(key, {}).get(number)
            said = {peer: why for peer, why in all_said.items() if peer in peers}
            against = {peer: why for peer, why in said.items() if why}
            if version is None or version.status is not VersionStatus.PUBLISHED or not against:
                continue
            note = "; ".join(f"{p.decode(errors='replace')} refuses it: {why}"
                             for p, why in sorted(against.items()))[:MAX_NOTE]
            if len(against) == len(peers):
                self.put(replace(version, status=VersionStatus.REFUSED, note=note))
                refused.append(self._table[key][number])
            elif len(said) > len(against) and version.note != note:
                self.put(replace(version, note=note))
        return refused

    def lacking(self, peer: bytes, served: Iterable[Any]) -> list[Version]:
        """Return the versions that a worker should be told to load now."""
        has = {(str(o), str(a), int(n)) for o, a, n in served}
        for owner, adapter, number in has:
            if (owner, adapter) in self._table:
                self.say(peer, (owner, adapter), number)
        now, missing = time.monotonic(), []
        for key in self._table:
            good = self.good(*key)
            if good is None or not good.path or (*key, good.number) in has:
                continue
            told = (peer, key, good.number)
            refuses = self._said.get((key, good.number), {}).get(peer)
            if refuses or now - self._told.get(told, -1e9) < ASK_AGAIN_S:
                continue
            self._told[told] = now
            missing.append(good)
        return missing

    def forget_peer(self, peer: bytes) -> None:
        """A worker started anew: it may be told everything again."""
        self._told = {t: at for t, at in self._told.items() if t[0] != peer}
        for said in self._said.values():
            said.pop(peer, None)

    def rows(self, owner: str = "") -> list[dict[str, Any]]:
        """The newest versions of each adapter, oldest first; of one owner or of everybody."""
        return [
            {"owner": v.owner, "adapter": v.adapter, "number": v.number, "parent": v.parent,
             "status": str(v.status), "note": v.note, "created": v.created}
            for key, versions in self._table.items() if owner in ("", key[0])
            for v in sorted(versions.values(), key=lambda v: v.number)[-SHOWN:]
        ]

    def states(self) -> dict[str, int]:
        """How many versions came to what, of everybody."""
        return Counter(str(v.status) for known in self._table.values() for v in known.values())


def _key(version: Version) -> Key:
    return version.owner, version.adapter
