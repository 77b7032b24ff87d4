"""`claw judge audit`: how far the judges of a run can be believed, from its journal alone.

Owns: votes beside the person's thumbs, beside other judges' votes on the same turn, and beside the
other votes of one tally; abstentions, biases, cost; the tables. Does not own: the judges.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from claw.engine import report
from claw.engine.actor.journal import Journal
from claw.engine.actor.signals import PERSON
from claw.errors import UsageError
from claw.records import Signal, TurnKind

MIN_FOR_BIAS = 8
"""judged turns below which a bias would be chance"""
COMPARES = "model"
"""the judge that compares two answers, in both orders"""
FOLLOWS = "the judge follows the order"
COMPARED = (FOLLOWS, "the judge prefers the new reply", "the judge prefers the old reply",
            "no preference")
"""what it says of such a pair"""
Pairs = Counter[tuple[int, int]]
"""(one's vote, the other's vote) -> turns"""


@dataclass
class Audit:
    """What a journal says of one judge."""

    judged: int = 0
    votes: Counter[int] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)
    """abstentions by cause: tie, unreadable, no verdict"""
    thumbs: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    """(the person's thumb, the judge's vote) -> turns"""
    others: dict[str, Pairs] = field(default_factory=dict)
    """another judge -> votes of both on the same turns"""
    tallies: list[tuple[int, ...]] = field(default_factory=list)
    """the readable votes of each tally of more than one"""
    asked: int = 0
    """single answers"""
    unread: int = 0
    seconds: float = 0.0
    lengths: list[tuple[int, int]] = field(default_factory=list)
    """(reply tokens, vote)"""
    misses: list[tuple[int, int]] = field(default_factory=list)
    """(reply tokens, vote minus thumb)"""
    places: list[tuple[int, int]] = field(default_factory=list)
    """(place of the turn in its conversation, vote)"""
    compared: int = 0
    followed: int = 0
    """of the pairs that it compared: the order decided"""


def audit(run: Path) -> dict[str, Audit]:
    """Read every judge's signals of a run, with the person's thumbs beside them."""
    journal = Journal(run, read_only=True)
    found: dict[str, Audit] = {}
    try:
        for id, index in journal.read("SELECT id, idx FROM turns WHERE kind=?", str(TurnKind.MAIN)):
            signals = journal.signals(id)
            thumbs = [s.vote for s in signals if s.judge == PERSON and s.vote]
            length = journal.read("SELECT shape FROM arrays WHERE record=? AND"
                                  " name='completion.ids'", id)
            said = {s.judge: s for s in signals if s.judge != PERSON and not s.is_hint_only}
            for name, signal in said.items():
                into = found.setdefault(name, Audit())
                _count(into, signal, thumbs[-1] if thumbs else 0,
                       json.loads(length[0][0])[0] if length else 0, int(index))
            _beside(found, said.values())
        _orders(found, journal)
    finally:
        journal.close()
    return found


def _count(into: Audit, signal: Signal, thumb: int, length: int, index: int) -> None:
    into.judged += 1
    into.seconds += signal.seconds
    read = tuple(v for v in signal.votes if v is not None)
    into.asked += len(signal.votes)
    into.unread += len(signal.votes) - len(read)
    if len(read) > 1:
        into.tallies.append(read)
    if thumb:
        into.thumbs[thumb, signal.vote] += 1
    if signal.vote is None:
        into.silent[_cause(signal, read)] += 1
        return
    into.votes[signal.vote] += 1
    into.lengths.append((length, signal.vote))
    into.places.append((index, signal.vote))
    if thumb:
        into.misses.append((length, signal.vote - thumb))


def _cause(signal: Signal, read: Sequence[int]) -> str:
    """Why a judge abstained."""
    if len(signal.votes) > 1 and len(read) * 2 <= len(signal.votes):
        return "unreadable"
    return "tie" if len(set(read)) > 1 else "no verdict"


def _beside(found: dict[str, Audit], said: Iterable[Signal]) -> None:
    """Two judges who both voted on a turn: once from either side."""
    voted = [(s.judge, s.vote) for s in said if s.vote is not None]
    for (one, vote), (other, its) in combinations(voted, 2):
        found[one].others.setdefault(other, Counter())[vote, its] += 1
        found[other].others.setdefault(one, Counter())[its, vote] += 1


def _orders(found: dict[str, Audit], journal: Journal) -> None:
    """Pairs of answers that a judge compared in both orders (`better.questions`)."""
    for (text,) in journal.read("SELECT text FROM events WHERE kind='better'"):
        why = json.loads(text)["why"]
        if why in COMPARED:
            one = found.setdefault(COMPARES, Audit())
            one.compared += 1
            one.followed += why == FOLLOWS


# --- measures ------------------------------------------------------------------------------------


def bias(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Correlation of a vote with a number that it should not depend on; None for too few."""
    values = np.array(pairs, float)
    if len(values) < MIN_FOR_BIAS or not values.std(axis=0).all():
        return None
    return float(np.corrcoef(values.T)[0, 1])


