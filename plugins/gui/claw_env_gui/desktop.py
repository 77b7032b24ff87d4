"""A desktop in a container of one's own.

Owns: opening and ending it, its screen, its windows, its files, doing actions on it.
Does not own: what runs inside (`desk`), what a task wants on it (`osworld`).
"""

import inspect
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from claw.sdk.sandbox import Ran, Sandbox, SandboxError, Spec, open_sandbox
from claw.sdk.sandbox.conversation import Conversation

from . import desk, tree
from .actions import WAIT, Action
from .machine import Ended, Failed, Window

IMAGE = "claw/desktop:bookworm"
HOME = "/home/user"
USER = "1000:1000"
START_S = 60.0
ASK_S = 60.0
"""far more than any answer takes; the machine may be busy with others"""


class Desktop:
    """The `Machine` that is a container."""

    is_remote = False

    def __init__(
        self, *, image: str = IMAGE, size: tuple[int, int] = (1280, 800), memory_mb: int = 1536,
        cpus: float = 2.0, lifetime_s: float = 3600.0, runtime: str = "",
    ) -> None:
        self.size = size
        self.ended: list[Ended] = []
        """applications that were started here and have ended, in order"""
        self._box: Sandbox | None = None
        self._talk: Conversation | None = None
        self._env: dict[str, str] = {}
        spec = Spec(image=image, memory_mb=memory_mb, cpus=cpus, pids=512, user=USER, workdir=HOME,
                    tmpfs_mb=min(256, memory_mb // 4), lifetime_s=lifetime_s, runtime=runtime)
        try:
            self._box = open_sandbox(spec)
        except SandboxError as error:
            if image == IMAGE and "no such image" in str(error):
                raise SandboxError("there is no desktop image", found=image,
                                   do="make desktop, or from a checkout of claw: tools/desktop.sh",
                                   ) from error
            raise
        try:
            self._talk = Conversation(self._box, _program(size), hello=desk.HELLO, user=USER,
                                      start_s=START_S)
            self._env = json.loads(self._box.read(f"{desk.RUN}/env"))
        except BaseException:
            self.close()
            raise

    @property
    def box(self) -> Sandbox:
        if self._box is None:
            raise SandboxError("the desktop is closed")
        return self._box

    def _ask(self, op: str, *, timeout_s: float = ASK_S, **args: Any) -> Any:
        if self._talk is None:
            raise SandboxError("the desktop is closed")
        answer, body = self._talk.ask({"op": op, **args}, timeout_s=timeout_s)
        self.ended += [Ended(str(e["name"]), int(e["code"])) for e in answer.get("ended", ())]
        if not answer.get("ok"):
            raise Failed(str(answer.get("why")))
        return body or answer.get("value")

    # --- seeing -------------------------------------------------------------------------------

    def screenshot(self) -> bytes:
        """Return the screen with its pointer, as PNG."""
        picture: bytes = self._ask("picture")
        return picture

    def nodes(self) -> list[tree.Node]:
        """Return what applications say of themselves; empty when they say nothing in time."""
        said = self._ask("tree") or {"apps": []}
        return [tree.of_desk(app) for app in said["apps"]]

    def windows(self) -> list[Window]:
        """Return the windows, the lowest first."""
        return [Window(w["id"], w["title"], tuple(w["class"]), tuple(w["box"]), w["active"])
                for w in self._ask("state")["windows"]]

    def pointer(self) -> tuple[int, int]:
        x, y = self._ask("state")["pointer"]
        return x, y

    def clipboard(self) -> str:
        return str(self._ask("clipboard"))

    def settle(self, still_s: float = 0.25, limit_s: float = 2.0) -> bool:
        """Wait until nothing moves; False when something still does at the end."""
        return bool(self._ask("settle", still_s=still_s, limit_s=limit_s,
                              timeout_s=limit_s + ASK_S))

    # --- acting -------------------------------------------------------------------------------

    def do(self, action: Action) -> None:
        """Do one action; Failed says why it cannot be done."""
        args = dict(action.args)
        if action.is_end:
            return
        if action.kind == WAIT:
            time.sleep(args.get("seconds", 1.0))
        elif action.kind in ("move_by", "drag_by"):
            x, y = self.pointer()
            moved = {"x": x + args.pop("dx"), "y": y + args.pop("dy")}
            self._ask(action.kind.removesuffix("_by"), **moved, **args)
        else:
            self._ask(action.kind, **args)

    def launch(self, argv: Sequence[str]) -> None:
        """Start an application in the session."""
        self._ask("launch", argv=list(argv), cwd=HOME)

    def activate(self, window: Window) -> None:
        self._ask("window", id=window.id, what="activate")

    def close_window(self, window: Window) -> None:
        self._ask("window", id=window.id, what="close")

    # --- files and commands ---------------------------------------------------------------------

    def run(self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
            env: Mapping[str, str] = {}) -> Ran:
        """Run a command as the person at the desktop."""
        return self.box.run(command, timeout_s=timeout_s, stdin=stdin, cwd=HOME,
                            env={**self._env, **env})

    def read(self, path: str, *, max_bytes: int = 16 << 20) -> bytes | None:
        """Return a file, None where there is none."""
        try:
            return self.box.read(path, max_bytes=max_bytes)
        except SandboxError as error:
            if "No such file" in str(error) or "Is a directory" in str(error):
                return None
            raise

    def write(self, path: str, data: bytes) -> None:
        self.box.write(path, data)

    def close(self) -> None:
        """End it; twice is fine."""
        box, self._box = self._box, None
        if box is None:
            return
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.close()
        box.close()


@cache
def _text() -> str:
    return inspect.getsource(desk)


def _program(size: tuple[int, int]) -> str:
    settings = {"size": list(size), "home": HOME, "start_s": START_S}
    return f"{_text()}\nmain({settings!r})\n"
