"""The thread that checks announced versions, so that hashing never holds up a token.

Owns: where a version's files are, their checks on disk, one version at a time.
Does not own: the transfer from another host (pull), loading into the model (the backend).
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from claw.engine import faults, versions
from claw.engine.worker.loop import Swap
from claw.engine.worker.pull import Puller, Unreachable
from claw.records import Version

log = logging.getLogger(__name__)

MAX_WAITING = 64
"""adapters whose newest version waits to be checked"""


class Loader:
    """Checks versions in order; of one adapter only the newest that waits."""

    def __init__(
        self, ready: Callable[[Swap], None], refused: Callable[[Version, str], None],
        puller: Puller | None = None,
    ) -> None:
        """Without a puller, versions are those of this host."""
        self._ready, self._refused, self._puller = ready, refused, puller
        self._waiting: OrderedDict[tuple[str, str], Version] = OrderedDict()
        self._condition = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._main, name="versions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._is_stopping = True
            self._condition.notify()

    def put(self, version: Version) -> bool:
        """Check this version next; False when too many wait."""
        key = (version.owner, version.adapter)
        with self._condition:
            if key not in self._waiting and len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.pop(key, None)
            self._waiting[key] = version
            self._condition.notify()
        return True

    def _main(self) -> None:
        while (version := self._next()) is not None:
            try:
                here = self._at_hand(version)
                self._ready(Swap(here, check(here)))
            except Unreachable as error:
                log.warning("version %d is not here yet: %s", version.number, error)
            except Exception as error:
                log.info("version %d does not pass", version.number, exc_info=True)
                self._refused(version, str(error))

    def _at_hand(self, version: Version) -> Version:
        """The version with a folder on this host."""
        if self._puller is None or not version.path or _is_here(version):
            return version
        return replace(version, path=str(self._puller.fetch(version)))

    def _next(self) -> Version | None:
        with self._condition:
            while not self._waiting and not self._is_stopping:
                self._condition.wait(1.0)
            return None if self._is_stopping else self._waiting.popitem(last=False)[1]


def _is_here(version: Version) -> bool:
    try:
        versions.read_manifest(Path(version.path), version.checksum)
    except versions.VersionError:
        return False
    return True


@faults.around("worker.check")
def check(version: Version) -> versions.Manifest | None:
    """Check the files and that they are the announced version; None for the first weights."""
    if version.number == 0 and not version.path:
        return None
    manifest = versions.check_version(Path(version.path), version.checksum)
    found = (manifest.owner, manifest.adapter, manifest.number, manifest.kind)
    wanted = (version.owner, version.adapter, version.number, version.kind)
    if found != wanted:
        raise versions.VersionError(
            "the folder holds another version than the announced one",
            found=str(found), allowed=str(wanted),
        )
    return manifest
