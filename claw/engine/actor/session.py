"""Which conversation does a request belong to, and which turn does it continue?

Owns: the tree of known turns of each conversation, matching by content, retries, idle ends.
Does not own: the turns themselves and their states (`actor.py`), main or side (`kind.py`).

A request is a list of messages. Each known turn has the chained digest of its request and of its
request plus our reply; a request continues the turn whose chain is its longest prefix. System
messages and a client's internal context are left out of the chain, since clients rewrite them.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

from claw.engine.actor import speech
from claw.engine.actor.place import Conversation, Keys, Node, Place, keys_of
from claw.records import Message, TurnKind

RETRY_S = 2.0
"""an identical request so soon after the answer is the client's retry, later a regeneration"""
MAX_JOINED, MAX_CUTS = 40_000, 100
"""characters and lines of a message that is looked at as several replies in one"""
MAX_TRACES = 10_000
MAX_NODES = 40_000
"""known turns in memory over all conversations"""


class Sessions:
    """All conversations that may go on."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self.counts: Counter[str] = Counter()
        self._open: OrderedDict[str, Conversation] = OrderedDict()  # oldest use first
        self._named: dict[tuple[str, str], str] = {}
        self._replies: dict[bytes, list[Node]] = {}
        self._requests: dict[bytes, list[Node]] = {}
        self._digests: dict[bytes, Node] = {}
        self._num_nodes = 0

    def __len__(self) -> int:
        return sum(not c.is_idle for c in self._open.values())

    # --- finding -----------------------------------------------------------------------------

    def find(
        self, messages: Sequence[Message], *, owner: str = "default", session: str = "",
        trace_id: str = "", extra: Any = None, now: float | None = None,
    ) -> Place:
        """Return where a request belongs; `extra` (tools, sampling) counts for repetitions only.

        `trace_id` names an episode: its requests are never retries or regenerations of another.
        """
        now = time.monotonic() if now is None else now
        keys = keys_of(messages, owner, trace_id or session, extra)
        place = self._place(messages, keys, owner, session, trace_id, now)
        self.counts[place.rule] += 1
        return place

    def _place(
        self, messages: Sequence[Message], keys: Keys, owner: str, session: str, trace_id: str,
        now: float,
    ) -> Place:
        again = None if trace_id else self._digests.get(keys.digest)
        if again and not again.failed and (not again.done_at or now - again.done_at < RETRY_S):
            return Place("retry", again.trace_id, again.parent, again, keys=keys)
        known = trace_id or self._named.get((owner, session), "") if trace_id or session else ""
        at, parent = self._longest(keys)
        if parent is None and known:
            at, parent = self._by_last_reply(messages, known)
        joined_at, joined = self._joined(messages, at, known or (parent.trace_id if parent else ""))
        if joined is not None:
            at, parent = joined_at, joined
        if parent is not None:
            rule = "episode" if trace_id else "session" if session else "prefix"
            if self._requests.get(keys.request):
                rule = "regenerated" if not trace_id else rule
            return self._continues(rule, messages, keys, at, parent)
        twin = self._twin(keys)
        if twin is not None and not known:
            return Place("regenerated", twin.trace_id, keys=keys)
        if known:
            return Place("episode" if trace_id else "session", known, keys=keys)
        return Place("new", "", keys=keys)

    def _longest(self, keys: Keys) -> tuple[int, Node | None]:
        """Return the position of our newest reply in the request, and its turn."""
        for at, chained in reversed(keys.chain):
            nodes = [n for n in self._replies.get(chained, ()) if n.trace_id in self._open]
            if nodes:
                # equal histories may exist twice: prefer the same system prompt, then the newest
                return at, max(nodes, key=lambda n: (n.system == keys.system, n.done_at))
        return -1, None

    def _by_last_reply(
        self, messages: Sequence[Message], trace_id: str
    ) -> tuple[int, Node | None]:
        """A named conversation whose older history was rewritten still ends in our reply."""
        conversation = self._open.get(trace_id)
        for at in range(len(messages) - 1, -1, -1):
            if messages[at].get("role") == "assistant" and conversation:
                own = speech.key(messages[at])
                same = [n for n in conversation.nodes if n.own == own]
                return (at, same[-1]) if same else (-1, None)
        return -1, None

    def _joined(
        self, messages: Sequence[Message], at: int, trace_id: str
    ) -> tuple[int, Node | None]:
        """Two replies in a row, with what stood between them left out, come back as one message.

        OpenClaw does so when it drops a sub-agent's result from the history. The message is ours
        if it is replies of this conversation and nothing else; the newest is what is answered.
        """
        last = next((i for i in range(len(messages) - 1, at, -1)
                     if messages[i].get("role") == "assistant"), -1)
        conversation = self._open.get(trace_id)
        if last < 0 or conversation is None or messages[last].get("tool_calls"):
            return -1, None
        said, own = speech.own_words(messages[last]), dict[bytes, list[Node]]()
        for node in conversation.nodes:
            own.setdefault(node.own, []).append(node)
        lines = said.split("\n") if len(said) <= MAX_JOINED else []
        found = _replies_in(lines, own) if len(lines) <= MAX_CUTS else []
        return (last, found[-1]) if len(found) > 1 else (-1, None)

    def _twin(self, keys: Keys) -> Node | None:
        """An earlier turn with the same request: this one is asked anew."""
        nodes = [n for n in self._requests.get(keys.request, ())
                 if n.trace_id in self._open and n.system == keys.system]
        return nodes[-1] if nodes and keys.chain else None

    def _continues(
        self, rule: str, messages: Sequence[Message], keys: Keys, at: int, parent: Node
    ) -> Place:
        added = []
        for message in messages[at + 1 :]:
            if message.get("role") == "assistant":
                break  # somebody else's words follow; they answer what came before
            added.append(message)
        main: Node | None = parent
        while main is not None and main.kind is TurnKind.SIDE:
            main = main.parent  # a helper's turn in between: the person answers what was before it
        raw = {p: n[-1].raw for p, c in keys.chain if p <= at and (n := self._replies.get(c))}
        if speech.key(messages[at]) == parent.own:  # not where it was joined to another
            raw.setdefault(at, parent.raw)
        said = tuple(m for m in speech.words(added) if not speech.is_routed(m))
        return Place(rule, parent.trace_id, parent, None, main, said, raw, keys)

    # --- keeping -----------------------------------------------------------------------------

    def open_trace(
        self, trace_id: str, owner: str, session: str = "", *, is_episode: bool = False,
        now: float | None = None,
    ) -> list[Conversation]:
        """Know a new trace; return conversations that had to be forgotten to make room."""
        now = time.monotonic() if now is None else now
        self._open[trace_id] = Conversation(trace_id, owner, session, seen=now,
                                            is_episode=is_episode)
        if session:
            self._named[owner, session] = trace_id
        gone = []
        while len(self._open) > 1 and (
            len(self._open) > MAX_TRACES or self._num_nodes > MAX_NODES
        ):
            gone.append(self.close(next(iter(self._open))))
        return [c for c in gone if c is not None]

    def add(
        self, place: Place, *, turn_id: str, trace_id: str, kind: TurnKind, owner: str,
        session: str = "", now: float | None = None,
    ) -> Node:
        """Know a turn that is being answered."""
        assert place.keys is not None, "a place that find() made has keys"
        index = place.parent.index + 1 if place.parent else 0
        node = Node(turn_id, trace_id, owner, session, kind, index, place.parent,
                    place.keys.digest, place.keys.request, place.keys.system)
        conversation = self._open[trace_id]
        conversation.nodes.append(node)
        self._num_nodes += 1
        self._requests.setdefault(node.request, []).append(node)
        if kind is TurnKind.MAIN and not conversation.is_episode:
            self._digests[node.digest] = node
        self.touch(trace_id, now)
        return node

    def place_of(
        self, messages: Sequence[Message], owner: str, session: str, trace_id: str,
        parent: Node | None,
    ) -> Place:
        """Return the place of a turn that is read back after a restart."""
        return Place("resumed", trace_id, parent, keys=keys_of(messages, owner, trace_id or session,
                                                             None))

    def answer(self, node: Node, reply: Message, raw: str, now: float | None = None) -> None:
        """Know the reply of a turn, so that later requests can continue it."""
        node.own = speech.key(reply)
        node.reply = speech.digest([node.request.hex(), node.own.hex()])
        node.raw, node.done_at = raw, time.monotonic() if now is None else now
        if node.trace_id in self._open:
            self._replies.setdefault(node.reply, []).append(node)
            self.touch(node.trace_id, now)

    def fail(self, node: Node) -> None:
        """Know that a turn has no answer: the same request again is a new turn."""
        node.failed = True

    def touch(self, trace_id: str, now: float | None = None) -> None:
        if trace_id in self._open:
            self._open[trace_id].seen = time.monotonic() if now is None else now
            self._open[trace_id].is_idle = False
            self._open.move_to_end(trace_id)

    def trace_of(self, owner: str, session: str) -> str:
        """Return the trace of a named session, or nothing."""
        return self._named.get((owner, session), "")

    def idle(self, now: float | None = None) -> list[str]:
        """Return, once each, people's conversations that have been silent too long."""
        now = time.monotonic() if now is None else now
        found = []
        for id, conversation in self._open.items():
            if now - conversation.seen < self.idle_s:
                break  # ordered by use
            if not conversation.is_episode and not conversation.is_idle:
                conversation.is_idle = True
                found.append(id)
        return found

    def not_idle(self, trace_ids: list[str]) -> None:
        """The ends of these conversations could not be written: idle() names them again."""
        for id in trace_ids:
            self._open[id].is_idle = False

    def known(self, trace_id: str) -> Conversation | None:
        """Return a conversation that is in memory, also an idle one."""
        return self._open.get(trace_id)

    def close(self, trace_id: str) -> Conversation | None:
        """Forget a trace's tree."""
        conversation = self._open.pop(trace_id, None)
        if conversation is None:
            return None
        for node in conversation.nodes:
            _drop(self._replies, node.reply, node)
            _drop(self._requests, node.request, node)
            if self._digests.get(node.digest) is node:
                del self._digests[node.digest]
        self._num_nodes -= len(conversation.nodes)
        if self._named.get((conversation.owner, conversation.session)) == trace_id:
            del self._named[conversation.owner, conversation.session]
        return conversation


def _replies_in(lines: Sequence[str], own: dict[bytes, list[Node]]) -> list[Node]:
    """The replies that these lines are, one after the other; none where some line is no reply's."""
    nodes: list[Node] = []
    while lines:
        for cut in range(len(lines)):
            text = "\n".join(lines[cut:])
            same = own.get(speech.key({"role": "assistant", "content": text}), ()) if text else ()
            node = next((n for n in reversed(same) if n not in nodes), None)
            if node is not None:
                nodes.insert(0, node)
                lines = lines[:cut]
                break
        else:
            return []
    return nodes


def _drop(index: dict[bytes, list[Node]], key: bytes, node: Node) -> None:
    nodes = index.get(key)
    if nodes and node in nodes:
        nodes.remove(node)
        if not nodes:
            del index[key]
