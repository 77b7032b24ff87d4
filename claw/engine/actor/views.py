"""What the dashboard shows, read from the journal beside the actor's own connection.

Owns: the queries, and the plain values that a page is made of. Reads only.
Does not own: HTML (the plugin), the story in words (`why.py`).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from claw.config import RunConfig
from claw.engine.actor import askers, speech, suspect
from claw.engine.actor.album import digests
from claw.engine.actor.chat import Chat
from claw.engine.actor.journal import Journal
from claw.engine.actor.ledger import HELD
from claw.engine.actor.signals import merged
from claw.engine.actor.store import NAME
from claw.engine.monitor import METRICS
from claw.records import DEFAULT_OWNER, Signal, TurnKind, TurnState

MAX_ROWS = 200
MAX_LEARNED = 5000
"""newest turns that the curves are made of"""
MAX_METRICS = 4 << 20
"""bytes of the newest metrics that are read"""
MAX_LESSONS = 12
END_MARK = "■"
"""stands for the end-of-turn token"""
SHOWN = 200
"""characters of a message in a list"""
TURN_SQL = (
    "SELECT t.id, t.trace_id, t.idx, t.kind, t.state, t.reason, t.body, t.created, t.updated,"
    " tr.session FROM turns t JOIN traces tr ON tr.id = t.trace_id WHERE tr.owner=?"
)


class Views:
    """Answers `look`: one method for each of `_LOOKS`."""

    def __init__(self, run_dir: Path, chat: Chat, config: RunConfig) -> None:
        self._run_dir, self._chat, self._config = run_dir, chat, config

    def look(self, what: str, about: dict[str, Any], owner: str) -> dict[str, Any] | None:
        """Return what is asked for; None when there is no such thing."""
        if what not in _LOOKS or not (self._run_dir / NAME).exists():
            return None
        journal = Journal(self._run_dir, read_only=True)
        try:
            return getattr(self, f"_{what}")(journal, about, owner)
        finally:
            journal.close()

    # --- turns -------------------------------------------------------------------------------

    def _turns(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any]:
        """The newest turns; `since` takes those that changed later, oldest change first."""
        limit = min(max(int(about.get("limit") or 50), 1), MAX_ROWS)
        sql, values, order = TURN_SQL, [owner], "t.rowid DESC"
        if about.get("trace_id"):
            sql, order = sql + " AND t.trace_id=?", "t.rowid"
            values.append(str(about["trace_id"]))
        if about.get("since") is not None:
            sql, order = sql + " AND t.updated>?", "t.updated"
            values.append(about["since"])
        for kind in TurnKind:
            if about.get(str(kind)):
                sql += f" AND t.kind='{kind}'"
        rows = journal.read(f"{sql} ORDER BY {order} LIMIT {limit}", *values)
        return {"turns": [_row(journal, *row) for row in rows]}

    def _conversations(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any]:
        rows = journal.read(
            "SELECT tr.id, tr.session, tr.ended, COUNT(*), MAX(t.updated),"
            " (SELECT id FROM turns WHERE trace_id=tr.id ORDER BY rowid LIMIT 1)"
            " FROM traces tr JOIN turns t ON t.trace_id = tr.id"
            " WHERE tr.owner=? AND t.kind=? AND t.state!=? GROUP BY tr.id"
            " ORDER BY MAX(t.updated) DESC LIMIT ?",
            owner, str(TurnKind.MAIN), str(TurnState.FORGOTTEN), MAX_ROWS,
        )
        made = [
            {"trace_id": id, "session": session, "ended": ended, "turns": n, "updated": at,
             "request": _line(_asked(journal, first)), "states": _states(journal, id)}
            for id, session, ended, n, at, first in rows
        ]
        return {"conversations": made}

    def _conversation(
        self, journal: Journal, about: dict[str, Any], owner: str
    ) -> dict[str, Any] | None:
        id = str(about.get("id") or "")
        rows = journal.read("SELECT session, ended FROM traces WHERE id=? AND owner=?", id, owner)
        if not rows:
            return None
        found = self._turns(journal, {"trace_id": id, "limit": MAX_ROWS}, owner)
        return found | {"trace_id": id, "session": rows[0][0], "ended": rows[0][1],
                        "parent": _parent(journal, id), "subagents": _subagents(journal, id)}

    def _turn(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any] | None:
        """One turn whole: what was asked, every token, who judged, what was learned."""
        id = str(about.get("id") or "").removeprefix("chatcmpl-")
        rows = journal.read(TURN_SQL + " AND t.id=?", owner, id)
        turn = journal.turn(id) if rows else None
        if turn is None:
            return None if not rows else {"id": id, "state": str(TurnState.FORGOTTEN),
                                          "status": str(TurnState.FORGOTTEN), "trace_id": ""}
        signals = journal.signals(id)
        samples = [self._sample(journal, *row, signals) for row in journal.read(
            "SELECT s.id, s.state, s.reason, s.body, s.lease_id, l.version, l.body FROM samples s"
            " LEFT JOIN leases l ON l.id = s.lease_id WHERE s.turn_id=? ORDER BY s.created", id)]
        render, c = journal.render(id), turn.completion
        return _row(journal, *rows[0]) | {
            "request_messages": [_message(m) for m in turn.messages],
            "reply": speech.shown(turn.reply) if turn.reply else "",
            "next_state": [_message(m) for m in turn.next_state],
            "tools": [str((t.get("function") or {}).get("name")) for t in turn.tools],
            "tokens": self._tokens(c, samples),
            "finish_reason": str(c.finish_reason) if c else "",
            "prompt_tokens": len(turn.prompt_ids), "found_by": render.get("place", ""),
            "kind_by": render.get("kind", ""), "temperature": turn.sampling.temperature,
            "signals": [_signal(s) for s in signals], "samples": samples,
            "named_by": render.get("named_by", ""), "parent": _parent(journal, turn.trace_id),
            "subagents": [one for one in _subagents(journal, turn.trace_id)
                          if one["turn_id"] == id],
        }

    def _quarantine(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any]:
        """The turns that wait for the person, newest first, with the words that would teach."""
        rows = journal.read(
            f"{TURN_SQL} AND t.state=? AND t.reason LIKE ? ORDER BY t.updated DESC LIMIT ?",
            owner, str(TurnState.SKIPPED), f"{HELD}:%", MAX_ROWS)
        made = []
        for row in rows:
            signal = merged(journal.signals(row[0]))
            hints = [suspect.masked(h) for h in signal.hints] if signal else []
            made.append(_row(journal, *row) | {"words": hints})
        return {"turns": made}

    def _requests(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any]:
        """How requests were understood, and the newest that no person made, each with the rule."""
        sides = self._turns(journal, {"side": True, "limit": about.get("limit")}, owner)["turns"]
        for turn in sides:
            turn["kind_by"] = journal.render(turn["id"]).get("kind", "")
            turn["parent"] = _parent(journal, turn["trace_id"])
        return askers.counted(journal, owner) | {"side_turns": sides}

    def _picture(
        self, journal: Journal, about: dict[str, Any], owner: str
    ) -> dict[str, Any] | None:
        """A picture that a turn of the owner shows, as it was sent."""
        digest = str(about.get("id") or "")
        is_theirs = journal.read(
            "SELECT 1 FROM shown s JOIN turns t ON t.id = s.turn_id JOIN traces tr ON"
            " tr.id = t.trace_id WHERE s.digest=? AND tr.owner=? LIMIT 1", digest, owner)
        data = journal.picture(digest) if is_theirs else None
        return None if data is None else {"data": data}

    def _tokens(self, completion: Any, samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Each sampled token with its text and worth; the sample that taught is the last."""
        if completion is None:
            return []
        taught = samples[-1] if samples else {}
        votes, gaps = taught.get("advantages") or [], taught.get("gaps") or []
        made, detok = [], self._chat.detokeniser()
        ids = [int(i) for i in completion.ids]
        for i, id in enumerate(ids):
            text = detok.add([id]) if i + 1 < len(ids) else detok.add([id]) + detok.end()
            if id in self._chat.stop_ids:
                text = END_MARK
            vote = votes[i] if i < len(votes) else 0.0
            gap = gaps[i] if i < len(gaps) else 0.0
            made.append({
                "text": text, "vote": vote, "gap": gap, "advantage": self._worth(vote, gap),
                "logp": _number(completion.logps[i]), "version": int(completion.versions[i]),
            })
        return made

    def _worth(self, vote: float, gap: float) -> float:
        """w_rl * A + w_opd * (l_T - l_old): how far up or down the step pushed a sampled token."""
        return self._config.loss.w_rl * vote + self._config.loss.w_opd * gap

    def _sample(
        self, journal: Journal, id: str, state: str, reason: str, body: str, lease: str,
        version: int | None, update: str | None, signals: Sequence[Signal],
    ) -> dict[str, Any]:
        fields, arrays = json.loads(body), journal.arrays(id)
        used = arrays["mask"] * arrays["advantages"] if fields.get("has_advantage") else []
        hints = {h: s.judge for s in reversed(signals) for h in s.hints}
        overlap, chosen = arrays.get("overlap"), arrays.get("chosen")
        made = []
        for i in range(int(fields.get("hints") or 0)):
            whole = self._chat.decode(arrays[f"hints.{i}"])
            text = next((h for h in hints if h in whole), "")
            made.append({
                "text": text, "by": hints.get(text, ""),
                "overlap": None if overlap is None else _number(overlap[i]),
                "chosen": None if chosen is None else _number(chosen[i]),
            })
        step = json.loads(update or "{}")
        return {
            "id": id, "state": state, "reason": reason, "lease": lease, "version": version,
            "step": step.get("step"), "loss": (step.get("loss") or {}).get("total"),
            "advantages": [_number(a) or 0.0 for a in used],
            "gaps": [_number(g) or 0.0 for g in arrays.get("gap", [])], "hints": made,
        }

    # --- versions ----------------------------------------------------------------------------

    def _versions(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any]:
        taught = _taught(journal, owner)
        metrics = _by_version(self._metrics(owner))
        rows = [
            {"number": v.number, "parent": v.parent, "status": str(v.status), "kind": v.kind,
             "note": v.note, "created": v.created,
             "on_disk": bool(v.path) and Path(v.path).is_dir(),
             "turns": len(taught[v.number]), "metrics": metrics.get(v.number, {})}
            for v in journal.versions() if v.owner == owner
        ]
        return {"versions": rows[::-1], "max_rise": self._config.gate.max_rise}

    def _version(
        self, journal: Journal, about: dict[str, Any], owner: str
    ) -> dict[str, Any] | None:
        """One version, with the turns and hints that made it, and how turns went under it."""
        number = int(about.get("id") or 0)
        found = [v for v in self._versions(journal, about, owner)["versions"]
                 if v["number"] == number]
        if not found:
            return None
        ids = _taught(journal, owner)[number][:MAX_ROWS]
        answers = _compared(journal, number, owner)
        rows = [row for id in ids for row in journal.read(TURN_SQL + " AND t.id=?", owner, id)]
        hints: Counter[str] = Counter(h for id in ids for s in journal.signals(id) for h in s.hints)
        learned = {row["version"]: row for row in self._learning(journal, {}, owner)["versions"]}
        return found[0] | {
            "made_by": [_row(journal, *row) for row in rows],
            "hints": [{"text": text, "times": n} for text, n in hints.most_common(20)],
            "under_it": learned.get(number), "answers": answers,
            "max_rise": self._config.gate.max_rise,
        }

    def _learning(self, journal: Journal, about: dict[str, Any], owner: str) -> dict[str, Any]:
        """How turns went under each version, and the steps' own numbers."""
        rows = journal.read(
            "SELECT t.id, t.state, a.dtype, a.data FROM turns t JOIN traces tr ON tr.id=t.trace_id"
            " JOIN arrays a ON a.record=t.id AND a.name='completion.versions'"
            " WHERE tr.owner=? AND t.kind=? ORDER BY t.rowid DESC LIMIT ?",
            owner, str(TurnKind.MAIN), MAX_LEARNED,
        )
        under: dict[int, Counter[str]] = defaultdict(Counter)
        for id, _, dtype, data in rows:
            stamps = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
            if not len(stamps):
                continue
            said, signal = under[int(stamps[-1])], merged(journal.signals(id))
            said["turns"] += 1
            said["tokens"] += len(stamps)
            if signal is not None:
                said["hints"] += bool(signal.hints)
                said[{1: "up", -1: "down", 0: "neutral", None: "abstained"}[signal.vote]] += 1
        versions = [{"version": number, **said} for number, said in sorted(under.items())]
        steps = [m for m in self._metrics(owner) if "train/loss" in m]
        return {"versions": versions, "steps": steps[-MAX_ROWS:],
                "lessons": _lessons(journal, owner), "compared": _tally(journal, owner),
                "max_rise": self._config.gate.max_rise}

    def _metrics(self, owner: str) -> list[dict[str, Any]]:
        """An owner's newest lines of metrics.jsonl; one that is being written is left out."""
        try:
            with (self._run_dir / METRICS).open("rb") as file:
                file.seek(0, 2)
                start = max(0, file.tell() - MAX_METRICS)
                file.seek(start)
                lines = file.read(MAX_METRICS).split(b"\n")[bool(start):]
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                values = json.loads(line)
            except ValueError:
                continue
            if values.get("owner", DEFAULT_OWNER) == owner:
                found.append(values)
        return found


