"""Did it get better for a person: the same questions, answered by the old and the new version.

Owns: the panel of questions, its answers, comparing them, the word that a version should go back.
Does not own: the measures (`compare.py`), sampling (`policy.py`), going back (the trainer).

The panel is half fixed questions, half the person's own newest turns. Each version answers it once,
greedily, while nobody waits for a worker; its answers are compared with those that the version
before it gave to the very same prompts. Nothing of it becomes a turn or is trained.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from claw.config import BetterConfig
from claw.engine.actor import compare, speech
from claw.engine.actor.call import GenerationError
from claw.engine.actor.chat import Chat
from claw.engine.actor.compare import Answer, Question
from claw.engine.actor.consent import Consent
from claw.engine.actor.journal import Journal
from claw.engine.actor.policy import Policy, new_call
from claw.engine.actor.published import Published
from claw.engine.actor.template import TemplateRefusal
from claw.records import Sampling, TurnKind, TurnState, new_id

log = logging.getLogger(__name__)

KIND = "better"
"""of the journal's events; their subject is the turn, so that forgetting it takes them along"""
ADAPTER = "default"
AT_ONCE = 4
ON_GPUS = 8
"""questions of better.questions = "auto" where every worker has a GPU; elsewhere none"""
MIN_COMPARED = 4
"""fewer answers never roll a version back"""
RollBack = Callable[[str, int], Awaitable[object]]
"""owner, version"""


class Replaced(Exception):
    """Another version began to serve while the panel was being answered."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The panel as one version answered it."""

    version: int
    answers: dict[str, tuple[Question, Answer]]