def kappa(pairs: Pairs) -> float | None:
    """Cohen's kappa: agreement of two judges beyond what their habits give by chance.

    1: always, 0: as chance would. None where chance alone would agree always.
    """
    total = pairs.total()
    if not total:
        return None
    one, other = Counter[int](), Counter[int]()
    for (a, b), n in pairs.items():
        one[a] += n
        other[b] += n
    same = sum(n for (a, b), n in pairs.items() if a == b) / total
    chance = sum(one[v] * other[v] for v in one) / total**2
    return None if chance == 1 else (same - chance) / (1 - chance)


def alpha(tallies: Sequence[Sequence[int]]) -> float | None:
    """Krippendorff's alpha (nominal): agreement of the votes of one turn beyond chance.

    1: always, 0: as votes drawn from all turns would. None where all votes are the same.
    """
    counts = [Counter(tally) for tally in tallies if len(tally) > 1]
    all_of = sum(counts, Counter[int]())
    total = all_of.total()
    if not total:
        return None
    differ = sum((sum(c.values()) ** 2 - sum(n * n for n in c.values())) / (c.total() - 1)
                 for c in counts)
    by_chance = total**2 - sum(n * n for n in all_of.values())
    return None if not by_chance else 1 - (total - 1) * differ / by_chance


def figures(one: Audit) -> dict[str, Any]:
    """The numbers of an audit; None where there is too little to say."""
    silent = one.silent.total()
    pairs = [a == b for tally in one.tallies for a, b in combinations(tally, 2)]
    both = {k: n for k, n in one.thumbs.items() if k[1] is not None}
    return {
        "judged": one.judged, "up": one.votes[1], "neutral": one.votes[0], "down": one.votes[-1],
        "abstained": _share(silent, one.judged), "ties": _share(one.silent["tie"], one.judged),
        "unreadable": _share(one.silent["unreadable"], one.judged),
        "no_verdict": _share(one.silent["no verdict"], one.judged),
        "thumbs": one.thumbs.total(),
        "agreement": _share(sum(n for (t, v), n in both.items() if t == v), sum(both.values())),
        "opposite": sum(n for (thumb, vote), n in both.items() if vote == -thumb),
        "tallies": len(one.tallies), "votes_agree": _share(sum(pairs), len(pairs)),
        "unanimous": _share(sum(len(set(t)) == 1 for t in one.tallies), len(one.tallies)),
        "alpha": alpha(one.tallies),
        "length_bias": bias(one.lengths), "length_error": bias(one.misses),
        "place_bias": bias(one.places),
        "compared": one.compared, "order_followed": _share(one.followed, one.compared),
        "asked": one.asked, "unread": _share(one.unread, one.asked),
        "seconds": one.seconds, "seconds_a_turn": _share(one.seconds, one.judged),
        "with": {other: beside(pairs) for other, pairs in sorted(one.others.items())},
    }


def beside(pairs: Pairs) -> dict[str, float | int | None]:
    """Two judges on the turns on which both voted."""
    total = pairs.total()
    return {"turns": total,
            "agreement": _share(sum(n for (a, b), n in pairs.items() if a == b), total),
            "opposite": sum(n for (a, b), n in pairs.items() if a * b < 0),
            "kappa": kappa(pairs)}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


# --- tables --------------------------------------------------------------------------------------


def show_audit(run: Path, *, as_json: bool) -> None:
    """Print what `audit` found."""
    found = audit(run)
    if not found:
        raise UsageError("no judge has said anything in this run yet", found=str(run),
                         do="talk to it; claw turns shows which turns are judged")
    rows = {name: figures(one) for name, one in found.items()}
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None)
    table.add_column("")
    for name in rows:
        table.add_column(name, justify="right")
    for key, words in WORDS.items():
        table.add_row(words, *(shown(row[key]) for row in rows.values()))
    report.console.print(table)
    if len(found) > 1:
        report.console.print(_each_other(rows))


def _each_other(rows: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, title="judges with each other, on the turns that both voted on",
                  title_justify="left")
    for column in ("", "turns", "agree (share)", "opposite", "kappa"):
        table.add_column(column, justify="right" if column else "left")
    for name, other in combinations(rows, 2):
        if both := rows[name]["with"].get(other):
            table.add_row(f"{name} and {other}", *(shown(value) for value in (
                both["turns"], both["agreement"], both["opposite"], both["kappa"])))
    return table


WORDS = {
    "judged": "turns judged", "up": "  +1", "neutral": "  0", "down": "  -1",
    "abstained": "  abstained (share)", "ties": "    a tie",
    "unreadable": "    too few readable votes", "no_verdict": "    no verdict",
    "thumbs": "turns with a thumb too", "agreement": "  vote and thumb agree (share)",
    "opposite": "  vote says the opposite",
    "tallies": "turns with several votes", "votes_agree": "  two votes agree (share)",
    "unanimous": "  all votes agree (share of the turns)",
    "alpha": "  agreement beyond chance (alpha)",
    "length_bias": "length bias: correlation of vote and reply length",
    "length_error": "  of its error against the thumb and reply length",
    "place_bias": "position bias: correlation of vote and place in the conversation",
    "compared": "pairs of answers compared in both orders",
    "order_followed": "  the order decided (share)",
    "asked": "answers asked (cost)", "unread": "  unreadable (share)",
    "seconds": "seconds (cost)", "seconds_a_turn": "  a turn",
}


def shown(value: float | int | None) -> str:
    """A figure in a table."""
    if value is None:
        return "too few"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
