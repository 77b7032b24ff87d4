"""Every turn's state, in memory and in the journal, changed in one place.

Owns: the states, their reasons and counts; a change is in the journal before it is acted on.
Does not own: why a state changes (`gateway.py`, `signals.py`, `trainer_link.py`).
"""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from claw.engine.actor.journal import Journal
from claw.records import Completion, Message, Signal, Turn, TurnState, with_state

HELD = "quarantine"
"""so begins the reason of a skipped turn that a person has to look at"""
LIVE = (TurnState.OPEN, TurnState.WAITING, TurnState.JUDGING, TurnState.QUEUED)
_EMPTY: dict[str, Any] = {"messages": (), "tools": (), "prompt_ids": np.zeros(0, np.int32),
                          "completion": None, "reply": None, "images": ()}
"""a turn without its contents"""
BIG = 1 << 20
"""bytes of arrays and text above which a turn is written in a thread"""


class Ledger:
    """The turns of a run. Live ones are in memory, settled ones in the journal only.

    One that waits for its next state may do so for half an hour and is one of thousands: of it only
    what finds it is in `live`. `get` returns a turn with everything.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.live: dict[str, Turn] = {}
        self.states: Counter[tuple[str, str]] = Counter()
        """turns by owner and state"""
        self.held: dict[str, str] = {}
        """turns that wait for a person to release or drop them, and their owners; oldest first"""
        self.reasons: Counter[str] = Counter()
        """why turns were skipped"""
        self.said: Counter[str] = Counter()
        """what judges said: `<judge>/+1`, `<judge>/abstained`, `<judge>/hints`"""
        self.recount()

    def recount(self) -> None:
        """Count again what the journal holds: something was forgotten, or it is an earlier one."""
        self.states = Counter(self.journal.states())
        self.held = self.journal.held(HELD)

    def load(self) -> None:
        """Take the live turns of an earlier process into memory; open ones were interrupted."""
        for turn in self.journal.turns(*LIVE):
            self._keep(turn)
            if turn.state is TurnState.OPEN:
                self.skip(turn.id, "interrupted")

    def put_signal(self, signal: Signal) -> None:
        """Write what a judge said, and count it under the judge's name."""
        self.journal.put_signal(signal)
        vote = "0" if signal.vote == 0 else "abstained" if signal.vote is None else (
            f"{signal.vote:+d}"
        )
        if not signal.is_hint_only:
            self.said[f"{signal.judge}/{vote}"] += 1
        if signal.hints:
            self.said[f"{signal.judge}/hints"] += len(signal.hints)

    async def open(self, turn: Turn, *, parent: str, render: dict[str, Any]) -> None:
        """Write a new turn with its request before anything is asked of a worker."""
        size = turn.prompt_ids.nbytes + sum(len(str(m)) for m in turn.messages[-4:])
        if size > BIG:
            await asyncio.to_thread(self.journal.put_turn, turn, parent=parent, render=render)
        else:
            self.journal.put_turn(turn, parent=parent, render=render)
        self.live[turn.id] = turn
        self.states[turn.owner, turn.state] += 1

    async def finish(
        self, id: str, completion: Completion | None, reply: Message | None,
        state: TurnState, reason: str = "",
    ) -> Turn:
        """Write the completion of a turn together with the state it comes to."""
        old = self.live[id]
        turn = replace(old, completion=completion, reply=reply, state=state, reason=reason)
        if completion is not None and completion.topk_ids.nbytes * 2 > BIG:
            await asyncio.to_thread(self.journal.put_completion, turn)
        else:
            self.journal.put_completion(turn)
        self._moved(old, turn)
        return turn

    def move(self, id: str, state: TurnState, reason: str = "") -> Turn | None:
        """Bring a turn to a state; None for an unknown one."""
        old = self.get(id)
        if old is None:
            return None
        turn = with_state(old, state, reason)
        self.journal.put_state(turn)
        self._moved(old, turn)
        return turn

    def skip(self, id: str, reason: str) -> Turn | None:
        return self.move(id, TurnState.SKIPPED, reason)

    def follow(self, id: str, next_state: tuple[Message, ...]) -> Turn | None:
        """Give a turn its next state, once; return it when it is to be judged now.

        A turn that was given up for want of a next state is taken up again.
        """
        old = self.get(id)
        if old is None or not _may_follow(old):
            return None
        turn = replace(with_state(old, TurnState.JUDGING), next_state=next_state)
        self.journal.put_next(turn)
        self._moved(old, turn)
        return turn

    def get(self, id: str) -> Turn | None:
        """Return a turn with everything, from memory or from the journal."""
        found = self.live.get(id)
        if found is None or found.state is TurnState.WAITING:
            return self.journal.turn(id)
        return found

    def _keep(self, turn: Turn) -> None:
        is_long = turn.state is TurnState.WAITING
        self.live[turn.id] = replace(turn, **_EMPTY) if is_long else turn

    def _moved(self, old: Turn, new: Turn) -> None:
        self.states[old.owner, old.state] -= 1
        self.states[new.owner, new.state] += 1
        self.held.pop(new.id, None)
        if is_held(new):
            self.held[new.id] = new.owner
        if new.state is TurnState.SKIPPED:
            self.reasons[new.reason.partition(":")[0]] += 1
        if new.state in LIVE:
            self._keep(new)
        else:
            self.live.pop(new.id, None)

    def counts(self, owner: str = "") -> dict[str, int]:
        """Return how many turns are in each state, of an owner or of everybody."""
        found: Counter[str] = Counter()
        for (whose, state), n in self.states.items():
            if owner in ("", whose):
                found[str(state)] += n
        return {state: n for state, n in found.items() if n}


def is_held(turn: Turn) -> bool:
    """Whether a person has to look at the turn before it may teach."""
    return turn.state is TurnState.SKIPPED and turn.reason.startswith(f"{HELD}:")


def _may_follow(turn: Turn) -> bool:
    is_late = turn.state is TurnState.SKIPPED and turn.reason == "no_next_state"
    return turn.state is TurnState.WAITING or is_late