_LOOKS = ("turns", "turn", "conversations", "conversation", "versions", "version", "learning",
          "picture", "quarantine", "requests")


def _row(
    journal: Journal, id: str, trace_id: str, index: int, kind: str, state: str, reason: str,
    body: str, created: float, updated: float, session: str,
) -> dict[str, Any]:
    """A turn in a list."""
    fields = json.loads(body)
    signal = merged(journal.signals(id))
    detailed = state in (TurnState.SKIPPED, TurnState.TRAINED)
    stamps = journal.read(
        "SELECT dtype, data FROM arrays WHERE record=? AND name='completion.versions'", id)
    versions = [np.frombuffer(data, np.dtype(dtype).newbyteorder("<")) for dtype, data in stamps]
    return {
        "id": id, "trace_id": trace_id, "index": index, "kind": kind, "state": state,
        "reason": reason, "status": f"{state}:{reason}" if detailed else state,
        "request": _line(_asked(journal, id)),
        "said": _line(speech.shown(fields.get("reply") or {})),
        "answered_by": int(versions[0][-1]) if versions and len(versions[0]) else None,
        "reply_tokens": len(versions[0]) if versions else 0,
        "vote": signal.vote if signal else None, "judge": signal.judge if signal else "",
        "hints": len(signal.hints) if signal else 0,
        "created": created, "updated": updated, "session": session,
    }


