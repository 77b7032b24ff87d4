"""One attempt at a task: a sandbox, what the policy does in it, and its grade.

Owns: the episode, from opening the sandbox to closing it.
Does not own: tools, grading, what a grade is worth.
"""

import re
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from claw.sdk import EnvTurn, Message, Task
from claw.sdk.clip import clip
from claw.sdk.formats import atif
from claw.sdk.formats.folder import TaskFolder
from claw.sdk.sandbox import Sandbox

from . import grade, machine, tools
from .prompt import messages
from .settings import TerminalConfig
from .shell import Shell
from .tasks import folder_of

FENCE = re.compile(r"```(?:bash|sh|shell|console)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
DONE = re.compile(r"^\W*DONE\W*$", re.MULTILINE)
NO_BLOCK = "Nothing was run: write one ```bash block with a command, or DONE."
NO_CALL = "Nothing was done: that is no tool call. Call one of the tools, or finish."


@dataclass(frozen=True, slots=True)
class Acted:
    """What one turn of the policy came to."""

    kinds: tuple[str, ...]
    """of each result, as in `tools.Result`"""
    exit_codes: tuple[int | None, ...] = ()


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
        self._said: list[Message] = []
        self._usages: list[dict[str, int]] = []
        self._times: list[float] = []
        self._errors = 0
        self.name = uuid4().hex[:12]
        """of this attempt, among others at the same task"""

    def start(self) -> list[Message]:
        """Open the sandbox and return the task's messages."""
        self.machine = machine.of(self.folder, self.config)
        self._box = machine.prepared(self.folder, self.machine)
        shell = Shell(self.box, user=self.machine.agent, workdir=self.machine.spec.workdir,
                      env=self.machine.env)
        self._tools = tools.Tools(shell, self._names, timeout_s=self.config.command_timeout_s,
                                  max_output=self.config.max_output)
        limit = self.folder.agent_timeout_s
        self._until = time.monotonic() + limit * self.config.timeout_factor if limit else None
        first = messages(self.folder, self.config)
        self._note(*first)
        return first

    @property
    def box(self) -> Sandbox:
        assert self._box is not None, "start() comes first, and nothing after close()"
        return self._box

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Do what the policy said, and return what came of it; None at the end."""
        self._note(turn.reply)
        self._usages.append(dict(turn.usage))
        is_late = self._until is not None and time.monotonic() > self._until
        if is_late:
            self.acted.append(Acted(("late",)))
            return None
        act = self._called if self.config.talk == "tools" else self._fenced
        results, following = act(turn.reply)
        self.acted.append(Acted(tuple(r.kind for r in results),
                                tuple(r.exit_code for r in results)))
        kinds = {r.kind for r in results}
        self._errors = self._errors + 1 if kinds == {"unreadable"} else 0
        if "finish" in kinds or self._errors >= self.config.max_parse_errors:
            return None
        self._note(*following)
        return following

    def _fenced(self, reply: Message) -> tuple[list[tools.Result], list[Message]]:
        text = str(reply.get("content") or "")
        match = FENCE.search(text)
        if match is not None and match[1].strip():
            result = self._tools.command(match[1])
        elif DONE.search(text):
            result = tools.Result("", "finish")
        else:
            result = tools.Result(NO_BLOCK, "unreadable")
        return [result], [{"role": "user", "content": self._short(result.text)}]

    def _called(self, reply: Message) -> tuple[list[tools.Result], list[Message]]:
        calls = reply.get("tool_calls") or []
        if not calls:
            if "<tool_call>" not in str(reply.get("content") or ""):
                return [tools.Result("", "finish")], []
            return ([tools.Result(NO_CALL, "unreadable")],
                    [{"role": "user", "content": NO_CALL}])
        results, following = [], []
        for call in calls:
            function = call.get("function") or {}
            result = self._tools.call(str(function.get("name")), function.get("arguments"))
            results.append(result)
            following.append({"role": "tool", "tool_call_id": str(call.get("id") or ""),
                              "content": self._short(result.text)})
            if result.kind == "finish":
                break
        return results, following

    def _short(self, text: str) -> str:
        return clip(text, self.config.max_output)

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
            self._write()

    def _write(self) -> None:
        made = atif.trajectory(
            self._said, session_id=self.name, agent="claw-terminal",
            version=version("claw-env-terminal"), tools=self.tools, usages=self._usages,
            times=self._times, extra=self._extra(),
        )
        name = f"{_file_name(self.task.id)}-{self.name}.json"
        atif.write(Path(self.config.trajectories).expanduser() / name, made)

    def _extra(self) -> dict[str, Any]:
        made: dict[str, Any] = {"task": self.task.id}
        if self.graded is not None:
            made |= {"fraction": self.graded.fraction, "is_solved": self.graded.is_solved,
                     "reason": self.graded.reason, "rewards": dict(self.graded.rewards)}
        return made

    def _note(self, *said: Message) -> None:
        self._said += said
        self._times += [time.time()] * len(said)


def _file_name(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", id)[:80]
