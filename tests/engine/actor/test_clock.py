"""The clock on the wall may be set at any time: nothing waits by it."""

import re
import time
from pathlib import Path

from some_turns import sample

import claw
from claw.engine.actor.buffer import Buffer
from claw.engine.actor.session import Sessions

WALL = {
    "records.py": "ids", "engine/monitor.py": "a line of metrics", "engine/people.py": "when",
    "engine/launch.py": "when it started", "engine/trainer/weights.py": "when a version was made",
    "engine/worker/cache.py": "which was used last", "engine/actor/journal.py": "when",
    "engine/actor/conversations.py": "when a turn was made", "engine/actor/episodes.py": "likewise",
    "engine/actor/parts.py": "the age of samples of an earlier process, never below nothing",
    "engine/actor/consent.py": "a pause ends when the person said, restarts included",
    "engine/actor/template.py": "a template's date",
    "engine/actor/meter.py": "tokens of a day, restarts included",
    "sdk/sandbox/owner.py": "a container of another machine", "sdk/sandbox/files.py": "when",
    "sdk/formats/atif.py": "when", "sdk/adapters/verifiers/driven.py": "when",
    "sdk/adapters/verifiers/rollout.py": "when",
}
"""files that ask for the time of day, and what for"""


def test_a_step_is_due_although_the_clock_was_set_back(monkeypatch) -> None:
    buffer = Buffer(4)
    buffer.add(sample("s"))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert not buffer.is_ready(2, 60.0)
    time.sleep(0.05)
    assert buffer.is_ready(2, 0.05)


def test_no_step_is_due_early_because_the_clock_was_set_forward(monkeypatch) -> None:
    buffer = Buffer(4)
    buffer.add(sample("s"))
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert not buffer.is_ready(2, 60.0)


def test_a_conversation_is_not_over_because_the_clock_was_set_forward(monkeypatch) -> None:
    sessions = Sessions(60.0)
    sessions.open_trace("t", "default")
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert sessions.idle() == []


def test_the_time_of_day_is_asked_for_where_it_is_told_and_nowhere_to_wait() -> None:
    root = Path(claw.__file__).parent
    found = {str(p.relative_to(root)) for p in root.rglob("*.py")
             if re.search(r"\btime\.time\b|datetime\.now|utcnow", p.read_text())}
    assert found == set(WALL)
