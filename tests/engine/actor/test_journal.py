"""The journal: what goes in comes out, also after the process was killed between writes."""

import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from some_turns import completion, sample, turn

from claw.engine.actor.journal import NAME, Journal
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.store import NoRoom
from claw.errors import ClawError
from claw.records import FinishReason, Signal, Trace, TurnState, Version


def same(a, b):
    """Whether two records are equal, arrays included."""
    for name in a.__slots__:
        x, y = getattr(a, name), getattr(b, name)
        if isinstance(x, np.ndarray):
            if x.dtype != y.dtype or x.shape != y.shape or not np.array_equal(x, y):
                return False
        elif hasattr(x, "__slots__") and not isinstance(x, str):
            if not same(x, y):
                return False
        elif isinstance(x, tuple) and x and isinstance(x[0], np.ndarray):
            if not all(np.array_equal(i, j) for i, j in zip(x, y, strict=True)):
                return False
        elif x != y:
            return False
    return True


def test_records_come_back_as_they_went_in(tmp_path):
    journal = Journal(tmp_path)
    kept = replace(completion(), sampling_logps=np.zeros(3, np.float32),
                   kept_ids=np.arange(5, dtype=np.int32), kept_counts=np.array([1, 2, 2], np.int32))
    strange = {"role": "user", "content": "\ud83c \x00 \x1b[0m \U0001f642" + "x" * 1_000_000}
    first = turn(messages=(strange, strange), tools=({"type": "function"},), completion=kept,
                 next_state=({"role": "tool", "content": "\udc9d"},), images=("ab",))
    journal.put_turn(first, parent="turn_0", render={"rule": "whole", "chars": 3, "digest": "d"})
    held = sample(hints=(np.arange(4, dtype=np.int32), np.zeros(0, np.int32)), outcome=0.5,
                  topk_ids=np.zeros((3, 4), np.int32))
    journal.put_sample(held)
    said = Signal(first.id, "rules", None, (1, None, -1), 0.25, ("be brief \ud83c",), "tie")
    journal.put_signal(said)
    version = Version("default", "default", 3, 2, "00", path="/x", created=2.0)
    journal.put_version(version)
    journal.put_trace(Trace("trace_1", "default", "personal"), "session")
    journal.close()
    reader = Journal(tmp_path, read_only=True)
    assert same(reader.turn(first.id), first)
    [(back, _, lease)] = reader.samples("waiting")
    assert same(back, held) and lease == ""
    assert reader.signals(first.id) == [said]
    assert reader.versions() == [version]
    assert reader.render(first.id)["chars"] == 3
    assert reader.open_traces() == [(Trace("trace_1", "default", "personal"), "session", False)]


def test_arrays_are_raw_little_endian_bytes_and_nothing_is_pickled(tmp_path):
    journal = Journal(tmp_path)
    journal.put_sample(sample("s"))
    [(dtype, data)] = journal.read(
        "SELECT dtype, data FROM arrays WHERE record='s' AND name='reply_ids'")
    assert (dtype, data) == ("int32", np.array([40, 41, 3], "<i4").tobytes())


def test_a_message_is_stored_once_however_many_turns_carry_it(tmp_path):
    journal = Journal(tmp_path)
    for n in range(5):
        history = tuple({"role": "user", "content": f"m{i}"} for i in range(n + 1))
        journal.put_turn(turn(messages=history))
    assert journal.read("SELECT COUNT(*) FROM texts") == [(5,)]


def test_a_reader_sees_what_the_writer_wrote_while_it_writes(tmp_path):
    journal, reader = Journal(tmp_path), Journal(tmp_path, read_only=True)
    t = turn()
    journal.put_turn(t)
    assert reader.turn(t.id) is not None
    with pytest.raises(NoRoom, match="readonly"):
        reader.put_event("a", "b", "c")


def test_a_transaction_is_whole_or_absent(tmp_path):
    journal, t = Journal(tmp_path), turn()
    journal.put_turn(t)
    with pytest.raises(RuntimeError), journal.write():
        journal.put_sample(sample("half"))
        journal.put_state(replace(t, state=TurnState.QUEUED))
        raise RuntimeError
    assert journal.samples("waiting") == [] and journal.states() == {("default", "waiting"): 1}