def _asked(journal: Journal, id: str) -> str:
    """The newest message of a request that is not the policy's own."""
    for (text,) in journal.read(
        "SELECT body FROM parts JOIN texts USING(digest) WHERE turn_id=? AND part='message'"
        " ORDER BY position DESC LIMIT 4", id,
    ):
        said = speech.words([json.loads(text)])
        if said and said[0].get("role") != "assistant":
            return speech.own_words(said[0])
    return ""


def _parent(journal: Journal, trace_id: str) -> dict[str, str] | None:
    """The conversation, and the turn of it, that asked for this one; None: a person did."""
    found = journal.parent_of(trace_id)
    return {"trace_id": found[0], "turn_id": found[1]} if found else None


def _subagents(journal: Journal, trace_id: str) -> list[dict[str, Any]]:
    """The conversations of sub-agents that were asked for in this one."""
    made = []
    for child, turn_id in journal.children_of(trace_id):
        turns = [id for id, _ in journal.turn_ids(child)]
        made.append({"trace_id": child, "turn_id": turn_id, "turns": len(turns),
                     "request": _line(_asked(journal, turns[0])) if turns else "",
                     "states": _states(journal, child)})
    return made


def _states(journal: Journal, trace_id: str) -> dict[str, int]:
    return dict(journal.read(
        "SELECT state, COUNT(*) FROM turns WHERE trace_id=? GROUP BY state", trace_id))