class Better:
    """Compares each version with the one before, when it is switched on."""

    def __init__(
        self, config: BetterConfig, journal: Journal, chat: Chat, policy: Policy,
        published: Published, consent: Consent, judge: object = None,
    ) -> None:
        self._config, self._journal, self._chat = config, journal, chat
        self._policy, self._published, self._consent = policy, published, consent
        self._judge = judge
        self._last: dict[str, Answered] = {}
        """by owner"""
        self._task: asyncio.Task[None] | None = None
        self._given_up: dict[str, int] = {}
        self.context = 0
        self.roll_back: RollBack | None = None

    @property
    def questions(self) -> int:
        """How many are asked of each version; by default only workers with a GPU have the time."""
        if self._config.questions != "auto":
            return self._config.questions
        devices = [worker.device for worker in self._policy.workers.values()]
        return ON_GPUS if devices and all(d.startswith("cuda") for d in devices) else 0

    def tend(self) -> None:
        """Begin to answer the panel when a version serves that has not answered it."""
        if not self.questions or not self._policy.workers:
            return
        if self._task is not None and not self._task.done():
            return
        for owner in self._published.owners():
            number = self._published.newest(owner, ADAPTER)
            last = self._last.get(owner)
            if number in (last.version if last else None, self._given_up.get(owner)):
                continue
            if min(w.number(owner, ADAPTER) for w in self._policy.workers.values()) == number:
                self._task = asyncio.create_task(self._safely(owner, number))
                return

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def forget(self, turn_ids: set[str]) -> None:
        """Drop the answers to a forgotten conversation's turns; the journal drops its own."""
        for owner, last in self._last.items():
            kept = {k: v for k, v in last.answers.items() if k not in turn_ids}
            self._last[owner] = Answered(last.version, kept)

    async def _safely(self, owner: str, number: int) -> None:
        try:
            await self._compare(owner, number)
        except Replaced:
            log.info("v%d was replaced before it had answered its questions", number)
        except GenerationError as error:
            log.warning("v%d could not answer its questions: %s", number, error)
        except Exception:  # a comparison is never worth the run
            log.exception("comparing v%d with the version before failed", number)
            self._last.pop(owner, None)  # and not again and again
            self._given_up[owner] = number

    async def _compare(self, owner: str, number: int) -> None:
        before = self._last.get(owner)
        asked = [question for question, _ in before.answers.values()] if before else []
        answers = await self._answers(asked, owner, number)
        worse = 0
        if before is not None and before.version < number:
            for question, old in before.answers.values():
                if question.id in answers and self._still_there(question):
                    verdict = await compare.verdict(question, old, answers[question.id][1],
                                                    self._judge)
                    worse += verdict[0] < 0
                    self._write(owner, number, before.version, question, old,
                                answers[question.id][1], verdict)
        panel = self._panel(owner)  # the person may say more while it is answered
        answers |= await self._answers([q for q in panel if q.id not in answers], owner, number)
        kept = {q.id: answers[q.id] for q in panel if q.id in answers}
        self._last[owner] = Answered(number, kept)
        self._journal.put_event("better.done", f"v{number}", f"{len(answers)} answers")
        if before is not None and before.version < number:
            await self._judge_version(owner, number, before.version, worse, len(asked))

    async def _judge_version(
        self, owner: str, number: int, before: int, worse: int, total: int
    ) -> None:
        limit = self._config.max_worse
        if total < MIN_COMPARED or worse <= limit * total or self.roll_back is None:
            return
        why = f"{worse} of {total} answers are worse than those of v{before} (limit {limit:g})"
        log.warning("v%d goes back to v%d: %s", number, before, why)
        self._journal.put_event("better.back", f"v{number}", why)
        await self.roll_back(owner, before)

    # --- asking ------------------------------------------------------------------------------

    async def _answers(
        self, questions: list[Question], owner: str, number: int
    ) -> dict[str, tuple[Question, Answer]]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(question: Question) -> tuple[str, tuple[Question, Answer]] | None:
            async with room:
                answer = await self._answer(question, owner, number)
                return None if answer is None else (question.id, (question, answer))

        tasks = [asyncio.ensure_future(one(question)) for question in questions]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return dict(pair for pair in found if pair is not None)

    async def _answer(self, question: Question, owner: str, number: int) -> Answer | None:
        """Greedy, people first; None for a prompt that does not fit, or shows pictures."""
        try:
            prompt = self._chat.prompt(question.messages, question.tools)
        except TemplateRefusal:
            return None
        if len(prompt.ids) + self._config.max_tokens > self.context or prompt.images:
            return None  # the comparison reads words
        while not self._policy.has_room:
            await asyncio.sleep(0.2)
        sampling = Sampling(temperature=0.0, max_tokens=self._config.max_tokens, logprobs_k=0)
        call = new_call(new_id("panel"), prompt.ids, sampling, session="", owner=owner,
                        adapter=ADAPTER, deadline_s=self._config.deadline_s)
        async for new in self._policy.generate(call):
            if any(int(v) != number for chunk in new for v in chunk.versions[-1:]):
                raise Replaced
        ids = [int(i) for chunk in call.chunks for i in chunk.ids]
        is_cut = not ids or ids[-1] not in self._chat.stop_ids
        said = ids if is_cut else ids[:-1]
        return Answer(self._chat.decode(said).strip(), tuple(said), is_cut)

    # --- the panel ---------------------------------------------------------------------------

    def _panel(self, owner: str) -> list[Question]:
        half = (self.questions + 1) // 2
        own = self._own(owner, self.questions - half)
        return list(compare.FIXED[:half]) + own

    def _own(self, owner: str, count: int) -> list[Question]:
        """The newest turns of a person that something followed."""
        rows = self._journal.read(
            "SELECT t.id FROM turns t JOIN traces tr ON tr.id=t.trace_id WHERE tr.owner=? AND"
            " t.kind=? AND t.state IN (?, ?) AND EXISTS (SELECT 1 FROM parts p WHERE"
            " p.turn_id=t.id AND p.part='next') ORDER BY t.rowid DESC LIMIT ?",
            owner, str(TurnKind.MAIN), str(TurnState.TRAINED), str(TurnState.QUEUED), count,
        )
        turns = [turn for (id,) in rows if (turn := self._journal.turn(id)) is not None]
        return [
            Question(
                turn.id, turn.messages, turn.tools,
                tuple(speech.own_words(m) for m in turn.next_state if m.get("role") == "user"),
            )
            for turn in turns if not self._consent.refusal(turn)
        ]

    def _still_there(self, question: Question) -> bool:
        return question.is_fixed or self._journal.turn(question.id) is not None

    def _write(
        self, owner: str, number: int, before: int, question: Question, old: Answer, new: Answer,
        verdict: tuple[int, str],
    ) -> None:
        asked = next((speech.own_words(m) for m in reversed(question.messages)
                      if m.get("role") == "user"), "")
        self._journal.put_event(KIND, question.id, json.dumps({
            "owner": owner, "version": number, "before": before, "asked": asked[:500],
            "old": old.text[:2000], "new": new.text[:2000],
            "verdict": verdict[0], "why": verdict[1],
            "old_tokens": len(old.ids), "new_tokens": len(new.ids),
        }))
