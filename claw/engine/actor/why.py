"""The story of a turn, told from the journal by another process.

Owns: the words. Reads only. Does not own: what happened.
"""

import json
import time
from pathlib import Path
from typing import Any

from claw.engine.actor import speech
from claw.engine.actor.album import digests
from claw.engine.actor.journal import Journal
from claw.errors import UsageError
from claw.records import Signal, Trace, Turn, Version

RESPONSE = "chatcmpl-"
MAX_SHOWN = 600
"""characters of one message"""


def story(run_dir: Path | str, target: str) -> list[str]:
    """Return the whole story of a turn; `target` is a turn id or a response id."""
    journal = Journal(run_dir, read_only=True)
    try:
        return _story(journal, target.strip().removeprefix(RESPONSE))
    finally:
        journal.close()


def versions(run_dir: Path | str) -> list[Version]:
    """Return the versions of a run, in order."""
    journal = Journal(run_dir, read_only=True)
    try:
        return journal.versions()
    finally:
        journal.close()


def turns(run_dir: Path | str, last: int = 20) -> list[dict[str, str]]:
    """Return the newest turns, newest first: id, kind, status, request, reply."""
    journal = Journal(run_dir, read_only=True)
    try:
        ids = journal.read("SELECT id, kind, state FROM turns ORDER BY rowid DESC LIMIT ?", last)
        return [_row(journal, *row) for row in ids]
    finally:
        journal.close()


def _row(journal: Journal, id: str, kind: str, state: str) -> dict[str, str]:
    turn = journal.turn(id)
    if turn is None:
        return {"id": id, "kind": kind, "status": state, "request": "", "reply": ""}
    asked = [m for m in speech.words(turn.messages) if m.get("role") != "assistant"]
    request = speech.own_words(asked[-1]) if asked else ""
    reply = speech.shown(turn.reply) if turn.reply else ""
    return {"id": id, "kind": kind, "status": turn.status, "request": _line(request, 80),
            "reply": _line(reply, 80)}


def _story(journal: Journal, id: str) -> list[str]:
    turn = journal.turn(id)
    if turn is None:
        rows = journal.read("SELECT state FROM turns WHERE id=?", id)
        if rows:
            return [f"{id}: {rows[0][0]}; its words and all derived from them are gone"]
        raise UsageError("no such turn", found=id, do="list the newest: claw turns")
    lines = [f"{turn.id}   {turn.status}"]
    if turn.reason and turn.reason not in turn.status:
        lines.append(f"  because    {turn.reason}")
    lines += _made(journal, turn) + _kin(journal, turn)
    lines += _said(turn) + _judged(journal.signals(id))
    lines += _outcome(journal.trace(turn.trace_id))
    return lines + _trained(journal, turn) + _events(journal, id)


def _made(journal: Journal, turn: Turn) -> list[str]:
    made = journal.render(turn.id)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(turn.created))
    s, lines = turn.sampling, []
    lines.append(f"  asked      {when}, turn {turn.index} of {turn.trace_id}, owner {turn.owner}")
    lines.append(f"  kind       {turn.kind} ({made.get('kind', '?')}); "
                 f"conversation found by: {made.get('place', '?')}")
    lines.append(f"  prompt     {len(turn.prompt_ids)} tokens, {made.get('rule', '?')}")
    lines.append(f"  sampling   temperature {s.temperature:g}, top_p {s.top_p:g}, "
                 f"top_k {s.top_k}, max_tokens {s.max_tokens}")
    c = turn.completion
    if c is None:
        return [*lines, "  reply      none"]
    stamps = sorted({int(v) for v in c.versions})
    mean = float(c.logps.mean()) if len(c.logps) else 0.0
    return [*lines, f"  reply      {len(c.ids)} tokens by "
            f"{', '.join(f'v{v}' for v in stamps) or 'nobody'}, finish {c.finish_reason}, "
            f"mean log-prob {mean:.3f}"]