def _taught(journal: Journal, owner: str) -> dict[int, list[str]]:
    """Version of an owner -> the turns that its step trained, in order."""
    found: dict[int, list[str]] = defaultdict(list)
    for turn, version in journal.read(
        "SELECT s.turn_id, l.version FROM samples s JOIN leases l ON l.id=s.lease_id"
        " JOIN turns t ON t.id=s.turn_id JOIN traces tr ON tr.id=t.trace_id"
        " WHERE s.state='trained' AND l.version IS NOT NULL AND tr.owner=? ORDER BY s.rowid", owner
    ):
        found[int(version)].append(turn)
    return found


def _lessons(journal: Journal, owner: str) -> list[dict[str, Any]]:
    """The words that taught, most frequent first, each with the newest turn that held it."""
    found: dict[str, dict[str, Any]] = {}
    for version, turns in sorted(_taught(journal, owner).items()):
        for id in turns:
            for hint in dict.fromkeys(h for s in journal.signals(id) for h in s.hints):
                lesson = found.setdefault(hint, {"text": hint, "times": 0, "first": version})
                lesson["times"] += 1
                lesson |= {"last": version, "turn": id}
    return sorted(found.values(), key=lambda one: -one["times"])[:MAX_LESSONS]


def _compared(journal: Journal, number: int, owner: str) -> list[dict[str, Any]]:
    """What this version and the one before answered to the same questions: worse ones first."""
    rows = journal.read("SELECT subject, text FROM events WHERE kind='better' ORDER BY n")
    found = [{"turn": subject, **json.loads(text)} for subject, text in rows]
    return sorted((one for one in found
                   if one["version"] == number and one["owner"] == owner),
                  key=lambda one: one["verdict"])[:MAX_ROWS]


