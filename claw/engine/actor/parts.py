"""The parts of an actor, put together, and rebuilt from the journal after a crash.

Owns: who knows whom, what is loaded at the start, what the status says.
Does not own: sockets and the loop (`actor.py`).
"""

import asyncio
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

from claw.config import RunConfig
from claw.engine.actor import forgetting, guard, judges
from claw.engine.actor.album import Album
from claw.engine.actor.better import Better
from claw.engine.actor.buffer import Buffer
from claw.engine.actor.call import GenerationError
from claw.engine.actor.chat import Chat
from claw.engine.actor.consent import Consent
from claw.engine.actor.conversations import ADAPTER, Conversations
from claw.engine.actor.crediting import Crediting
from claw.engine.actor.episodes import Episodes
from claw.engine.actor.gateway import Gateway, Send
from claw.engine.actor.generation import Generation
from claw.engine.actor.hindsight import Hindsight
from claw.engine.actor.journal import Journal
from claw.engine.actor.ledger import Ledger
from claw.engine.actor.meter import Meter
from claw.engine.actor.policy import Policy, new_call
from claw.engine.actor.published import Published
from claw.engine.actor.session import Sessions
from claw.engine.actor.signals import Judging
from claw.engine.people import People
from claw.engine.pictures import lens_of
from claw.errors import ClawError
from claw.records import DEFAULT_OWNER, Message, Sampling, TurnState, new_id

log = logging.getLogger(__name__)

MIN_ROOM = 16
"""tokens that a judge's answer needs at least"""


