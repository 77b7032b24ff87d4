"""A conversation, looked back on when it has ended: what the person wants teaches all its turns.

Owns: which conversations, what a judge may see of one, and which turns its rules go to.
Does not own: finding rules (`sdk.judges`), crediting (`crediting.py`), when one ends
(`conversations.py`).

A turn gets the rules as one hint, unless it has a hint of its own, the person has spoken about it,
or a step has it. The last turn of a conversation that fell silent is left alone: its next state may
still come.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from claw.config import JudgeConfig
from claw.engine.actor import speech
from claw.engine.actor.crediting import Crediting
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.signals import HINDSIGHT, PERSON, from_tools, good_hints
from claw.errors import Boundary, BoundaryError, boundary
from claw.records import End, Message, Signal, Trace, Turn, TurnKind, TurnState
from claw.sdk.judging import Judge

log = logging.getLogger(__name__)

MAX_PENDING = 1000
"""ended conversations that wait to be looked at"""
MAX_TURNS = 200
"""newest turns of a conversation that are looked at"""
MAX_RULES = 4
MAX_RULE = 200
"""characters"""
NEWEST = 4
"""messages of a request that the request before did not have, or few more"""
_OPEN_ENDED = ("no_next_state", "abstained", "neutral", "judge_failed")
"""reasons for which a turn was skipped that one more signal changes"""

LookBack = Callable[[tuple[Message, ...]], Awaitable[tuple[str, ...]]]


class Hindsight:
    """Looks back on a few conversations at a time; one that fails teaches nothing."""

    def __init__(
        self, config: JudgeConfig, ledger: Ledger, crediting: Crediting, judge: Judge | None,
    ) -> None:
        self._config, self._ledger, self._crediting = config, ledger, crediting
        self._judge = judge
        self._look_back: LookBack | None = (
            getattr(judge, "look_back", None) if config.hindsight else None)
        self._pending: dict[str, bool] = {}
        """trace id -> whether the conversation was ended by word"""
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self) -> None:
        """Take up what an earlier process had not looked at."""
        if self._look_back is None:
            return
        rows = self._ledger.journal.read(
            "SELECT id FROM traces WHERE ended IN (?,?) AND id NOT IN (SELECT subject FROM events"
            " WHERE kind=?) ORDER BY rowid DESC LIMIT ?",
            str(End.IDLE), str(End.CLOSED), HINDSIGHT, MAX_PENDING,
        )
        for (id,) in reversed(rows):
            if trace := self._ledger.journal.trace(id):
                self.ended(trace)

    def ended(self, trace: Trace) -> None:
        """Know that a conversation has ended; episodes have an outcome instead, and in a
        sub-agent's no person spoke."""
        if self._look_back is None or trace.task_id:
            return
        if self._ledger.journal.parent_of(trace.id) is not None:
            return
        self._pending[trace.id] = trace.end is End.CLOSED
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def tend(self) -> None:
        """Begin with conversations all of whose turns have been judged."""
        if not self._pending:
            return
        busy = {t.trace_id for t in self._ledger.live.values()
                if t.state in (TurnState.OPEN, TurnState.JUDGING)}
        for id in [id for id in self._pending if id not in busy]:
            if len(self._tasks) >= self._config.parallel:
                return
            task = asyncio.create_task(self._one(id, was_closed=self._pending.pop(id)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- one conversation --------------------------------------------------------------------

    async def _one(self, trace_id: str, *, was_closed: bool) -> None:
        try:
            said = await self._teach(trace_id, was_closed=was_closed)
        except BoundaryError as error:
            said = f"the judge failed: {type(error.cause).__name__}"
        except Exception as error:  # one conversation's trouble must not end the others
            log.exception("looking back on %s failed", trace_id)
            said = f"failed: {type(error).__name__}"
        if said:
            self._ledger.journal.put_event(HINDSIGHT, trace_id, said)  # counts, never words

    async def _teach(self, trace_id: str, *, was_closed: bool) -> str:
        """Return what came of it; nothing for a conversation that goes on."""
        trace = self._ledger.journal.trace(trace_id)
        if trace is None or trace.end is None:
            return ""
        turns = await asyncio.to_thread(self._turns, trace_id)
        fit = [t for t in turns if (was_closed or t.next_state) and self._is_fit(t)]
        if not fit:
            return f"no turn to teach among {len(turns)}"
        rules = await self._rules(turns)
        hint = rules[0] if len(rules) == 1 else "\n".join(f"- {rule}" for rule in rules)
        taught = [t.id for t in fit if hint and await self._give(t.id, hint)]
        return f"{len(rules)} rules for {len(taught)} of {len(turns)} turns"

    def _turns(self, trace_id: str) -> list[Turn]:
        """The person's answered turns of which something may be learned, oldest first."""
        journal = self._ledger.journal
        ids = [id for (id,) in journal.read(
            "SELECT id FROM turns WHERE trace_id=? AND kind=? ORDER BY rowid DESC LIMIT ?",
            trace_id, str(TurnKind.MAIN), MAX_TURNS)]
        turns = [turn for id in reversed(ids) if (turn := journal.turn(id)) is not None]
        return [t for t in turns if t.reply is not None and not self._crediting.refuses(t)]

    def _is_fit(self, turn: Turn) -> bool:
        is_open = turn.state is TurnState.QUEUED or (
            turn.state is TurnState.SKIPPED and turn.reason.partition(":")[0] in _OPEN_ENDED)
        return is_open and not any(
            s.hints or s.judge == PERSON for s in self._ledger.journal.signals(turn.id))

    async def _rules(self, turns: Sequence[Turn]) -> list[str]:
        assert self._look_back is not None, "nothing ends without it"
        said = transcript(turns)
        with boundary(Boundary.JUDGE):
            # a judge has its own deadline; this one is for a judge that ignores it
            found = await asyncio.wait_for(self._look_back(said), self._config.deadline_s * 1.5 + 5)
            if not isinstance(found, list | tuple):
                raise ValueError(f"the judge returned a {type(found).__name__}, not its rules")
        results = [m for turn in turns for m in turn.next_state]
        rules = [" ".join(rule.split()) for rule in found if isinstance(rule, str)]
        good = [r for r in rules if r and len(r) <= MAX_RULE and not from_tools(r, results)]
        return list(dict.fromkeys(good))[:MAX_RULES]

    async def _give(self, turn_id: str, hint: str) -> bool:
        """Whether the turn now waits with the hint."""
        turn = self._ledger.get(turn_id)
        if turn is None or not self._is_fit(turn):
            return False  # trained, forgotten or spoken of meanwhile
        hints = good_hints([hint], turn, 1)
        by = self._judge.name if self._judge else ""
        return bool(hints) and await self._crediting.also(turn, Signal(
            turn_id, HINDSIGHT, None, hints=hints,
            reason=f"what the whole conversation shows, by judge {by}"))


def transcript(turns: Sequence[Turn]) -> tuple[Message, ...]:
    """Return what person and policy said to each other, each message once, and nothing else."""
    said: dict[bytes, Message] = {}
    for number, turn in enumerate(turns):
        asked = turn.messages[-NEWEST:] if number else turn.messages
        for message in speech.words([*asked, turn.reply or {}, *turn.next_state]):
            text = speech.text(message.get("content")).strip()
            if text and message.get("role") in ("user", "assistant"):
                said.setdefault(speech.key(message), {"role": message["role"], "content": text})
    return tuple(said.values())
