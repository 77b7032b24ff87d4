"""A version whose folder is on another host: its files come over the wire, piece by piece.

Owns: which pieces are missing, their checks, going on after a break.
Does not own: the folders (cache), the checks of a whole version (loader), the other end (the
trainer's depot).

The manifest comes first and must be the announced one; it names each file with its size and sha256.
Pieces are written in order, so what is on the disk of a file is good up to its size.
"""

import hashlib
import logging
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import zmq

from claw.engine import faults, tensors, versions, wire
from claw.engine.versions import MANIFEST, VersionError
from claw.engine.wire import Message
from claw.engine.worker.cache import Cache
from claw.errors import ClawError, WireError
from claw.records import Version

log = logging.getLogger(__name__)

PIECE = 4 * 1024 * 1024
"""bytes of one piece"""
WINDOW = 4
"""pieces that are asked for and not here yet"""
MAX_MANIFEST = PIECE
MAX_WRONG = 3
"""wrong answers for one piece, after which the version is refused"""
AGAIN_S = 5.0
"""a piece that did not come is asked for again"""


class Unreachable(ClawError):
    """The trainer does not answer: no fault of the version; it is tried again later."""


class Puller:
    """Fetches versions from one depot; used by one thread."""

    def __init__(
        self, address: str, keys: wire.Keys | None, cache: Cache, patience_s: float
    ) -> None:
        self.address, self.keys, self.cache = address, keys, cache
        self.patience_s = patience_s
        self.num_bytes = 0
        """received in pieces that were right"""

    @faults.around("worker.pull")
    def fetch(self, version: Version) -> Path:
        """Return a folder with all files of the version.

        VersionError: what comes is not what was announced. Unreachable: nothing comes.
        """
        with self.cache.hold(version.checksum) as folder:
            if (folder / MANIFEST).exists():
                return folder
            started, before = time.monotonic(), self.num_bytes
            transfer = _Transfer(self, version)
            try:
                transfer.run(folder)
            finally:
                transfer.close()
            log.info("version %d of %s/%s: %.1f MB pulled in %.1f s", version.number,
                     version.owner, version.adapter, (self.num_bytes - before) / 1e6,
                     time.monotonic() - started)
            return folder


class _Transfer:
    """One version on its way."""

    def __init__(self, puller: Puller, version: Version) -> None:
        self.puller, self.version = puller, version
        self.context = zmq.Context()
        self.socket = wire.open_socket(
            self.context, zmq.DEALER, puller.address, bind=False, keys=puller.keys)
        self._heard = time.monotonic()
        self._num_asked = 0

    def close(self) -> None:
        self.context.destroy(linger=0)

    def run(self, folder: Path) -> None:
        raw = self._manifest()
        part = folder / (MANIFEST + ".part")
        part.write_bytes(raw)
        manifest = versions.parse_manifest(raw)
        total = sum(int(f["bytes"]) for f in manifest.files.values())
        self.puller.cache.make_room(total, folder)
        for name, wanted in manifest.files.items():
            if Path(name).name != name or name in (MANIFEST, part.name):
                raise VersionError("a version's file must lie in its folder", found=name)
            self._file(folder / name, int(wanted["bytes"]), str(wanted["sha256"]))
        part.rename(folder / MANIFEST)

    def _manifest(self) -> bytes:
        pieces = _Pieces(self, MANIFEST, 0, None)
        raw = b"".join(pieces.read())
        if (found := hashlib.sha256(raw).hexdigest()) != self.version.checksum:
            raise VersionError("the version's manifest is not the announced one", found=found,
                               allowed=self.version.checksum)
        return raw

    def _file(self, path: Path, size: int, sha256: str) -> None:
        """Pull one file; what is there of it from before is kept, if it is good."""
        part = path.with_name(path.name + ".part")
        for _ in range(2):
            if path.exists():
                return
            have = part.stat().st_size // PIECE * PIECE if part.exists() else 0
            with part.open("r+b" if have else "wb") as out:
                out.truncate(have)
                out.seek(have)
                for raw in _Pieces(self, path.name, have, size).read():
                    out.write(raw)
                    out.flush()
            if versions.file_sha256(part) == sha256:
                part.rename(path)
                return
            part.unlink()  # what was there from before was not good: once more from its start
            if not have:
                break
        raise VersionError(f"the version's file {path.name} is corrupt as it comes from the "
                           "trainer", allowed=f"sha256 {sha256}")

    # --- questions ---------------------------------------------------------------------------

    def ask(self, file: str, offset: int) -> str:
        """Ask for one piece; return the id of its answer."""
        self._num_asked += 1
        id = f"{file}@{offset}#{self._num_asked}"
        v = self.version
        fields = {"owner": v.owner, "adapter": v.adapter, "number": v.number, "file": file,
                  "offset": offset, "size": PIECE}
        self.socket.send_multipart(wire.encode(Message("piece", id, fields)))
        return id

    def hear(self) -> Message | None:
        """The next answer; None when none came for a while, Unreachable after a long one."""
        if not self.socket.poll(200):
            if (silence_s := time.monotonic() - self._heard) > self.puller.patience_s:
                raise Unreachable("the trainer does not send the version's files",
                                  found=f"nothing for {silence_s:.0f} s from {self.puller.address}")
            return None
        self._heard = time.monotonic()
        return wire.decode(wire.receive(self.socket))