class Parts:
    """Everything of an actor but its sockets."""

    def __init__(
        self, config: RunConfig, model_dir: Path, run_dir: Path, to_worker: Send, *, resume: bool
    ) -> None:
        self.config = config
        self.journal = Journal(run_dir, key_file=config.journal.key_file)
        if not resume and self.journal.states():
            raise ClawError("the run folder holds turns already", found=str(self.journal.path),
                            do="continue it with --resume, or start a new run")
        self.chat = Chat(model_dir)
        self.chat.calls = config.serve.tool_calls
        self._open_album(model_dir)
        self.ledger = Ledger(self.journal)
        g = config.guard
        self.buffer = Buffer(config.async_.max_staleness, masks=config.async_.stale == "mask",
                             shares={"conversation": g.conversation_share, "hint": g.hint_share})
        self.buffer.sources = lambda sample: guard.sources(self.journal, sample)
        self.published = Published(self.journal)
        self.consent = Consent(self.journal)
        w = config.worker
        self.policy = Policy(
            to_worker, self.chat.stop_ids, dead_after_s=config.wire.dead_after_s,
            max_waiting=w.queue * w.count,
        )
        self.crediting = Crediting(config, self.ledger, self.chat, self.buffer)
        judge = judges.build(config.judge, self.ask)
        self.judging = Judging(self.ledger, judge, config.judge, self.crediting.judged)
        self.judging.refuses = self.crediting.refuses = self.consent.refusal
        self.talk = Conversations(config, self.journal, self.ledger, self.chat, self.judging)
        self.talk.kin.on_link = self._inherit
        self.hindsight = Hindsight(config.judge, self.ledger, self.crediting, judge)
        self.talk.on_end = self.hindsight.ended
        self.episodes = Episodes(config, self.ledger, self.talk, self.judging, self.crediting)
        self.better = Better(config.better, self.journal, self.chat, self.policy, self.published,
                             self.consent, judge)
        self.buffer.pictures = self.talk.pictures
        self.generation = Generation(self.chat, self.policy, self.ledger)
        self.people = People(run_dir)
        self.meter = Meter(self.people, self.journal)
        self.resume = resume

    def _open_album(self, model_dir: Path) -> None:
        """Take pictures where the model and the worker see them."""
        # the SGLang worker is given ids and nothing else
        lens = lens_of(model_dir) if self.config.worker.kind == "transformers" else None
        if lens is not None:
            album = self.chat.album = Album(lens, self.journal.picture)
            self.journal.picture_data = album.data

    def _inherit(self, child: str, parent: str) -> None:
        """What is never learned from has sub-agents that are never learned from."""
        if self.consent.excludes(parent) and not self.consent.excludes(child):
            self.consent.exclude(child)

    def gateway(self, send: Send) -> Gateway:
        """Return the gateway that answers runners through `send`."""
        made = Gateway(self.config, send, self.talk, self.generation, self.policy, self.published,
                       self.meter)
        made.on_episode_turn = self.episodes.note_turn
        self.open_gateway = made
        return made

    @property
    def sessions(self) -> Sessions:
        return self.talk.sessions

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Load what an earlier process left, and begin to judge."""
        if self.resume:
            self._load()
        self.judging.start()

    def _load(self) -> None:
        """Open turns were interrupted; waiting ones wait; the rest goes on where it was."""
        began = time.monotonic()
        self.ledger.load()
        self.talk.load()
        self.hindsight.load()
        self.episodes.load()
        for sample, created, _ in self.journal.samples("waiting"):
            self.buffer.add(sample, began - max(time.time() - created, 0.0))
        self.buffer.restore([(s, lease) for s, _, lease in self.journal.samples("leased")])
        ended = [t for t in self.ledger.live.values()
                 if t.state is TurnState.WAITING and t.trace_id not in self.talk.traces]
        for turn in ended:
            self.ledger.skip(turn.id, "no_next_state")
        for turn in list(self.ledger.live.values()):
            if turn.state is TurnState.JUDGING and not self._waits_for_group(turn.id):
                episode = self.crediting.groups.episodes.get(turn.trace_id)
                self.judging.submit(turn, task=episode.task if episode else None)
        log.info("resumed %s in %.2f s", self.ledger.counts(), time.monotonic() - began)

    def _waits_for_group(self, turn_id: str) -> bool:
        return self.crediting.waits_for_groups and any(
            turn_id in e.signals for e in self.crediting.groups.episodes.values()
        )

    async def tend(self) -> None:
        await self.open_gateway.tend()
        self.better.context = self.open_gateway.context
        self.better.tend()
        self.talk.end_idle()
        self.hindsight.tend()
        await self.episodes.tend()

    async def forget(self, trace_ids: list[str]) -> int:
        """Remove conversations and all derived from them, in memory and in the journal."""
        await self.open_gateway.drop(
            [t.id for t in self.ledger.live.values() if t.trace_id in trace_ids])
        for trace_id in trace_ids:
            self.talk.forget(trace_id)
            for id, turn in list(self.ledger.live.items()):
                if turn.trace_id == trace_id:
                    del self.ledger.live[id]
            for id, waiting in list(self.buffer.waiting.items()):
                if waiting.sample.trace_id == trace_id:
                    self.buffer.remove(id)
        self.better.forget({id for t in trace_ids for id, _ in self.journal.turn_ids(t)})
        if self.chat.album is not None:
            self.chat.album.forget(d for t in trace_ids for d in self.journal.pictures_of(t))
        forgotten = forgetting.forget(self.journal, trace_ids)
        self.ledger.recount()
        return forgotten

    def take_back(self, trace_id: str, why: str) -> int:
        """Skip what has not been trained of a conversation; what a step has in hand stays there."""
        taken = 0
        for turn in [t for t in self.ledger.live.values() if t.trace_id == trace_id]:
            if turn.state is TurnState.QUEUED and not self.crediting.take_back(turn, why):
                continue  # leased
            if turn.state in (TurnState.QUEUED, TurnState.JUDGING):
                self.ledger.skip(turn.id, why)
                taken += 1
        return taken

    async def stop(self) -> None:
        await self.better.stop()
        await self.open_gateway.stop()
        await self.hindsight.stop()
        await self.judging.stop()

    # --- for judges --------------------------------------------------------------------------

    async def ask(self, messages: list[Message], temperature: float, max_tokens: int) -> str:
        """Ask claw's own workers, outside any conversation; nothing of it is kept.

        People go first: while the workers are full this waits, within the judge's deadline.
        """
        prompt = self.chat.prompt(messages)
        room = self.open_gateway.context - len(prompt.ids)
        if room < MIN_ROOM:
            raise GenerationError("bad_request", f"a prompt of {len(prompt.ids)} tokens leaves no "
                                  f"room in a context of {self.open_gateway.context}")
        sampling = Sampling(temperature=temperature, logprobs_k=0,
                            max_tokens=min(max_tokens, room))
        while not self.policy.has_room:
            await asyncio.sleep(0.2)
        call = new_call(new_id("judge"), prompt.ids, sampling, session="", owner="default",
                        adapter=ADAPTER, deadline_s=self.config.judge.deadline_s)
        async for _ in self.policy.generate(call):
            pass
        ids = [id for chunk in call.chunks for id in self.chat.without_stop(chunk.ids)]
        return self.chat.decode(ids)

    # --- for people --------------------------------------------------------------------------

    def status(self, owner: str = DEFAULT_OWNER) -> dict[str, Any]:
        """Return the state of everything but the trainer, as plain values; versions of `owner`."""
        held = Counter(o for o in self.ledger.held.values() if owner in (DEFAULT_OWNER, o))
        warnings = [self.talk.kinds.warning(), self.talk.names.warning(), _waiting(held[owner])]
        leased = sum(len(lease.samples) for lease in self.buffer.leases.values())
        workers = self.policy.status()
        return {
            "version": self.published.newest(owner, ADAPTER),
            "served_version": _served(workers, owner),
            "versions": self.published.rows("" if owner == DEFAULT_OWNER else owner),
            "version_states": self.published.states(),
            "workers": workers,
            "lost_workers": self.policy.lost(),
            "turns": self.ledger.counts("" if owner == DEFAULT_OWNER else owner),
            "skipped": dict(self.ledger.reasons),
            "samples": {"waiting": len(self.buffer.waiting), "leased": leased,
                        "oldest_s": round(self.buffer.oldest_s(), 1),
                        "by_owner": self.buffer.by_owner()},
            "sessions": {"open": len(self.sessions), "by": dict(self.sessions.counts),
                         "named_by": dict(self.talk.names.counts)},
            "kinds": dict(self.talk.kinds.counts),
            "requests": dict(self.policy.counts),
            "queue": self.policy.num_waiting,
            "judged": dict(self.judging.counts),
            "judging": self.judging.status(),
            "signals": dict(self.ledger.said),
            "guard": dict(self.crediting.guard.counts) | {
                "tool_hints": self.judging.counts["tool_hints"]} | {
                f"over_{kind}_share": n for kind, n in self.buffer.over.items()},
            "quarantine": dict(held),
            "episodes": self.episodes.status(),
            "context": self.open_gateway.context,
            "takes_tools": self.chat.takes_tools,
            "takes_pictures": self.chat.album is not None,
            "better": {"questions": self.better.questions},
            "paused_until": self.consent.paused_until(owner),
            "warnings": [warning for warning in warnings if warning],
        }


def _waiting(num_held: int) -> str:
    return "" if not num_held else (f"{num_held} turns were held back and teach nothing until you "
                                    "have looked: claw quarantine list")


def _served(workers: list[dict[str, Any]], of: str) -> int:
    """The oldest version that a worker still gives to new requests; 0 without a worker."""
    newest = [
        max((n for owner, adapter, n in w["versions"] if (owner, adapter) == (of, ADAPTER)),
            default=0)
        for w in workers
    ]
    return min(newest, default=0)
