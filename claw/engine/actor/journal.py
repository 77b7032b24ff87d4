"""The journal: one SQLite file that holds everything a run has accepted. Memory is its cache.

Owns: writing each record before it is acted on, reading records back.
Does not own: the file (`store.py`), what the states mean (`ledger.py`), the story (`why.py`).

WAL with synchronous NORMAL: a commit survives the death of the process at any moment (not a power
cut within the last moments). Messages are stored once each, by digest; arrays as raw little-endian
bytes with their dtype. One process writes; others may read.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from claw.engine import faults, wire
from claw.engine.actor.store import NAME, Store, to_json
from claw.records import DEFAULT_OWNER, Sample, Signal, Trace, Turn, TurnState, Version

__all__ = ["NAME", "Journal"]


class Journal(Store):
    """Reads and writes the records of one run folder."""

    # --- traces and turns --------------------------------------------------------------------

    @faults.around("journal.trace")
    def put_trace(self, trace: Trace, session: str = "") -> None:
        """Write a trace; `session` is the id a client named, if any."""
        body = to_json(wire.pack(trace)[0])
        with self.write() as db:
            db.execute(
                "INSERT INTO traces VALUES(?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET"
                " ended=excluded.ended, body=excluded.body",
                (trace.id, trace.owner, session, trace.plugin, trace.group,
                 str(trace.end or ""), body),
            )

    @faults.around("journal.turn")
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
                 turn.reason, to_json(render or {}), to_json(fields), turn.created, now),
            )
            self.put_parts(turn.id, "message", turn.messages)
            self.put_parts(turn.id, "tool", turn.tools)
            self.put_parts(turn.id, "next", turn.next_state)
            self.put_arrays(turn.id, arrays)

    @faults.around("journal.completion")
    def put_completion(self, turn: Turn) -> None:
        """Write what a finished turn added: completion, reply, state. The request is stored."""
        fields, arrays = wire.pack(replace(turn, messages=(), tools=(), next_state=()))
        arrays.pop("prompt_ids", None)
        with self.write() as db:
            db.execute(
                "UPDATE turns SET state=?, reason=?, body=?, updated=? WHERE id=?",
                (str(turn.state), turn.reason, to_json(fields), time.time(), turn.id),
            )
            self.put_arrays(turn.id, arrays)

    @faults.around("journal.state")
    def put_state(self, turn: Turn) -> None:
        """Write the state and reason of a turn."""
        with self.write() as db:
            db.execute(
                "UPDATE turns SET state=?, reason=?, updated=? WHERE id=?",
                (str(turn.state), turn.reason, time.time(), turn.id),
            )

    @faults.around("journal.next")
    def put_next(self, turn: Turn) -> None:
        """Write the next state of a turn together with its new state."""
        with self.write():
            self.put_parts(turn.id, "next", turn.next_state)
            self.put_state(turn)

    def turn(self, id: str) -> Turn | None:
        """Return a turn with everything; None for an unknown or a forgotten one."""
        rows = self.read("SELECT body, state, reason FROM turns WHERE id=?", id)
        if not rows or rows[0][1] == TurnState.FORGOTTEN:
            return None
        return self._turn(id, *rows[0])

    def turns(self, *states: TurnState) -> list[Turn]:
        """Return the turns in any of these states, oldest first."""
        marks = ",".join("?" * len(states))
        sql = f"SELECT id, body, state, reason FROM turns WHERE state IN ({marks}) ORDER BY rowid"
        return [self._turn(*row) for row in self.read(sql, *map(str, states))]

    def render(self, id: str) -> dict[str, Any]:
        """Return how a turn's prompt was made."""
        rows = self.read("SELECT render FROM turns WHERE id=?", id)
        return json.loads(rows[0][0]) if rows else {}

    def open_traces(self) -> list[tuple[Trace, str, bool]]:
        """Return (trace, session, whether it is an episode) of those that have not ended."""
        rows = self.read("SELECT body, session FROM traces WHERE ended='' ORDER BY rowid")
        traces = [(wire.unpack(Trace, json.loads(body), {}), session) for body, session in rows]
        return [(trace, session, bool(trace.task_id)) for trace, session in traces]

    def trace(self, id: str) -> Trace | None:
        """Return a trace by id."""
        rows = self.read("SELECT body FROM traces WHERE id=?", id)
        return wire.unpack(Trace, json.loads(rows[0][0]), {}) if rows else None

    def traces_named(self, name: str, owner: str) -> list[str]:
        """Return the traces of a client's session name, or the one with this id."""
        rows = self.read("SELECT id FROM traces WHERE (session=? OR id=?) AND owner=?",
                         name, name, owner)
        return [id for (id,) in rows]

    def judged_traces(self) -> list[Trace]:
        """Return ended episodes that have turns whose judging is not over."""
        rows = self.read(
            "SELECT body FROM traces WHERE ended!='' AND id IN"
            " (SELECT trace_id FROM turns WHERE state='judging') ORDER BY rowid"
        )
        traces = [wire.unpack(Trace, json.loads(body), {}) for (body,) in rows]
        return [trace for trace in traces if trace.task_id]

    def turn_ids(self, trace_id: str) -> list[tuple[str, str]]:
        """Return (turn id, id of the turn it continues) of a trace, oldest first."""
        return self.read("SELECT id, parent FROM turns WHERE trace_id=? ORDER BY rowid", trace_id)

    # --- who asked for a conversation --------------------------------------------------------

    def put_kin(self, trace_id: str, parent: str, turn_id: str) -> None:
        """Write that a conversation was asked for in another one, and in which turn if known."""
        with self.write() as db:
            db.execute("INSERT OR REPLACE INTO kin VALUES(?,?,?)", (trace_id, parent, turn_id))

    def parent_of(self, trace_id: str) -> tuple[str, str] | None:
        """Return (conversation, turn or nothing) that asked for this one; None: a person did."""
        rows = self._kin("SELECT parent, turn_id FROM kin WHERE trace_id=?", trace_id)
        return (rows[0][0], rows[0][1]) if rows else None

    def children_of(self, trace_id: str) -> list[tuple[str, str]]:
        """Return (conversation, turn or nothing) of those that were asked for in this one."""
        return self._kin("SELECT trace_id, turn_id FROM kin WHERE parent=? ORDER BY trace_id",
                         trace_id)

    def descendants(self, trace_ids: Iterable[str]) -> list[str]:
        """Return these conversations and all that were asked for in them, parents first."""
        found = dict.fromkeys(trace_ids)
        todo = list(found)
        while todo:
            new = [c for c, _ in self.children_of(todo.pop(0)) if c not in found]
            found |= dict.fromkeys(new)
            todo += new
        return list(found)

    def _kin(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """A run of an older claw that is only read has no such table."""
        has = self.read("SELECT 1 FROM sqlite_master WHERE name='kin'")
        return self.read(sql, *values) if has else []

    def states(self) -> dict[tuple[str, str], int]:
        """Return how many turns of each owner are in each state."""
        rows = self.read("SELECT COALESCE(tr.owner, ?), t.state, COUNT(*) FROM turns t"
                         " LEFT JOIN traces tr ON tr.id=t.trace_id GROUP BY 1, 2", DEFAULT_OWNER)
        return {(owner, state): n for owner, state, n in rows}

    def held(self, reason: str) -> dict[str, str]:
        """Return the skipped turns with a reason that begins so, and their owners, oldest first."""
        return dict(self.read(
            "SELECT t.id, COALESCE(tr.owner, ?) FROM turns t LEFT JOIN traces tr ON"
            " tr.id=t.trace_id WHERE t.state=? AND t.reason LIKE ? ORDER BY t.rowid",
            DEFAULT_OWNER, str(TurnState.SKIPPED), f"{reason}:%"))

    def _turn(self, id: str, body: str, state: str, reason: str) -> Turn:
        fields = json.loads(body) | {"state": state, "reason": reason}
        turn = wire.unpack(Turn, fields, self.arrays(id))
        parts = self.parts(id)
        return replace(
            turn, messages=tuple(parts["message"]), tools=tuple(parts["tool"]),
            next_state=tuple(parts["next"]),
        )

    # --- signals, samples --------------------------------------------------------------------

    @faults.around("journal.signal")
    def put_signal(self, signal: Signal) -> None:
        body = to_json(wire.pack(signal)[0])
        with self.write() as db:
            db.execute(
                "INSERT INTO signals(turn_id, body, created) VALUES(?,?,?)",
                (signal.turn_id, body, time.time()),
            )

    def signals(self, turn_id: str) -> list[Signal]:
        rows = self.read("SELECT body FROM signals WHERE turn_id=? ORDER BY n", turn_id)
        return [_signal(json.loads(body)) for (body,) in rows]

    @faults.around("journal.sample")
    def put_sample(self, sample: Sample) -> None:
        """Write a waiting sample."""
        fields, arrays = wire.pack(sample)
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO samples VALUES(?,?,'waiting','','',?,?)",
                (sample.id, sample.turn_id, time.time(), to_json(fields)),
            )
            self.put_arrays(sample.id, arrays)

    @faults.around("journal.sample_state")
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
            (wire.unpack(Sample, json.loads(body), self.arrays(id)), created, lease)
            for id, created, lease, body in rows
        ]

    @faults.around("journal.lease")
    def put_lease(
        self, id: str, state: str, version: int | None = None, update: Any = None
    ) -> None:
        """Write a lease: open, acked or released."""
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO leases VALUES(?,?,?,?,?)",
                (id, state, version, to_json(update or {}), time.time()),
            )

    def lease_state(self, id: str) -> str:
        rows = self.read("SELECT state FROM leases WHERE id=?", id)
        return rows[0][0] if rows else ""

    # --- versions, events, forgetting --------------------------------------------------------

    @faults.around("journal.version")
    def put_version(self, version: Version) -> None:
        with self.write() as db:
            db.execute(
                "INSERT OR REPLACE INTO versions VALUES(?,?,?,?,?)",
                (version.owner, version.adapter, version.number, str(version.status),
                 to_json(wire.pack(version)[0])),
            )

    def versions(self) -> list[Version]:
        rows = self.read("SELECT body FROM versions ORDER BY owner, adapter, number")
        return [wire.unpack(Version, json.loads(body), {}) for (body,) in rows]

    @faults.around("journal.event")
    def put_event(self, kind: str, subject: str, text: str) -> None:
        """Note something that happened to a turn, worker, trainer or version."""
        with self.write() as db:
            db.execute(
                "INSERT INTO events(at, kind, subject, text) VALUES(?,?,?,?)",
                (time.time(), kind, subject, text),
            )

    def has_event(self, kind: str, subject: str, text: str) -> bool:
        return bool(self.read("SELECT 1 FROM events WHERE subject=? AND kind=? AND text=? LIMIT 1",
                              subject, kind, text))

    def pictures_of(self, trace_id: str) -> list[str]:
        """Return the digests of what the turns of a trace show."""
        return [digest for (digest,) in self.read(
            "SELECT DISTINCT digest FROM shown WHERE turn_id IN"
            " (SELECT id FROM turns WHERE trace_id=?)", trace_id)]

    @faults.around("journal.meta")
    def put_meta(self, key: str, value: str) -> None:
        """Keep a small text that concerns the whole run."""
        with self.write() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", (key, value))

    def meta(self, key: str) -> str:
        rows = self.read("SELECT value FROM meta WHERE key=?", key)
        return str(rows[0][0]) if rows else ""

    @faults.around("journal.forget")
    def forget(self, trace_id: str) -> int:
        """Remove the words and numbers of a trace and all derived from them; return the turns."""
        with self.write() as db:
            db.execute("UPDATE traces SET session='' WHERE id=?", (trace_id,))
            db.execute("DELETE FROM kin WHERE trace_id=? OR parent=?", (trace_id, trace_id))
            turns = [t for (t,) in self.read("SELECT id FROM turns WHERE trace_id=?", trace_id)]
            for id in turns:
                for (sample,) in self.read("SELECT id FROM samples WHERE turn_id=?", id):
                    db.execute("DELETE FROM arrays WHERE record=?", (sample,))
                for table in ("samples", "signals", "parts", "shown"):
                    db.execute(f"DELETE FROM {table} WHERE turn_id=?", (id,))
                db.execute("DELETE FROM arrays WHERE record=?", (id,))
                db.execute("DELETE FROM events WHERE subject=?", (id,))
                db.execute(
                    "UPDATE turns SET state='forgotten', reason='', body='{}' WHERE id=?", (id,)
                )
            db.execute("DELETE FROM texts WHERE digest NOT IN (SELECT digest FROM parts)")
            db.execute("DELETE FROM pictures WHERE digest NOT IN (SELECT digest FROM shown)")
        self.read("PRAGMA wal_checkpoint(TRUNCATE)")  # the words are in the log beside it too
        return len(turns)


def _signal(fields: dict[str, Any]) -> Signal:
    return wire.unpack(Signal, fields, {})
