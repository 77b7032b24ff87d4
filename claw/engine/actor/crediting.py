"""Judged turns become samples that wait for a step, or are skipped with a reason.

Owns: when a turn is credited (at once, or with its group) and what becomes of its sample.
Does not own: the formulas (`credit.py`), the judges (`signals.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from claw.config import RunConfig
from claw.engine.actor import credit, groups, speech
from claw.engine.actor.buffer import Buffer
from claw.engine.actor.chat import Chat
from claw.engine.actor.guard import Guard
from claw.engine.actor.ledger import HELD, Ledger
from claw.engine.actor.signals import DEMONSTRATION, PERSON, merged
from claw.engine.actor.template import TemplateRefusal
from claw.errors import UsageError
from claw.records import Sample, Signal, Turn, TurnKind, TurnState
from claw.sdk import registry

log = logging.getLogger(__name__)

_NO_HINTS = {"grpo"}
_NO_VOTES = {"opd", "opd-sampled"}
BULK = f"{HELD}: bulk: "
LONG = 20_000
"""characters of a request above which hinted prompts are tokenised in a thread"""


class Crediting:
    """From signals to waiting samples."""

    def __init__(self, config: RunConfig, ledger: Ledger, chat: Chat, buffer: Buffer) -> None:
        self._config, self._ledger, self._chat, self._buffer = config, ledger, chat, buffer
        self.groups, self.guard = groups.Groups(), Guard(config.guard)
        self.refuses: Callable[[Turn], str] = lambda turn: ""
        """why nothing may be learned of a turn"""
        if config.credit.kind not in credit.TABLE and config.plugin_name:
            # a table entry is a pure function: the one piece of a plugin that is called in here
            registry.load(config.plugin_name).hook.claw_credit(register=credit.register)
        if config.credit.kind not in credit.TABLE:
            raise UsageError("no such credit", found=f"credit.kind = {config.credit.kind!r}",
                             allowed=", ".join(credit.TABLE))
        method = config.train.method
        self._uses_hints = method not in _NO_HINTS and config.loss.w_opd > 0
        self._uses_votes = method not in _NO_VOTES and config.loss.w_rl > 0

    @property
    def waits_for_groups(self) -> bool:
        return self._config.credit.kind in credit.NEEDS_GROUP

    async def judged(self, turn: Turn, signal: Signal) -> None:
        """Take a signal: credit the turn now, or when its group is complete."""
        now = self._ledger.get(turn.id)
        if now is None or now.state is not TurnState.JUDGING:
            return  # a person's word, or an end, came before the judge's
        episode = self.groups.episodes.get(turn.trace_id)
        if episode is not None and self.waits_for_groups:
            episode.signals[turn.id] = self._all_said(turn.id, signal)
            self._ledger.move(turn.id, TurnState.JUDGING, "judged; waits for its group")
            await self.credit_groups()
            return
        await self._credit_alone(now, signal)

    async def _credit_alone(self, turn: Turn, signal: Signal) -> None:
        said = self._all_said(turn.id, signal)
        c = self._config.credit
        # a credit that compares traces treats a turn of a conversation as a group of one
        alone = credit.Judged(None, (_process(said),))
        [[advantage]] = credit.TABLE[c.kind]([alone], alpha=c.alpha, baseline=c.baseline)
        await self.queue(turn, said, advantage, said.reason or "the judge abstained")

    def _all_said(self, turn_id: str, signal: Signal) -> Signal:
        return merged(self._ledger.journal.signals(turn_id)) or signal

    def also_said(self, turn_id: str, trace_id: str) -> None:
        """Know that one more judge spoke of a turn that waits for its group."""
        episode = self.groups.episodes.get(trace_id)
        if episode is not None and turn_id in episode.signals:
            episode.signals[turn_id] = self._all_said(turn_id, episode.signals[turn_id])

    async def credit_groups(self) -> None:
        """Credit every group that is complete."""
        for group in self.groups.take_complete(self._is_settled):
            if self.waits_for_groups:
                await self._credit_group(group)

    def _is_settled(self, turn_id: str) -> bool:
        turn = self._ledger.live.get(turn_id)
        return turn is None or turn.state is TurnState.QUEUED

    async def _credit_group(self, group: groups.Group) -> None:
        c, good = self._config.credit, []
        for episode in group.episodes:
            if groups.has_failed(episode.trace):
                for id in episode.signals:
                    self._ledger.skip(id, f"episode_{episode.trace.end}")
            else:
                good.append(episode)
        turns = [[t for t in e.turns if t in e.signals] for e in good]
        judged = [
            credit.Judged(
                e.trace.outcome, tuple(_process(e.signals[t]) for t in ids),
                tuple(e.steps.get(t, e.turns.index(t)) for t in ids),
            )
            for e, ids in zip(good, turns, strict=True)
        ]
        made = credit.TABLE[c.kind](judged, alpha=c.alpha, baseline=c.baseline)
        for episode, ids, advantages in zip(good, turns, made, strict=True):
            for id, advantage in zip(ids, advantages, strict=True):
                turn = self._ledger.get(id)
                if turn is not None and turn.state is TurnState.JUDGING:
                    await self.queue(turn, episode.signals[id], advantage, "constant_group",
                                     outcome=episode.trace.outcome, in_group=len(good) > 1)

    async def queue(
        self, turn: Turn, signal: Signal, advantage: float | None, why_none: str, *,
        outcome: float | None = None, in_group: bool = False,
    ) -> None:
        """Make the turn's sample and let it wait, or skip the turn with the reason."""
        is_neutral = signal.vote == 0 or advantage == 0
        advantage = advantage if self._uses_votes and advantage else None  # 0 teaches nothing
        hints = await self._hints(turn, signal.hints) if self._uses_hints else []
        sample = credit.sample(turn, advantage, hints, outcome)
        refusal = self.refuses(turn) or self._buffer.refusal(sample, in_group=in_group)
        if refusal == "no_signal":
            refusal = "neutral" if is_neutral else _named(signal, why_none)
        if refusal := refusal or self._held(turn, signal):
            self._ledger.skip(turn.id, refusal)
            return
        self._put(turn, sample)

    def _put(self, turn: Turn, sample: Sample) -> None:
        with self._ledger.journal.write():
            self._ledger.journal.put_sample(sample)
            self._ledger.move(turn.id, TurnState.QUEUED, "waits for a step")
        self._buffer.add(sample)

    def _held(self, turn: Turn, signal: Signal) -> str:
        """Return why a person has to look first; what they have released is let through."""
        journal, hints = self._ledger.journal, signal.hints if self._uses_hints else ()
        trace = journal.trace(turn.trace_id)
        signals = journal.signals(turn.id)
        why = self.guard.holds(turn, signals, hints, is_task=bool(trace and trace.task_id))
        if not why or self._is_released(turn, signal):
            return ""
        self.guard.counts["held"] += 1
        if why.startswith(BULK):
            self._recall(self.guard.flood(turn, signals, hints), why)
        return why

    def _recall(self, turn_ids: Iterable[str], why: str) -> None:
        """Hold also what waits of a flood from before it was one; a step keeps what it has."""
        for id in sorted(turn_ids):
            turn, signal = self._ledger.get(id), merged(self._ledger.journal.signals(id))
            if turn is None or turn.state is not TurnState.QUEUED or signal is None:
                continue
            with self._ledger.journal.write():
                if not self._is_released(turn, signal) and self.take_back(turn, why):
                    self._ledger.skip(id, why)
                    self.guard.counts["held"] += 1

    def _is_released(self, turn: Turn, signal: Signal) -> bool:
        return self._ledger.journal.has_event(HELD, turn.id, _released(signal))

    async def _hints(self, turn: Turn, hints: Sequence[str]) -> list[np.ndarray]:
        made = []
        is_long = sum(len(str(m.get("content"))) for m in turn.messages) > LONG
        for hint in hints[: self._config.judge.max_hints]:
            try:
                args = (turn.messages, turn.tools, hint)
                ids = (await asyncio.to_thread(self._chat.hinted, *args) if is_long
                       else self._chat.hinted(*args))
            except TemplateRefusal as refusal:
                log.warning("no hinted prompt for %s: %s", turn.id, refusal)
                continue
            if len(ids) + len(turn.completion.ids if turn.completion else ()) <= self._room:
                made.append(ids)
        return made

    @property
    def _room(self) -> int:
        own = self._chat.context or self._config.worker.context
        return min(own, self._config.worker.context)

    # --- a person's own word -----------------------------------------------------------------

    async def feedback(self, turn: Turn, value: int, text: str, edit: str = "") -> str:
        """Take explicit feedback; it outranks every judge. Return what came of it.

        `edit` is the reply as the person would have had it. Nothing but sampled tokens is trained:
        the teacher reads it as a demonstration, and the sampled reply moves towards that teacher.
        """
        said = text.strip()
        hints = [said] if len(said) > 10 else []
        hints += [DEMONSTRATION + edit.strip()] if edit.strip() else []
        reason = f"explicit feedback: {said}" if said else "explicit feedback"
        signal = Signal(turn.id, PERSON, value, (value,), hints=tuple(hints), reason=reason[:1000])
        self._ledger.put_signal(signal)
        if turn.kind is TurnKind.SIDE:
            return "kept; side turns are not trained"
        if turn.state in (TurnState.TRAINED, TurnState.FORGOTTEN):
            return f"kept; too late to train: the turn is {turn.status}"
        if turn.completion is None or _is_unfit(turn):
            return f"kept; the turn cannot be trained: {turn.status}"
        if turn.state is TurnState.QUEUED and not self.take_back(turn, "judged anew"):
            return "kept; too late to train: a step has the turn already"
        episode = self.groups.episodes.get(turn.trace_id)
        self._ledger.move(turn.id, TurnState.JUDGING, "a person's feedback")
        if episode is not None and self.waits_for_groups:
            episode.signals[turn.id] = signal
            await self.credit_groups()
        else:
            again = self._ledger.get(turn.id)
            assert again is not None, "the turn was just moved"
            await self._credit_alone(again, signal)
        after = self._ledger.get(turn.id)
        return after.status if after else "kept"

    async def also(self, turn: Turn, signal: Signal) -> bool:
        """Credit a turn anew with one more signal; whether it waits now. A step keeps its turns."""
        with self._ledger.journal.write():
            if turn.state is TurnState.QUEUED and not self.take_back(turn, "judged anew"):
                return False
            self._ledger.put_signal(signal)
            again = self._ledger.move(turn.id, TurnState.JUDGING, signal.reason)
        assert again is not None, "the turn is known"
        await self._credit_alone(again, signal)
        after = self._ledger.get(turn.id)
        return after is not None and after.state is TurnState.QUEUED

    async def release(self, turn: Turn) -> str:
        """Credit a held turn as if nothing had been found; a group that it was of is over."""
        signal = self._all_said(turn.id, Signal(turn.id, PERSON, None))
        with self._ledger.journal.write():
            # the same words pass again where a crash comes before the sample is written
            self._ledger.journal.put_event(HELD, turn.id, _released(signal))
            again = self._ledger.move(turn.id, TurnState.JUDGING, "released by the person")
        assert again is not None, "a held turn is known"
        self.guard.counts["released"] += 1
        await self._credit_alone(again, signal)
        after = self._ledger.get(turn.id)
        return after.status if after else "forgotten"

    def drop(self, turn: Turn) -> None:
        """Never learn a held turn; what was said of it stays in the journal."""
        self.guard.counts["dropped"] += 1
        self._ledger.skip(turn.id, f"dropped: {turn.reason.removeprefix(HELD + ': ')}")

    def take_back(self, turn: Turn, why: str) -> bool:
        """Take a turn's waiting sample out; False when a step has it already."""
        ids = [w.sample.id for w in self._buffer.waiting.values() if w.sample.turn_id == turn.id]
        for id in ids:
            self._buffer.remove(id)
        self._ledger.journal.put_sample_state(ids, "dropped", reason=why)
        return bool(ids)


def _process(signal: Signal) -> float | None:
    return signal.number if signal.vote is None else float(signal.vote)


def _released(signal: Signal) -> str:
    """Names what was released: other words about the same turn are held anew."""
    return f"released {speech.digest([signal.vote, signal.number, sorted(signal.hints)]).hex()}"


def _named(signal: Signal, why: str) -> str:
    return why if why == "constant_group" else f"abstained: {signal.reason or why}"


def _is_unfit(turn: Turn) -> bool:
    """Skipped for what the turn itself is, which no judgement changes."""
    reason = turn.reason.partition(":")[0]
    unfit = ("bad_logprobs", "cancelled", "interrupted", "failed", "deadline", "empty_reply")
    return turn.state is TurnState.OPEN or (turn.state is TurnState.SKIPPED and reason in unfit)
