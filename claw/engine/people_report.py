"""`claw people`: let people into a run, show who is there, and put them out.

Owns: the words. Does not own: the file of people (people), what they used (actor.meter).
"""

import time
from pathlib import Path

from rich.table import Table

from claw.engine.actor.journal import Journal
from claw.engine.actor.meter import Meter
from claw.engine.actor.store import NAME
from claw.engine.people import People
from claw.engine.report import console, say
from claw.engine.rundir import RunDir
from claw.errors import UsageError
from claw.sdk.app import Person


def add(run: Path, person: Person) -> None:
    """Let a person in and print their key, which nobody can read again."""
    _, config = RunDir.open(run)
    if not config.lora.rank:
        raise UsageError("full weights are one set, so they learn from one person",
                         found="lora.rank = 0", do="start a run with adapters: lora.rank=16")
    key = People(run).add(person)
    say(f"{person.name} is in, with conversations, versions and an adapter of their own.")
    say(f"key (shown this once): {key}")


def budget(
    run: Path, name: str, requests_per_minute: int | None, tokens_per_day: int | None,
    is_paused: bool | None,
) -> None:
    """Change a person's limits, or pause them, and say how they are now."""
    if requests_per_minute is None and tokens_per_day is None and is_paused is None:
        raise UsageError("nothing to change", found=name, allowed="--requests-per-minute, "
                         "--tokens-per-day, --pause, --go-on")
    p = People(run).budget(name, requests_per_minute=requests_per_minute,
                           tokens_per_day=tokens_per_day, is_paused=is_paused)
    say(f"{name}: {p.requests_per_minute or 'no limit of'} requests a minute, "
        f"{p.tokens_per_day or 'no limit of'} tokens a day"
        f"{'; paused: nothing is answered' if p.is_paused else ''}")


def remove(run: Path, name: str) -> None:
    """End a person's key."""
    People(run).remove(name)
    say(f"{name}'s key opens nothing any more. What they said and taught is still there: "
        f"claw forget SESSION --owner {name}")


def show(run: Path) -> None:
    """Who has a key, what they may use, and what they used."""
    people = People(run)
    entries = people.all()
    if not entries:
        say("Nobody but you: the run's own key is in its folder. Let somebody in: "
            "claw people add NAME")
        return
    journal = Journal(run, read_only=True) if (run / NAME).exists() else None
    try:
        meter = journal and Meter(people, journal)
        table = Table(box=None)
        for column in ("name", "since", "scopes", "requests a minute", "tokens a day",
                       "used today", "version"):
            table.add_column(column)
        for entry in entries:
            p = entry.person
            newest = max((v.number for v in (journal.versions() if journal else ())
                          if v.owner == p.name), default=0)
            table.add_row(
                p.name, time.strftime("%m-%d %H:%M", time.localtime(entry.created)),
                ", ".join([*p.scopes, *["admin"] * p.is_admin, *["paused"] * p.is_paused]),
                str(p.requests_per_minute or "no limit"),
                str(p.tokens_per_day or "no limit"), str(meter.used(p.name) if meter else 0),
                f"v{newest}")
        console.print(table)
    finally:
        if journal:
            journal.close()