class _Pieces:
    """The pieces of one file from an offset on, in order; a few are on their way at once."""

    def __init__(self, transfer: _Transfer, file: str, start: int, size: int | None) -> None:
        """`size` None: a file of one piece, whose size the first answer tells."""
        self.transfer, self.file, self.next, self.size = transfer, file, start, size
        self.stop = start + 1 if size is None else size
        self.waiting: OrderedDict[int, tuple[str, float]] = OrderedDict()
        """offset -> (id of the question, when it was asked)"""
        self.here: dict[int, Any] = {}
        self.wrong: dict[int, int] = {}
        self._asked_to = start

    def read(self) -> Any:
        while self.next < self.stop:
            self._ask()
            message = self.transfer.hear()
            if message is not None:
                self._take(message)
            while self.next in self.here:
                raw = self.here.pop(self.next)
                self.next += len(raw)
                self.transfer.puller.num_bytes += len(raw)
                yield raw

    def _ask(self) -> None:
        now = time.monotonic()
        for offset, (_, since) in list(self.waiting.items()):
            if now - since > AGAIN_S:
                self.waiting[offset] = (self.transfer.ask(self.file, offset), now)
        while self._asked_to < self.stop and len(self.waiting) + len(self.here) < WINDOW:
            self.waiting[self._asked_to] = (self.transfer.ask(self.file, self._asked_to), now)
            self._asked_to += PIECE

    def _take(self, message: Message) -> None:
        offset = next((o for o, (id, _) in self.waiting.items() if id == message.id), None)
        if offset is None:
            return  # the answer to an earlier question, asked again since
        if message.type == "error":
            raise Unreachable("the trainer has no such piece of a version",
                              found=f"{self.file}: {message.get('error')}")
        if why := self._fault(message, offset):
            self.wrong[offset] = self.wrong.get(offset, 0) + 1
            log.warning("a piece of %s at %d is wrong: %s", self.file, offset, why)
            if self.wrong[offset] >= MAX_WRONG:
                raise VersionError(f"a piece of the version's file {self.file} is wrong each time "
                                   "it comes", found=f"at byte {offset}: {why}")
            self.waiting[offset] = (self.transfer.ask(self.file, offset), time.monotonic())
            return
        del self.waiting[offset]
        self.here[offset] = message.arrays["raw"]
        if self.size is None:
            self.stop = int(message["total"])

    def _fault(self, message: Message, offset: int) -> str:
        raw = message.arrays.get("raw")
        if message.type != "piece" or raw is None or raw.dtype.name != "uint8" or raw.ndim != 1:
            return f"an answer of type {message.type!r} without bytes"
        try:
            place = (str(message["file"]), int(message["offset"]), int(message["total"]))
        except (WireError, TypeError, ValueError) as error:
            return str(error)
        total = place[2] if self.size is None else self.size
        if place != (self.file, offset, total):
            return f"it is that of {place}, wanted {(self.file, offset, total)}"
        if self.size is None and total > MAX_MANIFEST:
            return f"a manifest of {total} bytes; allowed {MAX_MANIFEST}"
        if len(raw) != min(PIECE, total - offset):
            return f"{len(raw)} bytes instead of {min(PIECE, total - offset)}"
        if (found := tensors.checksum(raw)) != str(message["checksum"]):
            return f"checksum {found} instead of {message['checksum']}"
        return ""
