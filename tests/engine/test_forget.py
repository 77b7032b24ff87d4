"""`claw forget` on a folder that no run holds."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from claw.cli import app
from claw.config import parse
from claw.engine import report
from claw.engine.actor.journal import Journal
from claw.engine.forget import learned
from claw.engine.rundir import RunDir
from claw.errors import ClawError, UsageError
from claw.records import Trace, Turn, TurnKind, Version

FISH = "the word is swordfish"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run in which version 1 learned from one of two conversations."""
    import sys

    sys.path.insert(0, str(Path(__file__).parent / "actor"))
    from some_turns import sample, turn

    folder = RunDir.create(parse({"runs": str(tmp_path), "name": "r", "plugin_name": "personal"}))
    journal = Journal(folder.path)
    for name, said in (("a", FISH), ("b", "hello")):
        made: Turn = turn(f"turn_{name}", trace_id=f"trace_{name}", kind=TurnKind.MAIN, reply=said)
        journal.put_trace(Trace(f"trace_{name}", "default", "personal"), session=f"session {name}")
        journal.put_turn(made)
    journal.put_sample(sample("s", turn_id="turn_a", trace_id="trace_a"))
    journal.put_sample_state(["s"], "trained", lease_id="l")
    journal.put_lease("l", "acked", 1)
    for number in (0, 1):
        journal.put_version(Version("default", "default", number, number - 1 or None, "0" * 64))
    journal.close()
    return folder.path


def claw(*words: str, said: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(app, ["forget", *words], input=said)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def words_in(run: Path) -> bool:
    return any(FISH.encode() in f.read_bytes() for f in run.glob("journal*"))


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(report, "say", lines.append)
    return lines


@pytest.mark.parametrize("name", ["session a", "trace_a", "turn_a", "chatcmpl-turn_a"])
def test_a_conversation_goes_by_any_of_its_names(run: Path, printed: list[str], name: str) -> None:
    assert words_in(run)
    code, _ = claw(name, "--run", str(run), "--yes")
    assert code == 0 and not words_in(run)
    assert "v1 learned from it" in printed[1] and "before it is v0" in printed[1]
    assert printed[2] == "forgotten: 1 turns" and "claw rollback 0" in printed[3]
    journal = Journal(run, read_only=True)
    assert [i for (i,) in journal.read("SELECT id FROM turns WHERE state!='forgotten'")] == [
        "turn_b"]
    assert journal.read("SELECT session FROM traces WHERE id='trace_a'") == [("",)]
    journal.close()


def test_whoever_says_no_keeps_everything(run: Path, printed: list[str]) -> None:
    code, _ = claw("trace_a", "--run", str(run), said="n\n")
    assert code == 1 and words_in(run)


def test_nothing_to_undo_is_said_of_what_taught_nothing(run: Path, printed: list[str]) -> None:
    claw("trace_b", "--run", str(run), "--yes")
    assert printed[1] == "No version has learned from it." and len(printed) == 3


def test_an_unknown_name_is_refused_in_words(run: Path) -> None:
    with pytest.raises(UsageError, match="no such conversation"):
        claw("nobody", "--run", str(run), "--yes")


def test_a_folder_that_a_run_holds_is_not_written_behind_its_back(run: Path) -> None:
    held = RunDir(run)
    held.hold()
    try:
        with pytest.raises(ClawError):  # it is asked instead, and nobody answers here
            claw("trace_a", "--run", str(run), "--yes")
        assert words_in(run)
    finally:
        held.release()


def test_samples_in_a_step_are_told() -> None:
    about = {"learned": [], "carried": [], "back_to": None, "in_step": 2}
    assert "A step has 2 of its samples in hand" in learned(about)
