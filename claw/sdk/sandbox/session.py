"""What every sandbox does alike: one command at a time over one line, lost or closed.

Owns: the lock, the request, and what being lost means.
Does not own: how a sandbox is opened and ended (container.py, jail.py), files (files.py).
"""

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from claw.sdk.sandbox.files import Files
from claw.sdk.sandbox.line import LineLost
from claw.sdk.sandbox.spec import MAX_OUTPUT, Ran, SandboxError, Spec

MAX_STDIN = 64 << 20
MAX_TIMEOUT_S = 7 * 86400.0


class Runs(Protocol):
    """The agent's line, or what stands in for it."""

    def run(self, request: dict[str, Any], stdin: bytes) -> Ran: ...

    def sweep(self) -> None: ...

    def close(self) -> None: ...


class Session(Files):
    """A sandbox from its opening to its end."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._lock = threading.Lock()
        self._line: Runs | None = None
        self._open()

    @abstractmethod
    def _open(self) -> None:
        """Start it and set `_line`."""

    @abstractmethod
    def _end(self) -> None:
        """Remove what was started; twice is fine."""

    def _check_user(self, user: str) -> None:
        """Refuse a user that commands cannot run as."""

    def run(
        self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
        max_output: int = MAX_OUTPUT, cwd: str = "", env: Mapping[str, str] = {}, user: str = "",
    ) -> Ran:
        """Run a fresh process; see `Sandbox.run`."""
        _check(command, timeout_s, stdin, max_output)
        self._check_user(user or self.spec.user)
        request = {
            "argv": [] if isinstance(command, str) else list(command),
            "shell": command if isinstance(command, str) else "",
            "timeout_s": timeout_s, "max_output": max_output, "cwd": cwd or self.spec.workdir,
            "env": {str(k): str(v) for k, v in env.items()}, "user": user or self.spec.user,
        }
        with self._asking() as line:
            return line.run(request, stdin)

    def sweep(self) -> None:
        """Kill what commands left behind; see `Sandbox.sweep`."""
        with self._asking() as line:
            line.sweep()

    @contextmanager
    def _asking(self) -> Iterator[Runs]:
        with self._lock:
            if self._line is None:
                raise SandboxError("the sandbox is closed", do="open another one")
            try:
                yield self._line
            except LineLost as error:
                self.close()
                raise SandboxError(
                    "the sandbox is lost", found=str(error), do="open another one; it may have "
                    "used up its memory or its lifetime, or its engine was restarted",
                ) from error
            except SandboxError:
                raise
            except BaseException:  # interrupted: an answer may be under way, for nobody
                self.close()
                raise

    def reset(self) -> None:
        """Go back to the state it was opened in: a fresh one takes this one's place."""
        self.close()
        self._open()

    def close(self) -> None:
        """End it; twice is fine."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 where: TracebackType | None) -> None:
        self.close()


def _check(command: str | Sequence[str], timeout_s: float, stdin: bytes, max_output: int) -> None:
    if not command or (isinstance(command, str) and "\0" in command):
        raise SandboxError("a command must be words without NUL", found=repr(command)[:80])
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise SandboxError("a command needs a deadline", found=f"{timeout_s} s",
                           allowed=f"more than 0, at most {MAX_TIMEOUT_S:.0f}")
    if not 0 <= max_output <= MAX_STDIN:
        raise SandboxError("max_output is out of bounds", found=str(max_output),
                           allowed=f"0 to {MAX_STDIN}: the sandbox's own memory holds it")
    if len(stdin) > MAX_STDIN:
        raise SandboxError("stdin is too long", found=f"{len(stdin)} bytes",
                           allowed=str(MAX_STDIN), do="write a file and read that")
