"""The tools of a policy that calls tools: what they are called, what they take, what they do.

Owns: the schemas, the check of arguments, and the words of a result.
Does not own: shell, screens and files themselves.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from claw.errors import UsageError
from claw.sdk.shell import files
from claw.sdk.shell.commands import Done, Shell
from claw.sdk.shell.screen import ScreenError, Screens

MAX_CALL_S = 600.0


@dataclass(frozen=True, slots=True)
class Result:
    """What a call came to."""

    text: str
    kind: str = "ok"
    """ok, failed (a command's exit code, a refused call), timeout, oom, unreadable, finish"""
    exit_code: int | None = None


class Arguments(BaseModel):
    """Arguments are strict: what a tool does not take is said, never dropped."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Exec(Arguments):
    """Run a command in the shell and return its output. It gets no input; for programs that ask \
or draw, use shell_start."""

    command: str
    """bash; several lines are fine"""
    timeout_s: float = Field(0.0, ge=0, le=MAX_CALL_S)
    """seconds after which it is killed; 0: the usual time"""


class Start(Arguments):
    """Start an interactive program on a screen of its own, in the shell's directory."""

    id: str
    """name of the screen: letters, digits, - and _"""
    command: str
    """such as python3 or less notes.txt"""


class View(Arguments):
    """Read the screen of a program started with shell_start."""

    id: str
    """name of the screen"""
    wait_for: str = ""
    """return only when the screen shows this text, or the time is over"""
    timeout_s: float = Field(5.0, ge=0, le=60)
    """how long to wait"""


class Write(Arguments):
    """Type into a program started with shell_start, and read its screen."""

    id: str
    """name of the screen"""
    text: str = ""
    """typed as it is"""
    keys: list[str] = []
    """pressed after the text: Escape, Enter, Tab, Up, C-c, ..."""
    enter: bool = True
    """press Enter at the end"""
    wait_for: str = ""
    """wait until the screen shows this text"""


class WriteFile(Arguments):
    """Write a text file, whole."""

    content: str
    """the whole content"""
    file_path: str
    """absolute, or relative to the shell's directory"""


class ReadFile(Arguments):
    """Read lines of a text file."""

    file_path: str
    """absolute, or relative to the shell's directory"""
    first: int = Field(1, ge=1)
    """number of the first line"""
    count: int = Field(200, ge=1, le=2000)
    """how many lines"""


class EditFile(Arguments):
    """Replace a text that stands exactly once in a file."""

    file_path: str
    """absolute, or relative to the shell's directory"""
    old: str
    """the text to replace, with enough around it to be the only one"""
    new: str
    """what takes its place"""


class Finish(Arguments):
    """Say that the task is complete. Nothing can be done after it."""


SCHEMAS: dict[str, type[Arguments]] = {
    "shell_exec": Exec, "shell_start": Start, "shell_view": View, "shell_write_to_process": Write,
    "shell_write_content_to_file": WriteFile, "file_read": ReadFile, "file_edit": EditFile,
    "finish": Finish,
}


def chosen(names: tuple[str, ...]) -> list[str]:
    """Return the names of the tools to offer; none means all, and `finish` is always among them."""
    wrong = [name for name in names if name not in SCHEMAS]
    if wrong:
        raise UsageError("no such tool", found=", ".join(wrong), allowed=", ".join(SCHEMAS))
    return [name for name in SCHEMAS if not names or name in names or name == "finish"]


def schemas(names: list[str]) -> list[dict[str, Any]]:
    """Return the tools in OpenAI's shape."""
    made = []
    for name in names:
        schema = SCHEMAS[name].model_json_schema()
        about = " ".join((schema.pop("description", "")).split())
        schema.pop("title", None)
        for part in schema.get("properties", {}).values():
            part.pop("title", None)
        function = {"name": name, "description": about, "parameters": schema}
        made.append({"type": "function", "function": function})
    return made


class Tools:
    """The offered tools over one sandbox."""

    def __init__(
        self, shell: Shell, names: list[str], *, timeout_s: float, max_output: int
    ) -> None:
        """`max_output` bounds the bytes of one command's output that are kept, not those shown."""
        self.shell, self.timeout_s, self.max_output = shell, timeout_s, max_output
        self._screens, self._names = Screens(shell), names
        self._do: Mapping[str, Callable[[Any], Result]] = {
            "shell_exec": self._exec, "shell_start": self._start, "shell_view": self._view,
            "shell_write_to_process": self._write, "shell_write_content_to_file": self._write_file,
            "file_read": self._read_file, "file_edit": self._edit_file,
            "finish": lambda _: Result("finished", "finish"),
        }

    def call(self, name: str, arguments: Any) -> Result:
        """Do one call; what is wrong with it becomes words for the policy."""
        if name not in self._names:
            return Result(f"no tool {name!r}; there are: {', '.join(self._names)}", "unreadable")
        try:
            said = json.loads(arguments) if isinstance(arguments, str) else arguments
            checked = SCHEMAS[name].model_validate(said, strict=False)
        except (ValueError, RecursionError) as error:
            return Result(f"the arguments of {name} cannot be used: {_why(error)}", "unreadable")
        try:
            return self._do[name](checked)
        except (ScreenError, files.FileError) as error:
            return Result(str(error), "failed")

    def command(self, command: str, timeout_s: float = 0.0) -> Result:
        """Run a command in the shell, as `shell_exec` does."""
        limit = timeout_s or self.timeout_s
        done = self.shell.run(command, timeout_s=limit, max_output=self.max_output)
        return self.told(done, limit)

    def told(self, done: Done, limit_s: float) -> Result:
        """Return what the policy is told of a command that has ended."""
        return Result(*_told(done, limit_s), done.exit_code)

    def _exec(self, a: Exec) -> Result:
        return self.command(a.command, a.timeout_s)

    def _start(self, a: Start) -> Result:
        self._screens.start(a.id, a.command)
        return Result(self._screens.view(a.id))

    def _view(self, a: View) -> Result:
        return Result(self._screens.view(a.id, wait_for=a.wait_for, timeout_s=a.timeout_s))

    def _write(self, a: Write) -> Result:
        self._screens.send(a.id, a.text, a.keys, enter=a.enter)
        return Result(self._screens.view(a.id, wait_for=a.wait_for))

    def _write_file(self, a: WriteFile) -> Result:
        return Result(files.write(self.shell, a.file_path, a.content))

    def _read_file(self, a: ReadFile) -> Result:
        return Result(files.read(self.shell, a.file_path, first=a.first, count=a.count))

    def _edit_file(self, a: EditFile) -> Result:
        return Result(files.edit(self.shell, a.file_path, a.old, a.new))


def _told(done: Done, limit_s: float) -> tuple[str, str]:
    text = done.text.rstrip("\n")
    if done.timed_out:
        return f"{text}\n[killed: it did not end within {limit_s:g} s]".lstrip("\n"), "timeout"
    if done.out_of_memory:
        return f"{text}\n[killed: out of memory]".lstrip("\n"), "oom"
    kind = "ok" if done.is_good else "failed"
    return f"{text}\n[exit code {done.exit_code}]".lstrip("\n"), kind


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        parts = [f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}"
                 for e in error.errors(include_url=False, include_input=False)]
        return "; ".join(parts[:5])
    return str(error)[:200]