def _tally(journal: Journal, owner: str) -> dict[str, Any] | None:
    """How the owner's newest version that was compared did; None while none was."""
    found = [json.loads(text) for (text,) in journal.read(
        "SELECT text FROM events WHERE kind='better' ORDER BY n DESC LIMIT ?", MAX_ROWS)]
    rows = [row for row in found if row["owner"] == owner]
    newest = [row for row in rows if row["version"] == rows[0]["version"]]
    if not newest:
        return None
    signs = Counter(row["verdict"] for row in newest)
    return {"version": newest[0]["version"], "before": newest[0]["before"], "better": signs[1],
            "worse": signs[-1], "neither": signs[0]}


def _by_version(metrics: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {int(m["train/version"]): m for m in metrics if m.get("train/version") is not None}


def _signal(s: Signal) -> dict[str, Any]:
    return {"judge": s.judge, "vote": s.vote, "votes": list(s.votes), "number": s.number,
            "hints": list(s.hints), "reason": s.reason, "is_hint": s.is_hint_only}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    role = str(message.get("role"))
    text = speech.shown(message) if role == "assistant" else speech.text(message.get("content"))
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    others = [str(p.get("type")) for p in parts
              if isinstance(p, dict) and p.get("type") not in (None, "text", "image_url")]
    return {"role": role, "text": text, "pictures": digests(message), "others": others}


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _number(value: Any) -> float | None:
    value = float(value)
    return value if np.isfinite(value) else None
