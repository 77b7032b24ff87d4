"""A disk that is full: what was accepted stays, nothing is accepted halfway, and it goes on."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from some_turns import sample, turn

from claw.engine.actor.buffer import Buffer
from claw.engine.actor.consent import Consent
from claw.engine.actor.journal import Journal
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.published import Published
from claw.engine.actor.signals import Judging
from claw.engine.actor.store import NoRoom
from claw.engine.actor.trainer_link import TrainerLink
from claw.records import Signal, TurnState

FILL = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from some_turns import turn
from claw.engine.actor.journal import Journal
from claw.engine.actor.store import NoRoom

journal = Journal(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, hard))
refused, i = 0, 0
while refused < 3:
    try:
        journal.put_turn(turn(f"turn_{i}"))
        print(f"turn_{i}")
    except NoRoom as error:
        refused += 1
        print(error, file=sys.stderr)
    i += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
journal.put_turn(turn("turn_after"))
print("turn_after", flush=True)
import os
os._exit(0)  # as one that is killed: nothing is closed
"""


def test_a_write_that_failed_takes_nothing_with_it_and_the_next_one_lasts(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILL, str(tmp_path), str(Path(__file__).parent)],
                          capture_output=True, text=True, check=True, timeout=120)
    said = done.stdout.split()
    assert said[-1] == "turn_after" and len(said) > 3
    assert "nothing new is accepted" in done.stderr and "free space on that disk" in done.stderr
    journal = Journal(tmp_path, read_only=True)
    assert [t.id for t in journal.turns(TurnState.WAITING)] == said
    assert journal.read("PRAGMA integrity_check") == [("ok",)]
    journal.close()


class Full(Journal):
    """A journal whose database may not grow, for as long as the block lasts."""

    def __enter__(self) -> "Full":
        self.read("PRAGMA max_page_count=1")  # the smallest that it takes is what it has now
        return self

    def __exit__(self, *_: object) -> None:
        self.read("PRAGMA max_page_count=1000000")


def test_a_lease_that_could_not_be_written_is_not_given_out(tmp_path: Path) -> None:
    journal, buffer = Full(tmp_path), Buffer(8)
    journal.put_turn(turn("turn_1"))
    ledger, sent = Ledger(journal), []

    async def send(peer, message):
        sent.append(message.type)

    link = TrainerLink(send, journal, ledger, buffer, Published(journal), lambda *_: None,
                       Consent(journal))
    big = sample("s", turn_id="turn_1", prompt=tuple(range(20_000)))
    buffer.add(big)
    journal.put_sample(big)

    async def main() -> None:
        with journal, pytest.raises(NoRoom):
            for i in range(1000):  # what room there is goes first
                journal.put_event("fill", "", "x" * 2000 + str(i))
        with journal:
            journal.put_lease = lambda *a, **k: journal.put_event("lease", "", "x" * 20_000)
            await link._poll(b"t", "ask", 1, 0.0, 0.0, set())
        assert sent == ["lease.empty"]
        assert not buffer.leases and list(buffer.waiting) == ["s"]

    asyncio.run(main())
    journal.close()


def test_a_judgement_that_could_not_be_written_is_made_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("claw.engine.actor.signals.NO_ROOM_S", 0.05)
    journal = Full(tmp_path)
    journal.put_turn(turn("turn_1", state=TurnState.JUDGING))
    ledger, judged = Ledger(journal), asyncio.Event()
    ledger.load()
    from claw.config import parse

    config = parse({"judge": {"kind": "none", "parallel": 1}}).judge

    async def on_signal(of, signal):
        judged.set()

    judging = Judging(ledger, None, config, on_signal)
    tried, put = [], ledger.put_signal

    def put_signal(signal: Signal) -> None:
        tried.append(1)
        if len(tried) < 3:
            with journal:
                journal.put_event("fill", "", "x" * 1_000_000)
        put(signal)

    ledger.put_signal = put_signal

    async def main() -> None:
        judging.start()
        judging.submit(ledger.live["turn_1"])
        await asyncio.wait_for(judged.wait(), 30)
        await judging.stop()

    asyncio.run(main())
    assert len(tried) == 3 and len(journal.signals("turn_1")) == 1
    journal.close()