def _kin(journal: Journal, turn: Turn) -> list[str]:
    """Who asked for the turn's conversation, if no person did, and which ones it asked for."""
    lines = []
    if found := journal.parent_of(turn.trace_id):
        parent, asked_by = found
        lines.append(f"  sub-agent  asked for by {asked_by or 'a turn'} of {parent}")
    for child, asked_by in journal.children_of(turn.trace_id):
        if asked_by == turn.id:
            turns = journal.turn_ids(child)
            first = f", {turns[0][0]} first" if turns else ""
            lines.append(f"  asked for  a sub-agent: {child}, {len(turns)} turns{first}")
    return lines


def _said(turn: Turn) -> list[str]:
    lines = ["", "request"]
    lines += [_message(m) for m in turn.messages[-4:]]
    lines += ["reply", "  " + _line(speech.shown(turn.reply)) if turn.reply else "  none"]
    lines.append("next state")
    return [*lines, *([_message(m) for m in turn.next_state] or ["  none"])]


def _judged(signals: list[Signal]) -> list[str]:
    lines = ["", "signals"]
    for s in signals:
        vote = "gives a hint" if s.is_hint_only else "abstains" if s.vote is None else (
            f"{s.vote:+d}")
        number = "" if s.number is None else f", number {s.number:g}"
        tally = f", votes {list(s.votes)}" if len(s.votes) > 1 else ""
        lines.append(f"  {s.judge}: {vote}{number}{tally}   {_line(s.reason)}")
        lines += [f"    hint: {_line(hint)}" for hint in s.hints]
    return lines if signals else [*lines, "  none"]


def _outcome(trace: Trace | None) -> list[str]:
    """How the turn's episode ended; a conversation has no outcome."""
    if trace is None or not trace.task_id or trace.end is None:
        return []
    value = "none" if trace.outcome is None else f"{trace.outcome:g}"
    by = f", said by {trace.judge}" if trace.judge else ""
    why = f"   {_line(trace.failure)}" if trace.failure else ""
    return ["", "episode", f"  task {trace.task_id}: {trace.end}, outcome {value}{by}{why}"]


def _trained(journal: Journal, turn: Turn) -> list[str]:
    rows = journal.read(
        "SELECT s.id, s.state, s.reason, s.lease_id, s.body, l.state, l.version, l.body"
        " FROM samples s LEFT JOIN leases l ON l.id = s.lease_id WHERE s.turn_id=?"
        " ORDER BY s.created", turn.id,
    )
    lines = ["", "sample"]
    for row in rows:
        lines += _sample(journal, *row)
    return lines if rows else [*lines, f"  none: {turn.status}"]


def _sample(
    journal: Journal, id: str, state: str, reason: str, lease: str, body: str,
    lease_state: str | None, version: int | None, update: str | None,
) -> list[str]:
    fields: dict[str, Any] = json.loads(body)
    arrays = journal.arrays(id)
    advantage = arrays.get("advantages")
    size = float(advantage[0]) if advantage is not None and len(advantage) else 0.0
    term = f"advantage {size:+.3f}" if fields.get("has_advantage") else "no GRPO term"
    lines = [f"  {id}   {state}{': ' + reason if reason else ''}",
             f"    {term}, {fields.get('hints') or 0} hints"]
    if lease:
        lines.append(f"    {lease} is {lease_state}")
    if version is not None:
        u = json.loads(update or "{}")
        total = (u.get("loss") or {}).get("total")
        loss = "" if total is None else f", loss {total:.4f}"
        lines.append(f"    trained in step {u.get('step', '?')}{loss}; made v{version}")
    return lines


def _events(journal: Journal, id: str) -> list[str]:
    rows = journal.read("SELECT at, kind, text FROM events WHERE subject=? AND kind!='better'"
                        " ORDER BY n", id)
    return [f"  {time.strftime('%H:%M:%S', time.localtime(at))} {kind}: {text}"
            for at, kind, text in rows]


def _message(message: dict[str, Any]) -> str:
    said = speech.shown(message) if message.get("role") == "assistant" else speech.text(
        message.get("content"))
    pictures = "".join(f" [picture {digest[:12]}]" for digest in digests(message))
    return f"  {message.get('role')}: {_line(said)}{pictures}"


def _line(text: str, limit: int = MAX_SHOWN) -> str:
    """One line, printable anywhere: no control characters, no lone surrogates."""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= limit else f"{text[:limit]} ... ({len(text)} characters)"
