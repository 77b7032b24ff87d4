"""The process an engine runs in: its own group, its own words, and its end.

Owns: starting it, the end of its log, why it died, killing all of it.
Does not own: what is said to it (hosted).

Engines kill their whole process tree when a part of them fails, so theirs is a session of its own;
and they say why only in their log, so its last lines are kept.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

from claw.errors import ClawError

KEPT_LINES = 200
TOLD_LINES = 12
_LAST_WORDS = re.compile(r"^(?:.*?\s)?((?:[A-Za-z_]+\.)*[A-Z]\w*(?:Error|Exception): .*)$")


class Child:
    """One process below this one, and all that it starts."""

    def __init__(self, python: str, module: str, spec: Path, env: dict[str, str]) -> None:
        command = [python, "-m", module, "--spec", str(spec)]
        try:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env={**os.environ, **env}, start_new_session=True,
            )
        except OSError as error:
            raise ClawError(
                "the engine's python cannot be started", found=f"{python}: {error.strerror}",
                do="make its environment (see `claw doctor`) and name it in sglang.python",
            ) from error
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader = threading.Thread(target=self._read, name="engine log", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None, "made with a pipe"
        for raw in self.popen.stdout:
            line = raw.decode("utf-8", "replace").rstrip()
            self._lines.append(line)
            print(line, file=sys.stderr, flush=True)

    def has_died(self) -> bool:
        return self.popen.poll() is not None

    def last_words(self) -> str:
        """The exit code, the last error in its log, and the lines before its end."""
        self._reader.join(2.0)
        lines = [line for line in self._lines if line.strip()]
        errors = [found[1] for line in lines if (found := _LAST_WORDS.match(line))]
        said = [f"exit code {self.popen.poll()}"]
        said += [f"its last error: {errors[-1]}"] if errors else []
        return "\n".join([*said, *lines[-TOLD_LINES:]])

    def kill(self, grace_s: float = 0.0) -> None:
        """End it and everything it started; politely first when there is time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if grace_s:
                self.popen.wait(grace_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(5.0)
