"""What a person sees of a run in the terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from claw.engine import report
from claw.engine.actor import why
from claw.errors import UsageError
from claw.records import new_id


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 60 columns."""
    written = io.StringIO()
    monkeypatch.setattr(report, "console", Console(file=written, width=60, highlight=False))
    return written


def test_a_turns_id_is_whole_on_a_narrow_terminal(
    screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"id": new_id("turn"), "kind": "main", "status": "trained:v12",
           "request": "a long question " * 9, "reply": "[b]an answer[/b] \x1b[2J " * 9}
    monkeypatch.setattr(why, "turns", lambda run, last: [row])
    report.show_turns(Path("run"), 5)
    assert f"{row['id']} " in screen.getvalue() and "trained:v12" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_an_app_cannot_be_left_to_other_machines() -> None:
    with pytest.raises(UsageError, match=r"rollout\.host = false has no effect"):
        report.read_config(["rollout.host=false"], "personal", "")
