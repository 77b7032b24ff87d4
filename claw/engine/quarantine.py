"""`claw quarantine`: the turns that a run held back, and what the person says to them.

Owns: the words. Does not own: what is held, and what releasing does (the running actor).
"""

from pathlib import Path
from typing import Any

from rich.markup import escape

from claw.engine import report
from claw.errors import UsageError

LOOK_S, RELEASE_S = 30.0, 120.0
"""a turn that is released is credited at once: long prompts are tokenised"""


def show(run: Path, *, owner: str) -> None:
    """Print the held turns, newest first: why, what was asked and answered, what would teach."""
    asked = {"what": "quarantine", "owner": owner}
    rows = report.ask_run(run, "look", asked, timeout_s=LOOK_S)["turns"]
    for row in rows:
        report.say(escape(f"{row['id']}  {row['reason']}"))
        for name, text in _words(row):
            report.say(escape(f"    {name:<8} {report.cut(text, 160)}"))
    report.say(f"{len(rows)} held. claw quarantine release TURN... learns from it after all; "
               "claw quarantine drop TURN... never does." if rows else "nothing is held")


def _words(row: dict[str, Any]) -> list[tuple[str, str]]:
    vote = {1: "good", -1: "bad"}.get(row["vote"] or 0, "")
    found = [("asked", row["request"]), ("answered", row["said"]), *(
        ("lesson", text) for text in row["words"])]
    return [*found, ("vote", f"{vote}, by {row['judge']}")] if vote else found


def settle(run: Path, do: str, turns: list[str], *, owner: str, all_: bool) -> None:
    """Release or drop held turns: those that are named, or all."""
    if bool(turns) == all_:
        raise UsageError(f"which turns to {do}?", found="none named" if not turns else
                         "turns and --all", allowed="turn ids, or --all",
                         do="look at them: claw quarantine list")
    ids = [turn.removeprefix("chatcmpl-") for turn in turns]
    done = report.ask_run(run, "quarantine", {"do": do, "turn_ids": ids, "owner": owner},
                          timeout_s=RELEASE_S)["done"]
    for id, status in done.items():
        report.say(escape(f"{id}  {status}"))
    report.say(f"{len(done)} turns {'dropped' if do == 'drop' else 'released'}")
