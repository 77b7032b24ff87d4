"""One attempt at a task: a sandbox, what the policy does in it, and its grade.

Owns: the episode, from opening the sandbox to closing it.
Does not own: tools, grading, what a grade is worth.
"""

import re
import time
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from claw.sdk import EnvTurn, Message, Task
from claw.sdk.formats import atif
from claw.sdk.formats.folder import TaskFolder
from claw.sdk.sandbox import Sandbox
from claw.sdk.shell import tools
from claw.sdk.shell.commands import Shell
from claw.sdk.shell.talk import Acted, Talk

from . import grade, machine
from .prompt import messages
from .settings import TerminalConfig
from .tasks import folder_of

DONE = re.compile(r"^\W*DONE\W*$", re.MULTILINE)
NO_BLOCK = "Nothing was run: write one ```bash block with a command, or DONE."


class TerminalEnv:
    """Plays one task once."""

    def __init__(self, task: Task, config: TerminalConfig) -> None:
        self.task, self.config = task, config
        self.folder: TaskFolder = folder_of(task, config)
        self.folder.refuse_unsupported()
        self._names = tools.chosen(config.tools)
        self.tools: list[dict[str, Any]] = (
            tools.schemas(self._names) if config.talk == "tools" else [])
        self.last_word = "DONE"
        """what a policy says to finish: no block, and no call"""
        self.acted: list[Acted] = []
        """by turn"""
        self.graded: grade.Grade | None = None
        self._box: Sandbox | None = None
        self._record = atif.Record()
        self._errors = 0
        self.name = uuid4().hex[:12]
        """of this attempt, among others at the same task"""

    def start(self) -> list[Message]:
        """Open the sandbox and return the task's messages."""
        self.machine = machine.of(self.folder, self.config)
        self._box = machine.prepared(self.folder, self.machine)
        shell = Shell(self.box, user=self.machine.agent, workdir=self.machine.spec.workdir,
                      env=self.machine.env)
        config = self.config
        self._tools = tools.Tools(shell, self._names, timeout_s=config.command_timeout_s,
                                  max_output=4 * config.max_output)
        self._talk = Talk(self._tools, config.talk, max_output=config.max_output,
                          no_block=NO_BLOCK, done=DONE)
        limit = self.folder.agent_timeout_s
        self._until = time.monotonic() + limit * config.timeout_factor if limit else None
        first = messages(self.folder, config)
        self._record.note(*first)
        return first

    @property
    def box(self) -> Sandbox:
        assert self._box is not None, "start() comes first, and nothing after close()"
        return self._box

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Do what the policy said, and return what came of it; None at the end."""
        self._record.note(turn.reply, usage=turn.usage)
        is_late = self._until is not None and time.monotonic() > self._until
        if is_late:
            self.acted.append(Acted(("late",)))
            return None
        results, following = self._talk.act(turn.reply)
        acted = Acted.of(results)
        self.acted.append(acted)
        self._errors = self._errors + 1 if acted.is_unreadable else 0
        if "finish" in acted.kinds or self._errors >= self.config.max_parse_errors:
            return None
        self._record.note(*following)
        return following

    def grade(self) -> grade.Grade:
        """Run the task's tests, once; the agent acts no more after it."""
        if self.graded is None:
            self.graded = grade.grade(self.box, self.folder, self.machine, self.config)
        return self.graded

    def close(self) -> None:
        """Free the sandbox, and write the trajectory where one is wanted."""
        box, self._box = self._box, None
        if box is None:
            return
        box.close()
        if self.config.trajectories:
            self._record.write(
                self.config.trajectories, task=self.task.id, attempt=self.name,
                agent="claw-terminal", version=version("claw-env-terminal"), tools=self.tools,
                extra=self._extra(),
            )

    def _extra(self) -> dict[str, Any]:
        if self.graded is None:
            return {}
        return {"fraction": self.graded.fraction, "is_solved": self.graded.is_solved,
                "reason": self.graded.reason, "rewards": dict(self.graded.rewards)}
