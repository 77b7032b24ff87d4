"""Judges run over turns whose next state is known; what they say becomes signals.

Owns: the bounded judging tasks, checking verdicts, filtering hints.
Does not own: what a judge thinks (`sdk.judges`), what a signal is worth (`credit.py`).
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from claw.config import JudgeConfig
from claw.engine.actor import speech, suspect
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.store import NoRoom
from claw.errors import Boundary, BoundaryError, boundary
from claw.records import Message, Signal, Turn
from claw.sdk.judging import Case, Judge, Verdict

log = logging.getLogger(__name__)

PERSON = "person"
"""the judge's name of explicit feedback; it outranks every other"""
HINDSIGHT = "hindsight"
"""the judge's name of what a whole conversation shows; a person's word on a turn outranks it"""
NO_ROOM_S = 2.0
"""a judgement that could not be written is tried again"""
DEMONSTRATION = "Answer in this way:\n"
"""begins a hint that is a reply as the person would have written it"""
MAX_QUEUE = 10_000
MIN_HINT = 10
"""characters; a hint is longer"""
MAX_HINT = 1000
COPIED_WORDS = 8
"""so many words in a row that also stand in tool output make a hint suspect"""
LEAST_COPIED = 5
"""words of a hint that is compared with what tools said before the reply: of so much text"""
TOOL_MESSAGES, TOOL_CHARS = 16, 50_000
"""newest tool outputs that a hint is compared with, and characters of each"""

OnSignal = Callable[[Turn, Signal], Awaitable[None]]


class Judging:
    """Judges turns, a bounded number at a time. A failing judge costs only its own turn."""

    def __init__(
        self, ledger: Ledger, judge: Judge | None, config: JudgeConfig, on_signal: OnSignal
    ) -> None:
        self._ledger, self._judge, self._config = ledger, judge, config
        self._on_signal = on_signal
        self._queue: asyncio.Queue[tuple[Turn, dict[str, Any]]] = asyncio.Queue(MAX_QUEUE)
        self._tasks: list[asyncio.Task[None]] = []
        self.counts: Counter[str] = Counter()
        self._num_asked, self._seconds = 0, 0.0
        self.refuses: Callable[[Turn], str] = lambda turn: ""
        """why nothing may be learned of a turn: then no judge sees it"""

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._config.parallel)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def submit(self, turn: Turn, **about: Any) -> None:
        """Judge a turn that is in state judging; `about` adds fields to the case."""
        if why := self.refuses(turn):
            self._ledger.skip(turn.id, why)
            return
        try:
            self._queue.put_nowait((turn, about))
        except asyncio.QueueFull:
            self._ledger.skip(turn.id, "judge_overloaded")

    async def _work(self) -> None:
        while True:
            turn, about = await self._queue.get()
            while not await self._is_over(turn, about):
                await asyncio.sleep(NO_ROOM_S)

    async def _is_over(self, turn: Turn, about: dict[str, Any]) -> bool:
        """Judge a turn; False when there was no room in the journal for what came of it."""
        try:
            try:
                await self._one(turn, about)
            except NoRoom:
                raise
            except Exception as error:  # one turn's trouble must not end the judging of others
                log.exception("judging of %s failed", turn.id)
                self._ledger.skip(turn.id, f"judge_failed: {type(error).__name__}")
        except NoRoom as error:
            log.error("%s is judged again: %s", turn.id, error.found)
            return False
        return True

    async def _one(self, turn: Turn, about: dict[str, Any]) -> None:
        if self._judge is None:
            signal = Signal(turn.id, self._config.kind, None, reason="no judge looked at it")
        else:
            try:
                signal = await self._ask(self._judge, turn, about)
            except BoundaryError as error:
                self.counts["failed"] += 1
                log.warning("judge %s failed on %s: %s", self._judge.name, turn.id, error)
                self._ledger.skip(turn.id, f"judge_failed: {_short(error.cause)}")
                return
        self.counts["judged"] += 1
        await self.settle(turn, signal)

    async def _ask(self, judge: Judge, turn: Turn, about: dict[str, Any]) -> Signal:
        assert turn.reply is not None, "only an answered turn is judged"
        case = Case(turn.id, tuple(speech.words(turn.messages)), turn.reply, turn.next_state,
                    **about)
        began = time.perf_counter()
        try:
            with boundary(Boundary.JUDGE):
                # a judge has its own deadline; this one is for a judge that ignores it
                verdict = await asyncio.wait_for(judge.judge(case),
                                                 self._config.deadline_s * 1.5 + 5)
                signal = read_verdict(verdict, turn, judge.name, self._config.max_hints)
                self.counts["tool_hints"] += sum(
                    isinstance(h, str) and is_smuggled(h, turn) for h in verdict.hints)
                return replace(signal, seconds=round(time.perf_counter() - began, 4))
        finally:
            self._num_asked += 1
            self._seconds += time.perf_counter() - began

    def status(self) -> dict[str, float]:
        """Return how many turns wait for a judge, how many had one, and how long that took."""
        return {"waiting": self._queue.qsize(), "asked": self._num_asked, "seconds": self._seconds}

    async def settle(self, turn: Turn, signal: Signal) -> None:
        """Write a signal and pass it on, if the turn still wants one."""
        if self._ledger.get(turn.id) is None:
            return  # forgotten meanwhile: what a judge quotes of it must not come back
        self._ledger.put_signal(signal)
        await self._on_signal(turn, signal)


