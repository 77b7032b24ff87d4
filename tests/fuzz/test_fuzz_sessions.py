"""Whatever a client makes of its history, a turn is placed in its own conversation or in a new one.

The model behind it: several people talk in several conversations at once; each keeps a history, and
may edit, cut, fork, repeat or rewrite it before the next request. Whose conversation a request is,
the test knows; the resolver sees messages only.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from some_json import one_of, text, value
from tried import Tried

from claw.engine.actor.kind import Kinds
from claw.engine.actor.session import Sessions
from claw.records import Message, TurnKind

OWNERS = ("anna", "bo")
SYSTEMS = ("", "Be brief.", "It is 12:00.", "It is 12:01.")


@dataclass(eq=False)
class Talk:
    """One conversation as its client keeps it."""

    owner: str
    session: str
    mark: str
    """in every message of it: other conversations never say the same"""
    history: list[Message] = field(default_factory=list)


class World:
    """People, their clients, and the resolver."""

    def __init__(self, random: Random) -> None:
        self.random, self.now, self.count = random, 1000.0, 0
        self.sessions, self.kinds = Sessions(idle_s=500.0), Kinds()
        self.talks: list[Talk] = []
        self.traces: dict[str, tuple[str, str]] = {}
        """trace -> owner and the mark of the conversation that began it"""
        self.open: list[Any] = []

    def step(self) -> None:
        random = self.random
        self.now += random.choice((0.1, 1.0, 3.0, 60.0, 600.0))
        if not self.talks or (len(self.talks) < 5 and random.random() < 0.3):
            owner, number = random.choice(OWNERS), len(self.talks)
            session = random.choice(("", "", f"s{number}"))
            self.talks.append(Talk(owner, session, f"<{number}>"))
        talk = random.choice(self.talks)
        if random.random() < 0.5:
            self.mangle(talk)
        self.ask(talk)
        if random.random() < 0.05:
            self.sessions.idle(self.now)
        if random.random() < 0.05 and self.traces:
            self.sessions.close(random.choice(list(self.traces)))

    def said(self, talk: Talk, role: str) -> Message:
        random = self.random
        words = f"{talk.mark} {text(random)}"
        content: Any = random.choice((
            words, words, f" {words} ", [{"type": "text", "text": words}],
            [words, {"type": "image_url", "image_url": {"url": "x"}}]))
        message: Message = {"role": role, "content": content}
        if role == "assistant" and random.random() < 0.3:
            call = {"id": text(random), "type": "function", "function": {
                "name": talk.mark,
                "arguments": random.choice((text(random), "{}", None, {"a": 1}))}}
            message |= {"tool_calls": [call], "content": random.choice((None, words))}
        if role == "tool":
            message["tool_call_id"] = random.choice((text(random), None, 5))
        return message

    def mangle(self, talk: Talk) -> None:
        """What clients do to a history."""
        random, history = self.random, talk.history
        at = random.randrange(len(history) + 1)
        match random.randrange(8):
            case 0:
                del history[at:]
            case 1:
                del history[:at]
            case 2:
                history.insert(at, self.said(talk, random.choice(("user", "assistant", "tool"))))
            case 3 if history:
                history[at - 1] = self.said(talk, history[at - 1]["role"])
            case 4:
                random.shuffle(history)
            case 5 if history:
                history.insert(at, dict(random.choice(history)))
            case 6 if history:
                history[at - 1] = history[at - 1] | {text(random): value(random)}
            case 7:
                history.append(self.said(talk, "user"))

    def ask(self, talk: Talk) -> None:
        random = self.random
        if not talk.history or random.random() < 0.7:
            talk.history.append(self.said(talk, random.choice(("user", "user", "tool"))))
        system = random.choice(SYSTEMS)
        messages = [*([{"role": "system", "content": system}] if system else []), *talk.history]
        kind, _ = self.kinds.decide("", messages, [], 64)
        place = self.sessions.find(messages, owner=talk.owner, session=talk.session, now=self.now,
                                   extra=[[], kind])
        self.check(talk, place)
        if place.retry_of is not None:
            return
        trace = place.trace_id
        if not trace or self.sessions.known(trace) is None:
            self.count += 1
            trace = f"trace{self.count}"
            self.sessions.open_trace(trace, talk.owner, talk.session, now=self.now)
            self.traces[trace] = talk.owner, talk.mark
        node = self.sessions.add(place, turn_id=f"turn{self.count}", trace_id=trace, kind=kind,
                                 owner=talk.owner, session=talk.session, now=self.now)
        match random.randrange(4):
            case 0:
                self.sessions.fail(node)
            case _:
                reply = self.said(talk, "assistant")
                self.sessions.answer(node, reply, str(reply.get("content")), now=self.now)
                if random.random() < 0.9:
                    talk.history.append(reply)

    def check(self, talk: Talk, place: Any) -> None:
        for node in (place.parent, place.answered, place.retry_of):
            if node is not None:
                assert node.owner == talk.owner, f"{talk.owner} continues {node.owner}"
                assert self.traces[node.trace_id] == (talk.owner, talk.mark), "another conversation"
        if place.trace_id:
            assert self.traces[place.trace_id] == (talk.owner, talk.mark), f"by {place.rule}"
        if place.answered is not None:
            assert place.answered.kind is TurnKind.MAIN, "a side turn has no next state"
            assert all(m.get("role") != "assistant" for m in place.next_state)
        assert all(0 <= at < len(place.keys.chain) + len(SYSTEMS) + 99 for at in place.raw)


def test_a_turn_is_never_placed_in_another_conversation(tried: Tried) -> None:
    def check(world: World) -> None:
        for _ in range(20):
            world.step()

    tried(check, World, 60)


def test_messages_of_any_shape_have_a_place_and_a_kind(tried: Tried) -> None:
    roles = ("user", "assistant", "tool", "system", "developer", "function")

    def message(random: Random) -> Message:
        content = random.choice((text(random), None, [text(random)], [{"text": text(random)}],
                                 [{"type": "image_url", "image_url": {"url": text(random)}}]))
        call = {"function": {"name": text(random), "arguments": one_of(random, text, value)}}
        made: Message = {"role": random.choice(roles), "content": content}
        if random.random() < 0.3:
            made |= {"tool_calls": [call], "tool_call_id": value(random)}
        return made

    def make(random: Random) -> tuple[Sessions, list[list[Message]]]:
        return Sessions(9.0), [[message(random) for _ in range(random.randint(1, 4))]
                               for _ in range(2)]

    def check(made: tuple[Sessions, list[list[Message]]]) -> None:
        sessions, requests = made
        for messages in requests:
            kind, rule = Kinds().decide("", messages, [], 64)
            place = sessions.find(messages, now=1.0)
            assert rule and place.rule in ("new", "retry", "regenerated", "prefix")
            sessions.open_trace("trace", "default", now=1.0)
            sessions.add(place, turn_id="t", trace_id="trace", kind=kind, owner="default", now=1.0)

    tried(check, make, 150)
