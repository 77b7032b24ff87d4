"""What a person asks of a run while it works: looking at it, and saying what is to be learned.

Owns: the questions of the dashboard and of `claw forget`, one method each.
Does not own: the pages' numbers (`views.py`), what consent means (`consent.py`), HTTP (the plugin).
"""

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from claw.engine.actor import exporting, forgetting
from claw.engine.actor.consent import NEVER
from claw.engine.actor.ledger import is_held
from claw.engine.actor.parts import Parts
from claw.engine.actor.views import Views
from claw.errors import UsageError
from claw.records import DEFAULT_OWNER, Version
from claw.sdk.app import EngineError

QUESTIONS = ("look", "pause", "exclude", "quarantine", "forget", "export", "budget")
MAX_AT_ONCE = 1000
"""held turns that one question releases or drops"""


class Desk:
    """Answers each of `QUESTIONS` (docs/wire.md)."""

    def __init__(self, parts: Parts, run_dir: Path) -> None:
        self._parts, self._run_dir = parts, run_dir
        self._views = Views(run_dir, parts.chat, parts.config)
        self._reading = asyncio.Semaphore(2)

    async def answer(self, type: str, fields: dict[str, Any], owner: str) -> dict[str, Any]:
        """Return the reply's fields."""
        match type:
            case "look":
                return await self._look(str(fields.get("what") or ""), fields, owner)
            case "pause":
                return {"until": self._parts.consent.pause(owner, float(fields["seconds"]))}
            case "exclude":
                return self._exclude(str(fields["trace_id"]), bool(fields.get("on", True)), owner)
            case "quarantine":
                return await self._quarantine(
                    str(fields["do"]), [str(id) for id in fields.get("turn_ids") or ()], owner)
            case "forget":
                return await self._forget(str(fields["session"]), owner,
                                          only_look=bool(fields.get("only_look")))
            case "budget":
                return self._budget(str(fields["name"]), fields, owner)
            case "export":
                return await self._export(int(fields["number"]), owner)
        raise EngineError(400, f"no such question: {type!r}")

    async def _look(self, what: str, fields: dict[str, Any], owner: str) -> dict[str, Any]:
        """Reading is a thread's work: a page must not hold up a reply."""
        if what == "people":
            return self._people(owner)
        if what == "budget":
            return self._use_of(owner)
        async with self._reading:
            found = await asyncio.to_thread(self._views.look, what, fields, owner)
        if found is None:
            raise EngineError(404, f"nothing here is called {what!r} "
                              f"{fields.get('id') or ''}".strip(), code="not_found")
        consent = self._parts.consent
        for row in [found, *found.get("conversations", [])]:
            if row.get("trace_id"):
                row["is_excluded"] = consent.excludes(row["trace_id"])
        return found | {"paused_until": consent.paused_until(owner)}

    def _people(self, owner: str) -> dict[str, Any]:
        """Who uses the run, and how much; nothing of what they say."""
        people, meter = self._parts.people, self._parts.meter
        self._check_admin(owner, "sees who uses the run")
        rows = [asdict(e.person) | {
            "created": e.created, "used": meter.used(e.person.name),
            "version": self._parts.published.newest(e.person.name),
            "paused_until": self._parts.consent.paused_until(e.person.name),
        } for e in people.all()]
        return {"people": rows}

    def _use_of(self, owner: str) -> dict[str, Any]:
        """A person's own budget, and what is left of it."""
        person = self._parts.people.named(owner)
        if person is None:
            raise EngineError(404, f"nobody is called {owner[:100]!r}", code="not_found")
        used = self._parts.meter.used(owner)
        left = max(person.tokens_per_day - used, 0) if person.tokens_per_day else None
        return asdict(person) | {"used": used, "left": left}

    def _budget(self, name: str, fields: dict[str, Any], owner: str) -> dict[str, Any]:
        """Set what somebody may use, or pause it; what is not named stays as it is."""
        self._check_admin(owner, "sets budgets")
        limits = {k: int(fields[k]) for k in ("requests_per_minute", "tokens_per_day")
                  if fields.get(k) is not None}
        pause = fields.get("is_paused")
        try:
            person = self._parts.people.budget(
                name, **limits, is_paused=None if pause is None else bool(pause))
        except UsageError as error:
            raise EngineError(400, str(error), param="name") from error
        return asdict(person)

    def _check_admin(self, owner: str, does: str) -> None:
        asks = self._parts.people.named(owner)
        if asks is None or not asks.is_admin:
            raise EngineError(403, f"Only an administrator {does}.", type="permission_error")

    def _exclude(self, trace_id: str, is_excluded: bool, owner: str) -> dict[str, Any]:
        """Never learn from a conversation and its sub-agents'; what waits of it is taken back."""
        found = forgetting.traces(self._parts.journal, trace_id, owner)
        if trace_id not in found:
            raise _unknown(trace_id)
        taken = 0
        for id in found:
            self._parts.consent.exclude(id, is_excluded=is_excluded)
            taken += self._parts.take_back(id, NEVER) if is_excluded else 0
        return {"trace_id": trace_id, "is_excluded": is_excluded, "taken_back": taken}

    async def _quarantine(self, do: str, turn_ids: list[str], owner: str) -> dict[str, Any]:
        """Release or drop held turns of the owner; all of them where none is named."""
        if do not in ("release", "drop"):
            raise EngineError(400, f"a held turn is released or dropped; found {do!r}", param="do")
        ledger, crediting = self._parts.ledger, self._parts.crediting
        held = dict.fromkeys(id for id, whose in ledger.held.items() if whose == owner)
        for id in turn_ids:
            if id not in held:
                raise EngineError(404, f"no held turn is called {id[:200]!r}", param="turn_ids",
                                  code="turn_not_found")
        done = {}
        for id in (turn_ids or list(held))[:MAX_AT_ONCE]:
            turn = ledger.get(id)
            if turn is None or not is_held(turn):
                continue  # somebody else was quicker
            if do == "drop":
                crediting.drop(turn)
            done[id] = "dropped" if do == "drop" else await crediting.release(turn)
        return {"done": done}

    async def _forget(self, name: str, owner: str, *, only_look: bool) -> dict[str, Any]:
        """Remove a conversation, by the client's name for it, its trace id, or one of its turns.

        `only_look` says what would go and removes nothing.
        """
        journal = self._parts.journal
        found = forgetting.traces(journal, name, owner)
        if not found:
            raise _unknown(name)
        influence = forgetting.influence(journal, found, owner).fields()
        if only_look:
            turns = sum(len(journal.turn_ids(trace)) for trace in found)
            return {"turns": turns, "forgotten": 0} | influence
        return {"forgotten": await self._parts.forget(found)} | influence

    async def _export(self, number: int, owner: str) -> dict[str, Any]:
        version = self._version(number, owner)
        if version.kind != "lora":
            raise EngineError(400, "A whole model is written by the command line: "
                              f"claw export FOLDER --version {number}")
        name = f"v{number}" if owner == DEFAULT_OWNER else f"{owner}-v{number}"
        folder = self._run_dir / "exports" / name
        if not folder.exists():
            await asyncio.to_thread(exporting.copy_adapter, version, folder)
        return {"folder": str(folder), "number": number}

    def _version(self, number: int, owner: str) -> Version:
        for version in self._parts.journal.versions():
            if (version.owner, version.number) == (owner, number):
                if version.path and Path(version.path).is_dir():
                    return version
                raise EngineError(410, f"The weights of v{number} are no longer on the disk.")
        raise EngineError(404, f"There is no version {number}.", code="not_found")


def _unknown(name: str) -> EngineError:
    return EngineError(404, f"no such conversation: {name[:200]!r}", code="session_not_found")
