"""The journal: one SQLite file that holds everything a run has accepted. Memory is its cache.

Owns: the tables, writing each change before it is acted on, reading records back.
Does not own: what the states mean (`actor.py`), the story of a turn (`why.py`).

WAL with synchronous NORMAL: a commit survives the death of the process at any moment (not a power
cut within the last moments). Messages are stored once each, by digest; arrays as raw little-endian
bytes with their dtype. One process writes; others may read.
"""

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from claw.engine import wire
from claw.engine.actor.tables import FORMAT, SCHEMA
from claw.errors import ClawError
from claw.records import Sample, Signal, Trace, Turn, TurnState, Version

NAME = "journal.sqlite"


class Journal:
    """Reads and writes the journal of one run folder."""

    def __init__(self, run_dir: Path | str, *, read_only: bool = False) -> None:
        self.path = Path(run_dir) / NAME
        self._lock = threading.RLock()  # big writes run in a thread
        if read_only:
            if not self.path.exists():
                raise ClawError("no journal in this run folder", found=str(run_dir))
            uri = f"{self.path.resolve().as_uri()}?mode=ro"
            self._db = sqlite3.connect(uri, uri=True, timeout=10, check_same_thread=False)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self.path, timeout=10, check_same_thread=False, isolation_level=None
            )
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
        except sqlite3.DatabaseError as error:
            raise ClawError("not a journal", found=f"{self.path}: {error}") from error
        if row is None or row[0] != str(FORMAT):
            raise ClawError(
                "the journal has another format", found=f"format {row and row[0]} in {self.path}",
                allowed=f"format {FORMAT}", do="use the claw version that wrote it, or a new run",
            )

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
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def read(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    # --- traces and turns --------------------------------------------------------------------

    def put_trace(self, trace: Trace, session: str = "") -> None:
        """Write a trace; `session` is the id a client named, if any."""
        body = _json(wire.pack(trace)[0])
        with self.write() as db:
            db.execute(
                "INSERT INTO traces VALUES(?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET"
                " ended=excluded.ended, body=excluded.body",
                (trace.id, trace.owner, session, trace.plugin, trace.group,
                 str(trace.end or ""), body),
            )

    def put_turn(
        self, turn: Turn, *, parent: str = "", render: dict[str, Any] | None = None
    ) -> None:
        """Write a whole turn: its request, prompt ids, and the completion if there is one.

        `render` says how the prompt was made (rule, chars, digest); None keeps what is stored.
        """
        fields, arrays = wire.pack(replace(turn, messages=(), tools=(), next_state=()))
        now = time.time()
        with self.write() as db:
            db.execute(
                "INSERT INTO turns VALUES(?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET"
                " state=excluded.state, reason=excluded.reason, body=excluded.body,"
                " updated=excluded.updated",
                (turn.id, turn.trace_id, parent, turn.index, str(turn.kind), str(turn.state),
                 turn.reason, _json(render or {}), _json(fields), turn.created, now),
            )
            self._put_parts(turn.id, "message", turn.messages)
            self._put_parts(turn.id, "tool", turn.tools)
            self._put_parts(turn.id, "next", turn.next_state)
            self._put_arrays(turn.id, arrays)

    def put_completion(self, turn: Turn) -> None:
        """Write what a finished turn added: completion, reply, state. The request is stored."""
        fields, arrays = wire.pack(replace(turn, messages=(), tools=(), next_state=()))
        arrays.pop("prompt_ids", None)
        with self.write() as db:
            db.execute(
                "UPDATE turns SET state=?, reason=?, body=?, updated=? WHERE id=?",
                (str(turn.state), turn.reason, _json(fields), time.time(), turn.id),
            )
            self._put_arrays(turn.id, arrays)

    def put_state(self, turn: Turn) -> None:
        """Write the state and reason of a turn."""
        with self.write() as db:
            db.execute(
                "UPDATE turns SET state=?, reason=?, updated=? WHERE id=?",
                (str(turn.state), turn.reason, time.time(), turn.id),
            )

    def put_next(self, turn: Turn) -> None:
        """Write the next state of a turn together with its new state."""
        with self.write():
            self._put_parts(turn.id, "next", turn.next_state)
            self.put_state(turn)

    def turn(self, id: str) -> Turn | None:
        """Return a turn with everything, or None."""
        rows = self.read("SELECT body, state, reason FROM turns WHERE id=?", id)
        return self._turn(id, *rows[0]) if rows else None

    def turns(self, *states: TurnState) -> list[Turn]:
        """Return the turns in any of these states, oldest first."""
        marks = ",".join("?" * len(states))
        sql = f"SELECT id, body, state, reason FROM turns WHERE state IN ({marks}) ORDER BY rowid"
        return [self._turn(*row) for row in self.read(sql, *map(str, states))]

    def states(self) -> dict[str, int]:
        """Return how many turns are in each state."""
        return dict(self.read("SELECT state, COUNT(*) FROM turns GROUP BY state"))

    def _turn(self, id: str, body: str, state: str, reason: str) -> Turn:
        fields = json.loads(body) | {"state": state, "reason": reason}
        turn = wire.unpack(Turn, fields, self._arrays(id))
        parts: dict[str, list[Any]] = {"message": [], "tool": [], "next": []}
        for part, text in self.read(
            "SELECT part, body FROM parts JOIN texts USING(digest) WHERE turn_id=?"
            " ORDER BY part, position", id,
        ):
            parts[part].append(json.loads(text))
        return replace(
            turn, messages=tuple(parts["message"]), tools=tuple(parts["tool"]),
            next_state=tuple(parts["next"]),
        )

    def _put_parts(self, turn_id: str, part: str, values: Iterable[Any]) -> None:
        for position, value in enumerate(values):
            body = _json(value)
            digest = hashlib.sha256(body.encode()).digest()
            self._db.execute("INSERT OR IGNORE INTO texts VALUES(?,?)", (digest, body))
            self._db.execute(
                "INSERT OR REPLACE INTO parts VALUES(?,?,?,?)", (turn_id, part, position, digest)
            )

    def _put_arrays(self, record: str, arrays: dict[str, np.ndarray]) -> None:
        for name, array in arrays.items():
            raw = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
            self._db.execute(
                "INSERT OR REPLACE INTO arrays VALUES(?,?,?,?,?)",
                (record, name, array.dtype.name, json.dumps(array.shape), raw.tobytes()),
            )

    def _arrays(self, record: str) -> dict[str, np.ndarray]:
        rows = self.read("SELECT name, dtype, shape, data FROM arrays WHERE record=?", record)
        return {name: _array(dtype, shape, data) for name, dtype, shape, data in rows}

    # --- signals, samples --------------------------------------------------------------------

    def put_signal(self, signal: Signal) -> None:
        body = _json(wire.pack(signal)[0])
        with self.write() as db:
            db.execute(
                "INSERT INTO signals(turn_id, body, created) VALUES(?,?,?)",
                (signal.turn_id, body, time.time()),
            )

    def signals(self, turn_id: str) -> list[Signal]:
        rows = self.read("SELECT body FROM signals WHERE turn_id=? ORDER BY n", turn_id)
        return [_signal(json.loads(body)) for (body,) in rows]

    def put_sample(self, sample: Sample) -> None:
        """Write a waiting sample."""
        fields, arrays = wire.pack(sample)
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO samples VALUES(?,?,'waiting','','',?,?)",
                (sample.id, sample.turn_id, time.time(), _json(fields)),
            )
            self._put_arrays(sample.id, arrays)

    def put_sample_state(
        self, ids: Iterable[str], state: str, *, reason: str = "", lease_id: str = ""
    ) -> None:
        """Move samples to waiting, leased, trained or dropped."""
        with self.write() as db:
            db.executemany(
                "UPDATE samples SET state=?, reason=?, lease_id=? WHERE id=?",
                [(state, reason, lease_id, id) for id in ids],
            )

    def samples(self, state: str) -> list[tuple[Sample, float, str]]:
        """Return (sample, when it was made, lease id) of a state, oldest first."""
        rows = self.read(
            "SELECT id, created, lease_id, body FROM samples WHERE state=? ORDER BY created, rowid",
            state,
        )
        return [
            (wire.unpack(Sample, json.loads(body), self._arrays(id)), created, lease)
            for id, created, lease, body in rows
        ]

    def put_lease(
        self, id: str, state: str, version: int | None = None, update: Any = None
    ) -> None:
        """Write a lease: open, acked or released."""
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO leases VALUES(?,?,?,?,?)",
                (id, state, version, _json(update or {}), time.time()),
            )

    def lease_state(self, id: str) -> str:
        rows = self.read("SELECT state FROM leases WHERE id=?", id)
        return rows[0][0] if rows else ""

    # --- versions, events, forgetting --------------------------------------------------------

    def put_version(self, version: Version) -> None:
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO versions VALUES(?,?,?,?,?)",
                (version.owner, version.adapter, version.number, str(version.status),
                 _json(wire.pack(version)[0])),
            )

    def versions(self) -> list[Version]:
        rows = self.read("SELECT body FROM versions ORDER BY owner, adapter, number")
        return [wire.unpack(Version, json.loads(body), {}) for (body,) in rows]

    def put_event(self, kind: str, subject: str, text: str) -> None:
        """Note something that happened to a turn, worker, trainer or version."""
        with self.write() as db:
            db.execute(
                "INSERT INTO events(at, kind, subject, text) VALUES(?,?,?,?)",
                (time.time(), kind, subject, text),
            )

    def forget(self, trace_id: str) -> int:
        """Remove the words and numbers of a trace and all derived from them; return the turns."""
        with self.write() as db:
            turns = [t for (t,) in self.read("SELECT id FROM turns WHERE trace_id=?", trace_id)]
            for id in turns:
                for (sample,) in self.read("SELECT id FROM samples WHERE turn_id=?", id):
                    db.execute("DELETE FROM arrays WHERE record=?", (sample,))
                for table in ("samples", "signals", "parts"):
                    db.execute(f"DELETE FROM {table} WHERE turn_id=?", (id,))
                db.execute("DELETE FROM arrays WHERE record=?", (id,))
                db.execute("DELETE FROM events WHERE subject=?", (id,))
                db.execute(
                    "UPDATE turns SET state='forgotten', reason='', body='{}' WHERE id=?", (id,)
                )
            db.execute("DELETE FROM texts WHERE digest NOT IN (SELECT digest FROM parts)")
        return len(turns)


def _json(value: Any) -> str:
    # ASCII: lone surrogates travel as escapes
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _array(dtype: str, shape: str, data: bytes) -> np.ndarray:
    stored = np.frombuffer(data, dtype=np.dtype(dtype).newbyteorder("<"))
    return stored.astype(dtype, copy=False).reshape(json.loads(shape))


def _signal(fields: dict[str, Any]) -> Signal:
    return wire.unpack(Signal, fields, {})
