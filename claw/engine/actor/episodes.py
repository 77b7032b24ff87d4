"""Episodes of environments: `trace.open`, `trace.next`, `trace.end` (docs/wire.md).

Owns: what a runner reports about its episodes, and what happens when the runner dies.
Does not own: groups (`groups.py`), conversations of people (`conversations.py`).
"""

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from claw.config import RunConfig
from claw.engine import wire
from claw.engine.actor import speech
from claw.engine.actor.conversations import Conversations
from claw.engine.actor.crediting import Crediting
from claw.engine.actor.groups import Episode
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.signals import Judging, from_plugin, merged
from claw.engine.wire import Message
from claw.errors import WireError
from claw.records import End, Signal, Task, Trace, Turn, TurnState, new_id


@dataclass(frozen=True, slots=True)
class Ending:
    """How an episode ended, as its runner says."""

    end: End
    outcome: float | None = None
    judge: str = ""
    failure: str = ""
    is_again: bool = False
    """the infrastructure failed; the runner plays the attempt again in the same group"""


def _cancelled(why: str) -> Ending:
    return Ending(End.CANCELLED, failure=why)


class Episodes:
    """Open episodes of all runners."""

    def __init__(
        self, config: RunConfig, ledger: Ledger, talk: Conversations, judging: Judging,
        crediting: Crediting,
    ) -> None:
        self._config, self._ledger, self._talk = config, ledger, talk
        self._judging, self._crediting = judging, crediting
        self._groups = crediting.groups
        self.ended: Counter[str] = Counter()
        """episodes by their end; failed ones by the border that the failure crossed"""
        self.outcomes: dict[str, list[float]] = {}
        """by who said them: [count, sum]"""

    def open(self, peer: bytes, message: Message) -> dict[str, Any]:
        """Begin an episode of a task; return its trace id."""
        task: Task = wire.read_record(message, Task)
        # named after the message: one that is sent again, also to a restarted actor, opens nothing
        name = f"trace_{message.id.partition('_')[2]}" if "_" in message.id else new_id("trace")
        if name in self._talk.traces:
            return {"trace_id": name}
        trace = Trace(name, str(message.get("owner") or "default"), self._config.plugin_name,
                      task.id or "task", str(message.get("group") or ""), created=time.time())
        self._talk.put_trace(trace, is_episode=True)
        size = int(message.get("group_size") or self._config.rollout.n)
        self._groups.open(Episode(trace, task, peer), size)
        return {"trace_id": trace.id}

    def note_turn(self, trace_id: str, turn_id: str) -> None:
        if episode := self._groups.episodes.get(trace_id):
            turn = self._ledger.get(turn_id)
            episode.turns.append(turn_id)
            episode.steps[turn_id] = turn.index if turn else len(episode.turns) - 1

    async def next(self, peer: bytes, message: Message) -> dict[str, Any]:
        """Take what followed a turn, and the signals of the plugin's own judges."""
        turn = self._ledger.get(str(message["turn_id"]))
        if turn is None:
            raise WireError(f"no such turn: {message['turn_id']!r}")
        self._heard(turn.trace_id, peer)
        episode = self._groups.episodes.get(turn.trace_id)
        said = await self._talk.without_pictures(_messages(message.get("messages")))
        messages = tuple(speech.words(said))
        signals = _signals(message.get("signals"), turn, self._config.judge.max_hints)
        if signals:
            await self._take(turn, messages, signals)
        elif messages:
            self._talk.follow(turn.id, messages, task=episode.task if episode else None)
        after = self._ledger.get(turn.id)
        return {"turn_id": turn.id, "status": after.status if after else ""}

    async def _take(
        self, turn: Turn, messages: tuple[dict[str, Any], ...], signals: list[Signal]
    ) -> None:
        """The plugin judged the turn itself: no other judge is asked."""
        for signal in signals:
            self._ledger.put_signal(signal)
        if turn.state is not TurnState.WAITING:
            self._crediting.also_said(turn.id, turn.trace_id)
            return
        if messages:
            self._ledger.follow(turn.id, messages)
        else:
            self._ledger.move(turn.id, TurnState.JUDGING, "judged by the plugin")
        said = merged(signals)
        again = self._ledger.get(turn.id)
        if said is not None and again is not None:
            await self._crediting.judged(again, said)

    async def end(self, peer: bytes, message: Message) -> dict[str, Any]:
        """End an episode with its outcome."""
        trace_id = str(message["trace_id"])
        outcome = _outcome(message.get("outcome"))
        try:
            end = End(str(message.get("end") or End.DONE))
        except ValueError as error:
            raise WireError(str(error)) from None
        if trace_id in self._talk.traces:
            self._count(end, outcome, message)
        ending = Ending(end, outcome, str(message.get("judge") or ""),
                        str(message.get("failure") or ""), is_again=bool(message.get("again")))
        await self._close(trace_id, ending, message.get("signals"))
        return {"trace_id": trace_id}

    def _count(self, end: End, outcome: float | None, message: Message) -> None:
        where = str(message.get("failure") or "").partition(":")[0]
        self.ended[f"{end}/{where}" if end is End.FAILED and where else str(end)] += 1
        if outcome is not None:
            sums = self.outcomes.setdefault(str(message.get("judge") or "plugin"), [0, 0.0])
            sums[0] += 1
            sums[1] += outcome

    async def _close(self, trace_id: str, ending: Ending, signals: Any = None) -> None:
        episode = self._groups.episodes.get(trace_id)
        if episode is not None and ending.is_again:
            self._leave(episode)
        elif episode is not None:
            for id in episode.turns:
                await self._last_word(id, signals, ending)
        trace = self._talk.end(trace_id, ending.end, outcome=ending.outcome, judge=ending.judge,
                               failure=ending.failure)
        if trace is not None and episode is not None:
            self._groups.note_end(trace)
        await self._crediting.credit_groups()

    def _leave(self, episode: Episode) -> None:
        """The attempt is played again: nothing of this trace is credited."""
        self._groups.leave(episode)
        for id in episode.turns:
            turn = self._ledger.live.get(id)
            if turn is not None and turn.state in (TurnState.WAITING, TurnState.JUDGING):
                self._ledger.skip(id, "episode_played_again")

    async def _last_word(self, turn_id: str, signals: Any, ending: Ending) -> None:
        """The last turn has no next state; the outcome, or the plugin's judge, speaks for it."""
        turn = self._ledger.get(turn_id)
        if turn is None or turn.state is not TurnState.WAITING:
            return
        said = _signals(signals, turn, self._config.judge.max_hints)
        if not said and ending.outcome is not None and self._crediting.waits_for_groups:
            by = ending.judge or "outcome"
            said = [Signal(turn_id, by, None, reason="the last turn; judged by the outcome")]
        if said:
            await self._take(turn, (), said)

    def status(self) -> dict[str, Any]:
        """Return ends by kind, and the mean outcome of each judge that said any."""
        outcomes = {by: {"count": int(count), "mean": total / count}
                    for by, (count, total) in self.outcomes.items()}
        return {"ended": dict(self.ended), "outcomes": outcomes}

    def _heard(self, trace_id: str, peer: bytes) -> None:
        if episode := self._groups.episodes.get(trace_id):
            episode.peer, episode.heard = peer, time.monotonic()

    async def peer_gone(self, peer: bytes) -> None:
        """A runner died: its own episodes end, nobody else's."""
        for episode in self._groups.of_peer(peer):
            await self._close(episode.trace.id, _cancelled("its runner died"))

    async def tend(self) -> None:
        """Credit groups whose wait is over; end episodes whose runner never came back."""
        limit = time.monotonic() - self._config.wire.dead_after_s
        for episode in self._groups.of_peer(b""):
            if episode.heard < limit:
                await self._close(episode.trace.id, _cancelled("its runner is gone"))
        await self._crediting.credit_groups()

    def load(self) -> None:
        """Take the episodes of an earlier process up again, open and ended."""
        journal = self._ledger.journal
        still_open = [trace for trace, _, is_episode in journal.open_traces() if is_episode]
        for trace in [*journal.judged_traces(), *still_open]:
            episode = Episode(trace)
            for id, _ in journal.turn_ids(trace.id):
                turn = journal.turn(id)
                episode.turns.append(id)
                episode.steps[id] = turn.index if turn else len(episode.turns) - 1
                if (said := merged(journal.signals(id))) is not None:
                    episode.signals[id] = said
            self._groups.open(episode, self._config.rollout.n)
            if trace.end is not None:
                self._groups.note_end(trace)


def _signals(values: Any, turn: Turn, max_hints: int) -> list[Signal]:
    try:
        return from_plugin(values, turn, max_hints)
    except (ValueError, TypeError) as error:
        raise WireError(f"signals: {error}") from error


def _messages(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(m, dict) for m in value):
        raise WireError("messages must be a list of objects")
    return value


def _outcome(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WireError(f"an outcome is a finite number; found {value!r}")
    return float(value)
