"""Setting up: the steps before the policy acts, and those before its work is looked at.

Owns: what each kind of step does to a machine, how long it may take, and failing when an
application that was started is not there any more.
Does not own: the machine, which kinds run where (`support`).
"""

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..actions import Unreadable
from ..machine import Failed, Machine, Window
from ..spaces import gui_source
from . import files
from .task import DesktopTask, Step

WINDOW_S = 45.0
"""how long an application may take to show its window"""
OPENERS = {
    ".txt": "mousepad", ".md": "mousepad", ".csv": "mousepad", ".log": "mousepad",
    ".py": "mousepad", ".json": "mousepad",
    ".ini": "mousepad", ".cfg": "mousepad", ".xlsx": "gnumeric",
    ".xls": "gnumeric", ".ods": "gnumeric", ".gnumeric": "gnumeric", ".html": "chromium",
    ".htm": "chromium", ".pdf": "chromium", ".png": "chromium", ".jpg": "chromium",
    ".svg": "chromium",
}
"""what a file opens with in the desktop image"""


class SetupError(Exception):
    """A step that failed: the task could not be put before the policy."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a step needs to know."""

    machine: Machine
    task: DesktopTask
    step_s: float
    """what one step may take"""
    cache: Path | None = None


def run(stage: Stage, steps: tuple[Step, ...]) -> None:
    """Do the steps in order; SetupError names the one that failed."""
    for at, step in enumerate(steps):
        began = len(stage.machine.ended)
        where = f"step {at} ({step.kind}) of task {stage.task.id!r}"
        try:
            DO[step.kind](stage, step.args)
        except (Failed, SetupError, Unreadable) as error:
            raise SetupError(f"{where}: {error}") from error
        for ended in stage.machine.ended[began:]:
            if ended.code != 0:
                raise SetupError(f"{where}: {ended.name!r} ended with {ended.code}")


def substituted(word: str, machine: Machine) -> str:
    """Fill in what OSWorld's commands leave open."""
    width, height = machine.size
    for name, value in {"SCREEN_WIDTH_HALF": width // 2, "SCREEN_HEIGHT_HALF": height // 2,
                        "SCREEN_WIDTH": width, "SCREEN_HEIGHT": height,
                        "CLIENT_PASSWORD": "password"}.items():
        word = word.replace("{" + name + "}", str(value))
    return word


def command_of(args: Mapping[str, Any], machine: Machine) -> str | list[str]:
    """Return a command: text for a shell, or its words."""
    command = args.get("command")
    if isinstance(command, str) and command:
        text = substituted(command, machine)
        return text if args.get("shell") else shlex.split(text)
    if isinstance(command, list) and command:
        words = [substituted(str(word), machine) for word in command]
        return " ".join(words) if args.get("shell") else words
    raise SetupError(f"a command must be text or words, not {command!r}"[:200])


def execute(stage: Stage, args: Mapping[str, Any]) -> None:
    """Run a command and wait for it; what it prints and how it ends is its own matter."""
    command = command_of(args, stage.machine)
    if (source := _source_of(command)) is not None:
        for action in source:
            stage.machine.do(action)
        stage.machine.settle()
        return
    ran = stage.machine.run(command, timeout_s=stage.step_s)
    if ran.timed_out:
        raise SetupError(f"{str(command)[:120]!r} took longer than {stage.step_s:g} s")
    if ran.exit_code in (126, 127):
        raise SetupError(f"{str(command)[:120]!r} cannot be run: {ran.text.strip()[:200]}")


def _source_of(command: str | list[str]) -> list[Any] | None:
    """Return the actions of `python -c "import pyautogui; ..."`: the image has no such module."""
    if not isinstance(command, list) or len(command) != 3:
        return None
    program, flag, source = command
    if program.rsplit("/", 1)[-1] not in ("python", "python3") or flag != "-c":
        return None
    return gui_source.parse(source) if "pyautogui" in source else None


