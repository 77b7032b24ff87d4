"""Traces of episodes, and the groups they are compared in.

Owns: which traces are open, which belong together, when a group can be credited.
Does not own: the formulas (`credit.py`), conversations (`session.py`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from claw.records import End, Signal, Task, Trace

GROUP_WAIT_S = 120.0
"""after the last trace of an incomplete group has ended, so long we wait for more of it"""


@dataclass(slots=True, eq=False)
class Episode:
    """One trace with what is known of its turns."""

    trace: Trace
    task: Task | None = None
    peer: bytes = b""
    turns: list[str] = field(default_factory=list)
    """turn ids in order"""
    steps: dict[str, int] = field(default_factory=dict)
    """by turn id: which step of the episode it is, whatever became of the turns before it"""
    signals: dict[str, Signal] = field(default_factory=dict)
    """by turn id; a turn that was skipped has none"""
    heard: float = field(default_factory=time.monotonic)

    def is_judged(self, is_settled: Callable[[str], bool]) -> bool:
        """Whether it has ended and nothing of it is still to be judged."""
        known = self.signals
        return self.trace.end is not None and all(t in known or is_settled(t) for t in self.turns)


@dataclass(slots=True, eq=False)
class Group:
    name: str
    size: int
    episodes: list[Episode] = field(default_factory=list)
    ended_at: float = 0.0


class Groups:
    """Groups that are not credited yet."""

    def __init__(self) -> None:
        self.episodes: dict[str, Episode] = {}
        self._groups: dict[str, Group] = {}

    def open(self, episode: Episode, size: int) -> None:
        """Know a new episode; traces without a group are groups of one."""
        trace = episode.trace
        name = trace.group or trace.id
        group = self._groups.setdefault(name, Group(name, size if trace.group else 1))
        group.episodes.append(episode)
        self.episodes[trace.id] = episode

    def has(self, name: str) -> bool:
        return name in self._groups

    def note_end(self, trace: Trace) -> Episode | None:
        """Know that a trace has ended."""
        episode = self.episodes.get(trace.id)
        if episode is not None:
            episode.trace = trace
            self._groups[trace.group or trace.id].ended_at = time.monotonic()
        return episode

    def leave(self, episode: Episode) -> None:
        """Forget a trace that counts nowhere: its attempt is played again, in the same group."""
        trace = episode.trace
        self.episodes.pop(trace.id, None)
        group = self._groups[trace.group or trace.id]
        group.episodes.remove(episode)
        group.ended_at = time.monotonic()

    def take_complete(
        self, is_settled: Callable[[str], bool], now: float | None = None
    ) -> list[Group]:
        """Return, and forget, the groups that can be credited now.

        `is_settled` tells of a turn whether nothing will be said about it any more.
        """
        now = time.monotonic() if now is None else now
        done = [g for g in self._groups.values() if _is_complete(g, is_settled, now)]
        for group in done:
            del self._groups[group.name]
            for episode in group.episodes:
                self.episodes.pop(episode.trace.id, None)
        return done

    def of_peer(self, peer: bytes) -> list[Episode]:
        """Return the open episodes of one runner."""
        return [e for e in self.episodes.values() if e.peer == peer and e.trace.end is None]


def _is_complete(group: Group, is_settled: Callable[[str], bool], now: float) -> bool:
    if not all(e.is_judged(is_settled) for e in group.episodes):
        return False
    return len(group.episodes) >= group.size or now - group.ended_at > GROUP_WAIT_S


def has_failed(trace: Trace) -> bool:
    """A failed or cancelled episode has no outcome to compare."""
    return trace.end in (End.FAILED, End.CANCELLED)
