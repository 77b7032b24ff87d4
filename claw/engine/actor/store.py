"""The file below the journal: one SQLite database, its transactions, arrays and message parts.

Owns: opening, the format check, all-or-nothing writes, arrays as bytes, messages and pictures by
digest.
Does not own: which records there are (`journal.py`).
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from claw.engine import cipher, faults
from claw.engine.actor.album import digests
from claw.engine.actor.tables import FORMAT, LATER, SCHEMA
from claw.errors import ClawError

NAME = "journal.sqlite"


class NoRoom(ClawError):
    """The journal cannot grow: nothing is accepted until it can."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__("the journal cannot be written, so nothing new is accepted",
                         found=f"{path}: {error}",
                         do="free space on that disk, or make it writable; it is tried again then")


class Store:
    """One database; one process writes, others may read."""

    def __init__(
        self, run_dir: Path | str, *, read_only: bool = False, key_file: str | None = None
    ) -> None:
        """`key_file`: of an encrypted one; None: what the settings in the run folder say."""
        self.path = Path(run_dir) / NAME
        self._lock = threading.RLock()  # big writes run in a thread
        self.picture_data: Callable[[str], bytes | None] = lambda digest: None
        """what was sent of a picture that a message names, at its first writing"""
        if read_only:
            if not self.path.exists():
                raise ClawError("no journal in this run folder", found=str(run_dir))
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if key_file is None:
            key_file = cipher.key_file_of(self.path.parent)
        self._sql = cipher.library(key_file)
        self._db = cipher.connect(self.path, key_file, read_only=read_only)
        if not read_only:
            self.path.chmod(0o600)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA secure_delete=ON")  # forgetting removes the bytes too
        self._check_format(read_only)

    def _check_format(self, read_only: bool) -> None:
        try:
            has = self._db.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone()
            if not has and not read_only:
                self._db.executescript(SCHEMA)
                self._db.execute("INSERT INTO meta VALUES('format', ?)", (str(FORMAT),))
            row = self._db.execute("SELECT value FROM meta WHERE key='format'").fetchone()
        except self._sql.DatabaseError as error:
            raise ClawError("not a journal", found=f"{self.path}: {error}") from error
        if row is None or row[0] != str(FORMAT):
            raise ClawError(
                "the journal has another format", found=f"format {row and row[0]} in {self.path}",
                allowed=f"format {FORMAT}", do="use the claw version that wrote it, or a new run",
            )
        if not read_only:
            self._db.executescript(LATER)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction; nests into the one that is open. All or nothing."""
        with self._lock:
            if self._db.in_transaction:
                yield self._db
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                faults.at("journal.commit.before")
                self._db.execute("COMMIT")
                faults.at("journal.commit.after")
            except BaseException as error:
                # a commit that fails leaves its transaction open, and later writes would join it
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(error, self._sql.OperationalError) and _is_no_room(error):
                    raise NoRoom(self.path, error) from error
                raise

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    # --- parts of records --------------------------------------------------------------------

    def parts(self, turn_id: str) -> dict[str, list[Any]]:
        """Return the messages, tools and next state of a turn."""
        found: dict[str, list[Any]] = {"message": [], "tool": [], "next": []}
        for part, text in self.read(
            "SELECT part, body FROM parts JOIN texts USING(digest) WHERE turn_id=?"
            " ORDER BY part, position", turn_id,
        ):
            found[part].append(json.loads(text))
        return found

    def put_parts(self, turn_id: str, part: str, values: Iterable[Any]) -> None:
        """Write messages, each text once; the caller holds the transaction."""
        for position, value in enumerate(values):
            body = to_json(value)
            self._put_pictures(turn_id, value)
            digest = hashlib.sha256(body.encode()).digest()
            self._db.execute("INSERT OR IGNORE INTO texts VALUES(?,?)", (digest, body))
            self._db.execute(
                "INSERT OR REPLACE INTO parts VALUES(?,?,?,?)", (turn_id, part, position, digest)
            )

    def _put_pictures(self, turn_id: str, value: Any) -> None:
        """Write the pictures of a message, each once, and that the turn shows them."""
        for digest in digests(value):
            if not self.read("SELECT 1 FROM pictures WHERE digest=?", digest):
                if (data := self.picture_data(digest)) is None:
                    raise ClawError("a picture of the message is not at hand", found=digest)
                self._db.execute("INSERT INTO pictures VALUES(?,?)", (digest, data))
            self._db.execute("INSERT OR IGNORE INTO shown VALUES(?,?)", (turn_id, digest))

    def picture(self, digest: str) -> bytes | None:
        """Return a picture as it was sent; None for one that is not here."""
        rows = self.read("SELECT data FROM pictures WHERE digest=?", digest)
        return bytes(rows[0][0]) if rows else None

    def put_arrays(self, record: str, arrays: dict[str, np.ndarray]) -> None:
        """Write arrays by name; the caller holds the transaction."""
        for name, array in arrays.items():
            raw = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
            self._db.execute(
                "INSERT OR REPLACE INTO arrays VALUES(?,?,?,?,?)",
                (record, name, array.dtype.name, json.dumps(array.shape), raw.tobytes()),
            )

    def arrays(self, record: str) -> dict[str, np.ndarray]:
        """Return the arrays of a turn or sample by name."""
        rows = self.read("SELECT name, dtype, shape, data FROM arrays WHERE record=?", record)
        return {name: _array(dtype, shape, data) for name, dtype, shape, data in rows}


# ASCII: lone surrogates travel as escapes
to_json = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


def _is_no_room(error: Any) -> bool:
    """Whether a write failed for the disk's sake: full, read-only, or failing."""
    return error.sqlite_errorcode & 0xFF in (
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY)


def _array(dtype: str, shape: str, data: bytes) -> np.ndarray:
    stored = np.frombuffer(data, dtype=np.dtype(dtype).newbyteorder("<"))
    return stored.astype(dtype, copy=False).reshape(json.loads(shape))