def test_another_format_and_no_journal_are_refused_by_name(tmp_path):
    with pytest.raises(ClawError, match="no journal"):
        Journal(tmp_path, read_only=True)
    journal = Journal(tmp_path)
    with journal.write() as db:
        db.execute("UPDATE meta SET value='99' WHERE key='format'")
    journal.close()
    with pytest.raises(ClawError, match="format 99"):
        Journal(tmp_path)
    (tmp_path / NAME).write_bytes(b"no database at all, but long enough to be read as one" * 50)
    for name in (NAME + "-wal", NAME + "-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    with pytest.raises((ClawError, sqlite3.DatabaseError)):
        Journal(tmp_path)


def test_forgetting_leaves_no_word_and_no_number(tmp_path):
    journal = Journal(tmp_path)
    secret, other = turn(trace_id="t1", reply="the secret is swordfish"), turn(trace_id="t2")
    for t in (secret, other):
        journal.put_turn(t)
    journal.put_sample(sample("s1", turn_id=secret.id))
    journal.put_signal(Signal(secret.id, "rules", 1, hints=("swordfish it is",)))
    assert journal.forget("t1") == 1
    assert journal.turn(secret.id) is None and journal.turn(other.id) is not None
    assert journal.samples("waiting") == [] and journal.signals(secret.id) == []
    assert journal.read("SELECT COUNT(*) FROM arrays WHERE record IN (?, 's1')", secret.id) == [
        (0,)]
    assert not any(b"swordfish" in f.read_bytes() for f in tmp_path.glob(NAME + "*"))


WRITER = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from dataclasses import replace
    from some_turns import sample, turn
    from claw.engine.actor.journal import Journal
    from claw.records import TurnState
    journal = Journal({run!r})
    for n in range(100000):
        t = turn(f"turn_{{n}}")
        journal.put_turn(t)
        with journal.write():
            journal.put_sample(sample(f"sample_{{n}}", turn_id=t.id))
            journal.put_state(replace(t, state=TurnState.QUEUED))
        print(n, flush=True)
"""


def test_a_writer_killed_at_any_moment_loses_nothing_it_had_accepted(tmp_path):
    code = textwrap.dedent(WRITER).format(tests=str(__file__).rsplit("/", 1)[0], run=str(tmp_path))
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last >= 40:
            break
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read().split()
    writer.wait()
    last = int(rest[-1]) if rest else last
    journal = Journal(tmp_path)
    queued = journal.turns(TurnState.QUEUED)
    assert len(queued) >= last + 1
    assert {s.turn_id for s, _, _ in journal.samples("waiting")} == {t.id for t in queued}
    assert journal.read("PRAGMA integrity_check") == [("ok",)]


def test_a_restart_interrupts_open_turns_and_keeps_the_others(tmp_path):
    journal = Journal(tmp_path)
    turns = {s: turn(state=s) for s in (TurnState.OPEN, TurnState.WAITING, TurnState.JUDGING,
                                       TurnState.QUEUED, TurnState.TRAINED)}
    for t in turns.values():
        journal.put_turn(t)
    ledger = Ledger(journal)
    ledger.load()
    assert journal.turn(turns[TurnState.OPEN].id).status == "skipped:interrupted"
    assert ledger.counts() == {"skipped": 1, "waiting": 1, "judging": 1, "queued": 1, "trained": 1}
    assert {t.state for t in ledger.live.values()} == {"waiting", "judging", "queued"}


def test_a_turn_that_waits_is_light_in_memory_and_whole_when_asked_for(tmp_path):
    journal, t = Journal(tmp_path), turn(state=TurnState.WAITING)
    journal.put_turn(t)
    ledger = Ledger(journal)
    ledger.load()
    kept = ledger.live[t.id]
    assert kept.completion is None and not kept.messages and not len(kept.prompt_ids)
    assert (kept.trace_id, kept.owner, kept.state) == (t.trace_id, t.owner, t.state)
    whole = ledger.get(t.id)
    assert whole.messages == t.messages and (whole.prompt_ids == t.prompt_ids).all()
    assert (whole.completion.ids == t.completion.ids).all()
    followed = ledger.follow(t.id, ({"role": "user", "content": "thanks"},))
    assert ledger.live[t.id] is followed and (followed.completion.ids == t.completion.ids).all()


def test_a_next_state_is_taken_once_and_revives_a_turn_that_was_given_up(tmp_path):
    ledger, t = Ledger(Journal(tmp_path)), turn()
    ledger.journal.put_turn(t)
    ledger.load()
    ledger.skip(t.id, "no_next_state")
    words = ({"role": "user", "content": "thanks"},)
    assert ledger.follow(t.id, words).state is TurnState.JUDGING
    assert ledger.follow(t.id, ({"role": "user", "content": "other"},)) is None
    ledger.skip(t.id, "abstained")
    assert ledger.follow(t.id, words) is None
    assert ledger.journal.turn(t.id).next_state == words
    assert FinishReason.STOP is t.completion.finish_reason


def test_a_journal_of_a_claw_that_knew_no_subagents_is_read_and_continued(tmp_path):
    older = Journal(tmp_path)
    with older.write() as db:
        db.execute("DROP TABLE kin")
    older.close()
    seen = Journal(tmp_path, read_only=True)
    assert (seen.parent_of("a"), seen.children_of("a"), seen.descendants(["a"])) == (
        None, [], ["a"])
    seen.close()
    again = Journal(tmp_path)
    again.put_kin("b", "a", "turn_1")
    assert again.children_of("a") == [("b", "turn_1")]
    again.close()


def test_forgetting_a_conversation_forgets_who_asked_for_it(tmp_path):
    journal = Journal(tmp_path)
    journal.put_kin("b", "a", "turn_1")
    journal.put_kin("c", "b", "turn_2")
    journal.forget("b")
    assert journal.parent_of("b") is None and journal.parent_of("c") is None
    journal.close()
