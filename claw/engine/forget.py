"""`claw forget`: remove a conversation from a run, running or not, and say what learned from it.

Owns: asking the running actor or the folder itself, and the words.
Does not own: what goes (`actor/forgetting.py`), going back (the trainer).
"""

from pathlib import Path
from typing import Any

import typer

from claw.engine import report
from claw.engine.actor import forgetting
from claw.engine.actor.journal import Journal
from claw.engine.rundir import RunDir
from claw.errors import UsageError

DELETE_S = 120.0


def forget(run: Path, name: str, *, owner: str, is_sure: bool, rolls_back: bool) -> None:
    """Ask, remove, name the versions that learned from it, and offer to go back."""
    folder = RunDir(run)
    is_running = folder.is_held()
    ask = _asker(run, owner) if is_running else _folder(folder, owner)
    about = ask(name, True)
    report.say(f"{about['turns']} turns go, with their words, tokens, votes, hints and samples.")
    report.say(learned(about))
    if not is_sure and not typer.confirm("Forget it?"):
        raise typer.Exit(1)
    done = ask(name, False)
    report.say(f"forgotten: {done['forgotten']} turns")
    if not about["learned"]:
        return
    back = about["back_to"]
    if not is_running:
        report.say(f"to undo what was learned: claw train --resume {run}, then "
                   f"claw rollback {back} --run {run}")
    elif rolls_back or (not is_sure and typer.confirm(f"Serve v{back} again, which has not "
                                                      "learned from it?")):
        report.roll_back(run, owner=owner, adapter="default", to=back)
    else:
        report.say(f"to undo what was learned: claw rollback {back} --run {run}")


def learned(about: dict[str, Any]) -> str:
    """What the weights know of it, in one sentence or two."""
    hand = f" A step has {about['in_step']} of its samples in hand: the version that it makes " \
           "will have learned from them." if about["in_step"] else ""
    if not about["learned"]:
        return "No version has learned from it." + hand
    first, carried = (", ".join(f"v{n}" for n in about[k]) for k in ("learned", "carried"))
    return (f"{first} learned from it; {carried or 'none that still serves'} carries that on. "
            f"The newest version before it is v{about['back_to']}." + hand)


def _asker(run: Path, owner: str) -> Any:
    def ask(name: str, only_look: bool) -> dict[str, Any]:
        return report.ask_run(run, "forget", {"session": name, "owner": owner,
                                              "only_look": only_look}, timeout_s=DELETE_S)
    return ask


def _folder(folder: RunDir, owner: str) -> Any:
    """The journal of a run that is not running, held while it is changed."""
    def ask(name: str, only_look: bool) -> dict[str, Any]:
        folder.hold()
        try:
            journal = Journal(folder.path)
            try:
                return _in(journal, name, owner, only_look=only_look)
            finally:
                journal.close()
        finally:
            folder.release()
    return ask


def _in(journal: Journal, name: str, owner: str, *, only_look: bool) -> dict[str, Any]:
    found = forgetting.traces(journal, name, owner)
    if not found:
        raise UsageError("no such conversation", found=name, do="list the newest: claw turns",
                         allowed="a session's name, a trace id, a turn id or a response id")
    about = forgetting.influence(journal, found, owner).fields()
    turns = sum(len(journal.turn_ids(trace)) for trace in found)
    forgotten = 0 if only_look else forgetting.forget(journal, found)
    return about | {"turns": turns, "forgotten": forgotten}
