"""One attempt at an instance: a sandbox, what the policy does in it, its patch and its grade.

Owns: the episode, from opening the sandbox to closing it.
Does not own: tools, grading, what a grade is worth.
"""

from importlib.metadata import version
from typing import Any
from uuid import uuid4

from claw.sdk import EnvTurn, Message, Task
from claw.sdk.formats import atif
from claw.sdk.sandbox import Sandbox, SandboxError
from claw.sdk.shell import tools
from claw.sdk.shell.commands import Shell
from claw.sdk.shell.talk import Acted, Talk

from . import grade, machine, work
from .prompt import messages
from .settings import SweConfig
from .tasks import instance_of
from .tools import SweTools

NO_BLOCK = ("Nothing was run: write one ```bash block with a command. To submit, run "
            f"`echo {work.MARKER}`.")
SETUP_S = 600.0


class SweEnv:
    """Plays one instance once."""

    def __init__(self, task: Task, config: SweConfig) -> None:
        self.task, self.config = task, config
        self.instance = instance_of(task)
        self._names = tools.chosen(config.tools)
        self.tools: list[dict[str, Any]] = (
            tools.schemas(self._names) if config.talk == "tools" else [])
        self.acted: list[Acted] = []
        """by turn"""
        self.runs = 1
        """how often the patch is graded"""
        self.graded: grade.Grade | None = None
        self.name = uuid4().hex[:12]
        """of this attempt, among others at the same instance"""
        self._box: Sandbox | None = None
        self._record = atif.Record()
        self._errors = 0
        self._cost = 0.0
        self._is_submitted = False

    @property
    def box(self) -> Sandbox:
        assert self._box is not None, "start() comes first, and nothing after close()"
        return self._box

    def start(self) -> list[Message]:
        """Open the sandbox and return the problem."""
        instance, config = self.instance, self.config
        self._user = machine.user_of(instance)
        self._box = machine.opened(instance, config)
        self._set_up()
        self._base = work.base_of(self.box, instance.workdir, self._user)
        shell = Shell(self.box, user=self._user, workdir=instance.workdir,
                      env=machine.variables(instance))
        self._tools = SweTools(shell, self._names, timeout_s=config.command_timeout_s,
                               max_output=work.MAX_PATCH)
        self._talk = Talk(self._tools, config.talk, max_output=config.max_output,
                          no_block=NO_BLOCK)
        first = messages(instance, config)
        self._record.note(*first)
        return first

    def _set_up(self) -> None:
        """Do what the row asks for, and take away what an agent must not find."""
        for command in self.instance.setup:
            ran = self.box.run(["bash", "-c", command], user=self._user, timeout_s=SETUP_S,
                               cwd=self.instance.workdir)
            if ran.exit_code != 0:
                raise SandboxError(f"a set-up command of {self.instance.id!r} fails",
                                   found=f"{command[:100]}: {ran.text.strip()[-300:]}")
        if self.instance.hidden:
            self.box.run(["rm", "-rf", "--", *self.instance.hidden], user=machine.ROOT, cwd="/")

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Do what the policy said, and return what came of it; None at the end."""
        self._record.note(turn.reply, usage=turn.usage)
        results, following = self._talk.act(turn.reply)
        acted = Acted.of(results)
        self.acted.append(acted)
        self._errors = self._errors + 1 if acted.is_unreadable else 0
        if "finish" in acted.kinds:
            self._is_submitted = True
            return None
        if self._errors >= self.config.max_parse_errors or self._is_over(turn):
            return None
        self._record.note(*following)
        return following

    def _is_over(self, turn: EnvTurn) -> bool:
        """Whether a limit on steps or cost is reached."""
        config = self.config
        self._cost += (turn.usage.get("prompt_tokens", 0) * config.price_in
                       + turn.usage.get("completion_tokens", 0) * config.price_out) / 1e6
        return (0 < config.max_steps <= len(self.acted)) or (0 < config.max_cost <= self._cost)

    def work(self) -> work.Work:
        """Return the patch: what was submitted as one, else what the repository holds."""
        if not self._is_submitted and self.config.unsubmitted == "nothing":
            return work.Work(problem="nothing was submitted")
        text = work.of_text(self._tools.submission or "")
        return text or work.of_box(self.box, self.instance.workdir, self._base, self._user)

    def grade(self) -> grade.Grade:
        """Grade the patch, once; the agent acts no more after it."""
        if self.graded is None:
            made = self.work()
            self.graded = (
                grade.grade(made, self.instance, self.config) if self.runs == 1
                else grade.grade_often(made, self.instance, self.config, self.runs))
        return self.graded

    def close(self) -> None:
        """Free the sandbox, and write the trajectory where one is wanted."""
        box, self._box = self._box, None
        if box is None:
            return
        box.close()
        if self.config.trajectories:
            self._record.write(
                self.config.trajectories, task=self.task.id, attempt=self.name, agent="claw-swe",
                version=version("claw-env-swe"), tools=self.tools, extra=self._extra())

    def _extra(self) -> dict[str, Any]:
        made: dict[str, Any] = {"is_submitted": self._is_submitted}
        if self.graded is not None:
            made |= {"status": self.graded.status, "fraction": self.graded.fraction,
                     "reason": self.graded.reason}
        return made
