"""One attempt at a task: a desktop, what the policy does on it, and its score.

Owns: the episode, from opening the desktop to closing it.
Does not own: how replies are read (`spaces`), what the policy sees (`observe`), scores (`osworld`).
"""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from claw.sdk import EnvTurn, Message, Task
from claw.sdk.sandbox import SandboxError

from . import observe, spaces
from .actions import Action, Unreadable
from .machine import Failed, Machine
from .osworld import evaluate, setup, support
from .settings import GuiConfig
from .tasks import cache_of, desktop_task
from .trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Acted:
    """What one turn of the policy came to."""

    kind: str
    """ok, unreadable, failed, crashed (an application did), lost (the desktop is), end"""
    said: str = ""
    changed: bool = False
    """whether the screen looks different after it"""
    before: bytes = b""
    """PNG of the screen that the policy acted on"""
    after: bytes = b""
    """PNG of the screen that followed; empty at the end"""


class GuiEnv:
    """Plays one task once."""

    def __init__(self, task: Task, config: GuiConfig) -> None:
        self.task, self.config = task, config
        self.desktop_task = desktop_task(task)
        support.refuse_unsupported(self.desktop_task, is_remote=bool(config.remote),
                                   cache=cache_of(config))
        self.takes_pictures = False
        """whether the policy sees pictures; whoever knows says so before the start"""
        self.tools: list[dict[str, Any]] = spaces.tools(config.actions)
        self.acted: list[Acted] = []
        """by turn"""
        self.scored: evaluate.Score | None = None
        self.name = uuid4().hex[:12]
        """of this attempt, among others at the same task"""
        self.last = ""
        """kind of the last action"""
        self._machine: Machine | None = None
        self._errors = 0
        self._screen = observe.Screen(b"", "")
        self._trajectory = Trajectory(task.id, self.name, config.trajectories)

    def start(self) -> list[Message]:
        """Open the desktop, set the task up, and show it."""
        if self.config.observation == "auto":
            seen = "screenshot" if self.takes_pictures else "tree"
            self.config = self.config.model_copy(update={"observation": seen})
        self._machine = _opened(self.config)
        stage = setup.Stage(self.machine, self.desktop_task, self.config.step_timeout_s,
                            cache_of(self.config))
        setup.run(stage, self.desktop_task.config)
        self.machine.settle(limit_s=self.config.settle_s)
        self._screen = observe.look(self.machine, self.config)
        self._trajectory.start(self.desktop_task.instruction, self._screen.picture)
        return observe.first(self.desktop_task.instruction, self._screen, self.config)

    @property
    def machine(self) -> Machine:
        assert self._machine is not None, "start() comes first, and nothing after close()"
        return self._machine

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Do what the policy said, and return what is on the screen then; None at the end."""
        try:
            actions = spaces.read(self.config.actions, turn.reply, self.machine.size)
        except Unreadable as error:
            return self._unreadable(turn.reply, str(error))
        self._errors = 0
        try:
            return self._done(turn.reply, actions)
        except SandboxError as error:
            if not self._is_alive():
                raise
            # the policy has ended the program that shows it the screen; what it left is scored
            self._note(Acted("lost", str(error), before=self._screen.picture), actions)
            return None

    def _unreadable(self, reply: Message, why: str) -> list[Message] | None:
        self._errors += 1
        picture = self._screen.picture
        self._note(Acted("unreadable", why, before=picture, after=picture), [])
        if self._errors >= self.config.max_parse_errors:
            return None
        return self._answered(reply, why)

    def _done(self, reply: Message, actions: list[Action]) -> list[Message] | None:
        kind, said = "ok", ""
        began, before = len(self.machine.ended), self._screen.picture
        for action in actions:
            self.last = action.kind
            if action.is_end:
                self._note(Acted("end", before=before), actions)
                return None
            try:
                self.machine.do(action)
            except Failed as error:
                kind, said = "failed", f"Not done: {error}"
                break
        self.machine.settle(limit_s=self.config.settle_s)
        self._screen = observe.look(self.machine, self.config)
        if crashed := [e for e in self.machine.ended[began:] if e.code != 0]:
            kind = "crashed"
            said = " ".join([said, *(f"{e.name} ended with {e.code}." for e in crashed)]).strip()
        after = self._screen.picture
        self._note(Acted(kind, said, after != before, before, after), actions)
        return self._answered(reply, said)

    def _answered(self, reply: Message, said: str) -> list[Message]:
        """Return the answers to tool calls where there were any, and the screen."""
        calls = [{"role": "tool", "tool_call_id": str(call.get("id") or ""),
                  "content": said or "done"} for call in reply.get("tool_calls") or ()]
        return [*calls, observe.message("" if calls else said, self._screen, self.config)]

    def _note(self, acted: Acted, actions: list[Action]) -> None:
        self.acted.append(acted)
        self._trajectory.step(actions, acted.kind, acted.said, acted.after)

    def _is_alive(self) -> bool:
        try:
            return self.machine.run(["true"], timeout_s=10).exit_code == 0
        except SandboxError:
            return False

    def shown(self, messages: list[Message]) -> list[Message]:
        """Return the conversation as the policy sees it: with the newest screens only."""
        return observe.shown(messages, self.config.history)

    def score(self) -> evaluate.Score:
        """Look at what was done, once; the policy acts no more after it."""
        if self.scored is None:
            self.scored = evaluate.score(
                self.machine, self.desktop_task, self.last, step_s=self.config.step_timeout_s,
                cache=cache_of(self.config))
        return self.scored

    def close(self) -> None:
        """Free the desktop, and end the trajectory where one is wanted."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.close()
            self._trajectory.end(None if self.scored is None else self.scored.value)


def _opened(config: GuiConfig) -> Machine:
    size = (config.width, config.height)
    if config.remote:
        from .remote import leased

        return leased(config.remote, timeout_s=config.step_timeout_s)
    from .desktop import Desktop

    return Desktop(image=config.image, size=size, memory_mb=config.memory_mb, cpus=config.cpus,
                   lifetime_s=config.lifetime_s, runtime=config.runtime)
