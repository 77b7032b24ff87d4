"""Interactive programs on a screen: tmux in the sandbox.

Owns: starting a program, keys and text to it, reading the screen, waiting for text.
Does not own: the shell's state (`commands`), which a program starts with.
"""

import re
import time

from claw.sdk.shell.commands import ENTER, Shell, as_bytes

WIDTH, HEIGHT, HISTORY = 100, 30, 2000
ID = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")
KEY = re.compile(r"(?:[CMS]-)*(?:[A-Za-z]\w*|[!-~])\Z")
DEAD = re.compile(r"^Pane is dead \(.*\)$", re.MULTILINE)
POLL_S = 0.1
STATUS_LOOKS = 5
"""at a program that has ended, until its exit code must be known; one that was killed has none"""
TMUX = ["env", "TERM=xterm-256color", "LANG=C.UTF-8", "tmux", "-u", "-L", "claw", "-f", "/dev/null"]


class ScreenError(ValueError):
    """Words for the policy: what it asked of a screen cannot be done."""


class Screens:
    """Programs by id, each on a screen of its own."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def start(self, id: str, command: str) -> None:
        """Start a program; one that runs under the same id already is ended first."""
        _check(id)
        self._tmux("kill-session", "-t", f"={id}", is_sure=False)
        # remain-on-exit comes before the program, which may end at once
        self._tmux(
            "start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";",
            "set-option", "-g", "history-limit", str(HISTORY), ";",
            "new-session", "-d", "-s", id, "-x", str(WIDTH), "-y", str(HEIGHT),
            "bash", "--noprofile", "--norc", "-c", ENTER + 'eval "$1"', "bash",
            as_bytes(command).decode(),
        )

    def send(self, id: str, text: str, keys: list[str], *, enter: bool) -> None:
        """Type text as it is, then press keys by their tmux names, then Enter."""
        _check(id)
        for key in keys:
            if not KEY.match(key):
                raise ScreenError(f"{key!r} is no key; use names such as Enter, Escape, C-c, Up")
        self._need(id)
        target = f"={id}:"
        if text:
            self._tmux("send-keys", "-t", target, "-l", "--", as_bytes(text).decode())
        pressed = [*keys, *(["Enter"] if enter else [])]
        if pressed:
            self._tmux("send-keys", "-t", target, *pressed)

    def view(self, id: str, *, wait_for: str = "", timeout_s: float = 5.0) -> str:
        """Return the screen; with `wait_for`, once it shows that text or the time is over."""
        _check(id)
        self._need(id)
        until = time.monotonic() + timeout_s
        while True:
            ended = self._ended(id)  # before the screen, which is then the last one
            screen = DEAD.sub("", self._tmux("capture-pane", "-p", "-t", f"={id}:")).rstrip()
            if not wait_for or wait_for in screen:
                return screen + ended
            if ended:
                return f"{screen}{ended}\n[{wait_for!r} did not appear]"
            if time.monotonic() >= until:
                return f"{screen}\n[{wait_for!r} did not appear in {timeout_s:g} s]"
            time.sleep(POLL_S)

    def _ended(self, id: str) -> str:
        """Return words about the program's end; nothing while it runs."""
        for _ in range(STATUS_LOOKS):
            is_dead, status, server = self._tmux(
                "display-message", "-p", "-t", f"={id}:",
                "#{pane_dead},#{pane_dead_status},#{pid}").strip().split(",")
            if is_dead != "1":
                return ""
            if status:
                return f"\n[the program has ended, exit code {status}]"
            # tmux can miss the end of a short program, and looks again when it is told of one
            self._shell.run_argv(["bash", "-c", 'kill -CHLD "$1"', "bash", server])
            time.sleep(POLL_S)
        return "\n[the program has ended, killed]"

    def _need(self, id: str) -> None:
        ran = self._shell.run_argv([*TMUX, "has-session", "-t", f"={id}"])
        if ran.exit_code != 0:
            raise ScreenError(f"no program runs under the id {id!r}; start one first")

    def _tmux(self, *words: str, is_sure: bool = True) -> str:
        ran = self._shell.run_argv([*TMUX, *words])
        if ran.exit_code != 0 and is_sure:
            raise ScreenError(f"tmux: {ran.text.strip()[:300] or ran.exit_code}")
        return ran.text


def _check(id: str) -> None:
    if not ID.match(id):
        raise ScreenError(f"{id!r} is no id; use letters, digits, - and _")
