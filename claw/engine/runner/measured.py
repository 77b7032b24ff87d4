"""A policy that is measured, not trained: its turns are side turns, its judges' words stay here.

Owns: what of an episode an actor is told during an evaluation.
Does not own: asking (`engine`).
"""

from claw.engine.runner.engine import WireEngine
from claw.records import Message, Signal, Task


class MeasuredEngine(WireEngine):
    """Episodes are traces of the actor, so that attempts at one task are never taken for repeats
    of one request; nothing of them is judged there or waits for a step.
    """

    async def open_trace(self, task: Task, group: str) -> str:
        """Begin a trace outside any group: nothing is compared."""
        return await super().open_trace(task, "")

    async def next_state(
        self, turn_id: str, messages: list[Message], signals: list[Signal]
    ) -> None:
        """A side turn has no next state."""