def read_verdict(verdict: Verdict, turn: Turn, judge: str, max_hints: int) -> Signal:
    """Return the signal of a verdict; raise ValueError for one that is none."""
    if not isinstance(verdict, Verdict):
        raise ValueError(f"the judge returned a {type(verdict).__name__}, not a Verdict")
    vote, number = verdict.vote, verdict.number
    if vote is not None and (isinstance(vote, bool) or vote not in (-1, 0, 1)):
        raise ValueError(f"a vote is -1, 0, 1 or None; the judge said {vote!r}")
    if number is not None and not (isinstance(number, int | float) and math.isfinite(number)):
        raise ValueError(f"the judge's number is {number!r}")
    hints = good_hints(verdict.hints, turn, max_hints)
    return Signal(turn.id, judge, None if vote is None else int(vote), tuple(verdict.votes),
                  None if number is None else float(number), hints, str(verdict.reason)[:1000])


def good_hints(hints: Sequence[Any], turn: Turn, max_hints: int) -> tuple[str, ...]:
    """Return the hints fit to teach: long enough, no copy of the answer, nothing a tool said."""
    answer = suspect.plain(speech.shown(turn.reply or {}))
    kept: dict[str, str] = {}
    for hint in hints:
        if not isinstance(hint, str):
            continue
        plain = suspect.plain(hint)
        if not MIN_HINT < len(hint.strip()) <= MAX_HINT or _is_copy(plain, answer):
            continue
        if not is_smuggled(hint, turn):
            kept.setdefault(plain, hint.strip())
    return tuple(kept.values())[:max_hints]


def is_smuggled(hint: str, turn: Turn) -> bool:
    """Whether a hint is what a tool said after the turn, or before it."""
    return from_tools(hint, turn.next_state) or from_tools(hint, turn.messages, least=LEAST_COPIED)


def from_tools(hint: str, messages: Sequence[Message], *, least: int = 3) -> bool:
    """Whether a hint of at least so many words repeats what a tool said (an order smuggled in).

    Both in one form, so that neither invisible characters nor other widths of letters hide it.
    """
    output = [speech.text(m.get("content"))[:TOOL_CHARS] for m in messages
              if m.get("role") in ("tool", "function")]
    form = suspect.plain(hint)
    return len(form.split()) >= least and any(
        _shares_words(form, suspect.plain(said)) for said in output[-TOOL_MESSAGES:])


def _is_copy(hint: str, answer: str) -> bool:
    if not answer:
        return False
    if hint in answer or (len(answer) > 40 and answer in hint):
        return True
    return SequenceMatcher(None, hint[:2000], answer[:2000]).ratio() > 0.9


def _shares_words(hint: str, said: str) -> bool:
    """Whether the hint repeats a run of words of what was said."""
    words = hint.split()
    n = min(COPIED_WORDS, len(words))
    runs = (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    return any(run in said for run in runs)


def merged(signals: Sequence[Signal]) -> Signal | None:
    """Return one signal of many: the person's last word, then the newest judge's who values it.

    Hints of all are kept, but those of a judge that the person contradicts, and what a whole
    conversation shows where the person spoke of this turn.
    """
    if not signals:
        return None
    persons = [s for s in signals if s.judge == PERSON]
    valued = [s for s in signals if s.vote is not None or s.number is not None]
    first = (persons or valued or list(signals))[-1]
    agreeing = [s for s in signals if (s.vote or 0) * (first.vote or 0) >= 0
                and not (persons and s.judge == HINDSIGHT)]
    hints = dict.fromkeys(h for s in [*persons[-1:], *agreeing] for h in s.hints)
    return Signal(first.turn_id, first.judge, first.vote, first.votes, first.number,
                  tuple(hints), first.reason)


def from_plugin(values: Any, turn: Turn, max_hints: int) -> list[Signal]:
    """Read the signals that a plugin's judges sent; raise ValueError for what is none."""
    made = []
    for value in values if isinstance(values, list) else []:
        if not isinstance(value, dict):
            raise ValueError("a signal is a map")
        fields = {k: value.get(k) for k in ("vote", "number", "reason")}
        verdict = Verdict(fields["vote"], tuple(value.get("votes") or ()), fields["number"],
                          tuple(value.get("hints") or ()), str(fields["reason"] or ""))
        made.append(read_verdict(verdict, turn, str(value.get("judge") or "plugin"), max_hints))
    return made


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