def _launch(stage: Stage, args: Mapping[str, Any]) -> None:
    command = command_of(args, stage.machine)
    _start(stage, ["sh", "-c", command] if isinstance(command, str) else command)


def _start(stage: Stage, argv: list[str]) -> None:
    """Start an application; wait for its window, and for what moves in it."""
    before = {window.id for window in stage.machine.windows()}
    began = len(stage.machine.ended)
    stage.machine.launch(argv)
    end = time.monotonic() + min(WINDOW_S, stage.step_s)
    while {window.id for window in stage.machine.windows()} <= before:
        codes = [ended.code for ended in stage.machine.ended[began:]]
        if any(codes):
            raise SetupError(f"{argv[0]!r} ended with {codes[0]}")
        if codes or time.monotonic() > end:  # it opened in a window that was there, or shows none
            break
        time.sleep(0.05)
    stage.machine.settle()


def _open(stage: Stage, args: Mapping[str, Any]) -> None:
    path = str(args.get("path") or "")
    opener = getattr(stage.machine, "open", None)
    if opener is not None:
        opener(path)
        stage.machine.settle()
        return
    if stage.machine.run(["test", "-d", path]).exit_code == 0:
        return _start(stage, ["thunar", path])
    if stage.machine.run(["test", "-f", path]).exit_code != 0:
        raise SetupError(f"there is no {path!r} to open")
    program = OPENERS.get(Path(path).suffix.lower())
    if program is None:
        raise SetupError(f"nothing in the desktop image opens {Path(path).suffix!r}")
    _start(stage, [program, path])


def _download(stage: Stage, args: Mapping[str, Any]) -> None:
    for file in args.get("files") or ():
        data = files.content(stage.task, str(file["url"]), stage.cache)
        stage.machine.write(str(file["path"]), data)


def window_named(machine: Machine, name: str, *, is_strict: bool = False) -> Window | None:
    """Return the uppermost window of that title, or of a title or program that holds the name."""
    for window in reversed(machine.windows()):
        if window.title == name or (not is_strict and (
                name.lower() in window.title.lower()
                or any(name.lower() in kind.lower() for kind in window.kind))):
            return window
    return None


def _window(act: str) -> Callable[[Stage, Mapping[str, Any]], None]:
    def do(stage: Stage, args: Mapping[str, Any]) -> None:
        name, is_strict = str(args.get("window_name") or ""), bool(args.get("strict"))
        end = time.monotonic() + min(WINDOW_S, stage.step_s)
        while (window := window_named(stage.machine, name, is_strict=is_strict)) is None:
            if time.monotonic() > end:
                raise SetupError(f"there is no window {name!r}")
            time.sleep(0.1)
        getattr(stage.machine, act)(window)
        stage.machine.settle()
    return do


def _open_tabs(stage: Stage, args: Mapping[str, Any]) -> None:
    _start(stage, ["chromium", *(str(url) for url in args.get("urls_to_open") or ())])


def _close_tabs(stage: Stage, args: Mapping[str, Any]) -> None:
    """Close the tabs whose addresses are named: one after another, by the keyboard."""
    from ..actions import Action

    for _ in args.get("urls_to_close") or ():
        if window := window_named(stage.machine, "chromium"):
            stage.machine.activate(window)
            stage.machine.do(Action("keys", {"names": ["Control_L", "w"]}))
            stage.machine.settle()


def _sleep(stage: Stage, args: Mapping[str, Any]) -> None:
    """Wait for quiet instead of a time that was right on another machine, but never longer."""
    seconds = float(args.get("seconds") or 0)
    stage.machine.settle(still_s=min(0.5, seconds), limit_s=min(seconds, stage.step_s))


DO: dict[str, Callable[[Stage, Mapping[str, Any]], None]] = {
    "download": _download, "launch": _launch, "open": _open, "execute": execute, "command": execute,
    "activate_window": _window("activate"), "close_window": _window("close_window"),
    "sleep": _sleep, "chrome_open_tabs": _open_tabs, "chrome_close_tabs": _close_tabs,
}
