"""Turns in their conversations: from a checked request to an open turn, and to its next state.

Owns: opening traces and turns, the prompts of continued turns, ending conversations.
Does not own: matching (`session.py`), tokens (`generation.py`), judging (`signals.py`).
"""

import asyncio
import bisect
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from claw.config import RunConfig
from claw.engine.actor import parse, request
from claw.engine.actor.chat import Chat, Known, Prompt
from claw.engine.actor.journal import Journal
from claw.engine.actor.kin import Kin
from claw.engine.actor.kind import SUBAGENT, Kinds
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.names import Names, mark_of
from claw.engine.actor.place import Conversation, Node, Place
from claw.engine.actor.session import Sessions
from claw.engine.actor.signals import Judging
from claw.engine.actor.store import NoRoom
from claw.engine.actor.template import TemplateRefusal
from claw.records import End, Message, Sampling, Trace, Turn, TurnKind, TurnState, new_id
from claw.sdk.app import Ask, EngineError

ADAPTER = "default"
KNOWN = 256
"""turns whose ids are kept at hand for the next request"""
LONG = 20_000
"""characters of a request above which it is tokenised in a thread"""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A turn that is ready to be generated."""

    turn: Turn
    node: Node
    prompt: Prompt


class Conversations:
    """People's conversations and episodes, as far as turns are opened in them."""

    def __init__(
        self, config: RunConfig, journal: Journal, ledger: Ledger, chat: Chat, judging: Judging
    ) -> None:
        self._config, self._journal, self._ledger = config, journal, ledger
        self._chat, self._judging = chat, judging
        self.sessions = Sessions(config.serve.session_idle_s)
        self.kinds = Kinds(learns_subagents=config.serve.learn_subagents)
        self.kin = Kin(journal, self.sessions.trace_of)
        self.names = Names()
        self.traces: dict[str, Trace] = {}
        self.on_end: Callable[[Trace], None] = lambda trace: None
        self._known: OrderedDict[str, Known] = OrderedDict()
        self.model_context = chat.context

    # --- a request ---------------------------------------------------------------------------

    async def checked(self, ask: Ask) -> Ask:
        """Return a request that a template can render, with digests in place of its pictures.

        EngineError 400: it cannot, or the model sees no pictures.
        """
        request.check_messages(ask, sees=self._chat.album is not None)
        request.check_one_call(ask, self._chat.markup(ask.tools, False).calls)
        return replace(ask, messages=await self.without_pictures(ask.messages))

    async def without_pictures(self, messages: list[Message]) -> list[Message]:
        """Return the messages with digests in place of their pictures, where the model sees any."""
        return messages if self._chat.album is None else await self._chat.album.taken(messages)

    async def pictures(self, images: tuple[str, ...]) -> tuple[np.ndarray, ...]:
        """The pixels of pictures, for a worker or the trainer."""
        assert not images or self._chat.album is not None, "only an album names pictures"
        return await self._chat.album.shown(images) if self._chat.album and images else ()

    def find(self, ask: Ask, trace_id: str) -> tuple[Place, TurnKind, str, Sampling]:
        """Return where a request belongs and what kind it is; its new messages are next states."""
        sampling = request.sampling(ask, self._config.rollout)
        if trace_id and trace_id not in self.traces:
            raise EngineError(404, f"no open trace {trace_id!r}", code="no_such_trace")
        if not trace_id:
            self.names.count(ask)
        given = "main" if trace_id and not ask.kind else ask.kind
        kind, rule = self.kinds.decide(given, ask.messages, ask.tools, sampling.max_tokens)
        extra = [ask.tools, ask.one_call, sorted((ask.sampling or {}).items(), key=str), str(kind)]
        place = self.sessions.find(ask.messages, owner=ask.owner, session=ask.session,
                                   trace_id=trace_id, extra=extra)
        if kind is TurnKind.MAIN and place.answered is not None and place.retry_of is None:
            # who speaks to a sub-agent is the policy: only what tools said judges its replies
            followed = place.next_state if rule != SUBAGENT else tuple(
                m for m in place.next_state if m.get("role") in ("tool", "function"))
            self.follow(place.answered.turn_id, followed)
        return place, kind, rule, sampling

    def follow(self, turn_id: str, next_state: tuple[dict[str, Any], ...], **about: Any) -> bool:
        """Give a turn its next state and have it judged; False when it has one already."""
        if not next_state:
            return False
        turn = self._ledger.follow(turn_id, next_state)
        if turn is None:
            return False
        self._judging.submit(turn, **about)
        return True

    async def open(
        self, ask: Ask, place: Place, kind: TurnKind, rule: str, sampling: Sampling, context: int
    ) -> Opened:
        """Write a new turn; raises EngineError when the request does not fit."""
        prompt = await self._prompt(ask, place)
        room = request.room(len(prompt.ids), context)
        trace_id = place.trace_id or self._new_trace(ask)
        found = self.sessions.known(trace_id)
        if found is not None and found.is_idle:
            self._journal.put_trace(self.traces[trace_id], found.session)  # it goes on
        parent = place.parent
        turn = Turn(
            id=new_id("turn"), trace_id=trace_id, index=parent.index + 1 if parent else 0,
            owner=ask.owner, adapter=ADAPTER, kind=kind, messages=tuple(ask.messages),
            tools=tuple(ask.tools), prompt_ids=prompt.ids,
            sampling=replace(sampling, max_tokens=min(sampling.max_tokens, room)),
            images=prompt.images, created=time.time(),
            reason=f"{rule}; session by {place.rule}; prompt {prompt.rule}",
        )
        # the tree first: a repetition that comes while the turn is written must find it
        node = self.sessions.add(place, turn_id=turn.id, trace_id=trace_id, kind=kind,
                                 owner=ask.owner, session=ask.session)
        await self._ledger.open(turn, parent=parent.turn_id if parent else "", render={
            "rule": prompt.rule, "chars": prompt.chars, "digest": prompt.digest,
            "place": place.rule, "kind": rule, "named_by": mark_of(ask),
        })
        self.kin.heard(ask, place, trace_id)
        return Opened(turn, node, prompt)

    def _new_trace(self, ask: Ask) -> str:
        trace = Trace(new_id("trace"), ask.owner, self._config.plugin_name, created=time.time())
        self.put_trace(trace, ask.session)
        return trace.id

    def put_trace(self, trace: Trace, session: str = "", *, is_episode: bool = False) -> None:
        """Know a new trace, and let go of conversations that nobody has used for longest."""
        self._journal.put_trace(trace, session)
        self.traces[trace.id] = trace
        for gone in self.sessions.open_trace(trace.id, trace.owner, session,
                                             is_episode=is_episode):
            self._let_go(gone, End.IDLE)

    async def _prompt(self, ask: Ask, place: Place) -> Prompt:
        known = self._known_of(place.parent.turn_id) if place.parent else None
        args = (ask.messages, ask.tools, known, place.raw)
        try:
            if sum(len(str(m.get("content"))) for m in ask.messages) > LONG:
                return await asyncio.to_thread(self._chat.prompt, *args)
            return self._chat.prompt(*args)
        except TemplateRefusal as refusal:
            raise EngineError(
                400, f"the model's chat template refuses these messages: {refusal}",
                param="messages",
            ) from refusal

    # --- an answered turn --------------------------------------------------------------------

    def answered(self, opened: Opened, turn: Turn, raw: str) -> None:
        """Know the reply, so that the next request can continue it."""
        assert turn.reply is not None and turn.completion is not None, "a finished turn has both"
        self.sessions.answer(opened.node, turn.reply, raw)
        p = opened.prompt
        self._remember(turn.id, self._chat.known(p.ids, p.chars, p.digest, turn.completion.ids))
        if turn.state is TurnState.WAITING and turn.trace_id not in self.traces:
            self._ledger.skip(turn.id, "no_next_state")  # its conversation ended meanwhile

    def num_thinking(self, turn: Turn) -> int:
        """Return how many of the sampled tokens came before the end of the thinking."""
        assert turn.reply is not None and turn.completion is not None, "a finished turn has both"
        if not turn.reply.get("reasoning_content"):
            return 0
        ids = turn.completion.ids.tolist()
        return bisect.bisect_left(
            range(len(ids)), True, key=lambda n: parse.THINK_END in self._chat.decode(ids[:n]))

    def _remember(self, turn_id: str, known: Known) -> None:
        self._known[turn_id] = known
        self._known.move_to_end(turn_id)
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _known_of(self, turn_id: str) -> Known | None:
        if turn_id not in self._known:
            turn, render = self._ledger.get(turn_id), self._journal.render(turn_id)
            if turn is None or turn.completion is None or "digest" not in render:
                return None
            self._remember(turn_id, self._chat.known(
                turn.prompt_ids, render["chars"], render["digest"], turn.completion.ids
            ))
        self._known.move_to_end(turn_id)
        return self._known[turn_id]

    # --- ends --------------------------------------------------------------------------------

    def end(self, trace_id: str, end: End, **about: Any) -> Trace | None:
        """End a trace; its turns without a next state are skipped. None for an unknown one.

        `about` holds what else its record says of the end: outcome, judge, failure.
        """
        trace = self.traces.get(trace_id)
        conversation = self.sessions.close(trace_id)
        if trace is None:
            return None
        if conversation is not None:
            return self._let_go(conversation, end, **about)
        return None

    def forget(self, trace_id: str) -> None:
        """Drop a conversation from memory, with the texts of its turns; the journal is not told."""
        conversation = self.sessions.close(trace_id)
        self.traces.pop(trace_id, None)
        self.kin.forget(trace_id)
        for node in conversation.nodes if conversation else ():
            self._known.pop(node.turn_id, None)

    def _let_go(self, conversation: Conversation, end: End, **about: Any) -> Trace:
        ended = replace(self.traces.pop(conversation.trace_id), end=end, **about)
        self._write_end(ended, conversation)
        return ended

    def end_idle(self) -> int:
        """End the conversations that have been silent too long; return how many."""
        idle = self.sessions.idle()
        for at, trace_id in enumerate(idle):
            conversation = self.sessions.known(trace_id)
            assert conversation is not None, "idle() names known conversations"
            ended = replace(self.traces[trace_id], end=End.IDLE)
            try:
                self._write_end(ended, conversation)
            except NoRoom:
                self.sessions.not_idle(idle[at:])
                raise
        return len(idle)

    def _write_end(self, ended: Trace, conversation: Conversation) -> None:
        with self._journal.write():
            self._journal.put_trace(ended, conversation.session)
            for node in conversation.nodes:
                turn = self._ledger.live.get(node.turn_id)
                if turn is not None and turn.state is TurnState.WAITING:
                    self._ledger.skip(turn.id, "no_next_state")
        self.on_end(ended)

    # --- after a restart ---------------------------------------------------------------------

    def load(self) -> None:
        """Rebuild the trees of conversations that had not ended."""
        for trace, session, is_episode in self._journal.open_traces():
            self.put_trace(trace, session, is_episode=is_episode)
            nodes: dict[str, Node] = {}
            for id, parent in self._journal.turn_ids(trace.id):
                turn = self._journal.turn(id)
                if turn is not None and turn.completion is not None and turn.reply is not None:
                    nodes[id] = self._reload(turn, session, nodes.get(parent), is_episode)
            self.sessions.touch(trace.id)  # a restart is nobody's silence

    def _reload(
        self, turn: Turn, session: str, parent: Node | None, is_episode: bool
    ) -> Node:
        place = self.sessions.place_of(turn.messages, turn.owner, session,
                                       turn.trace_id if is_episode else "", parent)
        node = self.sessions.add(place, turn_id=turn.id, trace_id=turn.trace_id, kind=turn.kind,
                                 owner=turn.owner, session=session)
        assert turn.completion is not None and turn.reply is not None, "checked by the caller"
        raw = self._chat.decode(self._chat.without_stop(turn.completion.ids))
        self.sessions.answer(node, turn.reply, raw, now=0.0)
        return node
