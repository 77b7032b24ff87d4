"""Commands in an image that has no Python: one exec of the engine each, about 60 ms instead of 2.

Owns: the exec's stream, its deadline, and the kill of what carries the command's tag.
Does not own: the container. Its process 1 is a shell loop that reaps, and ends with its input.

A command whose daemon wipes its own environment loses the tag, and lives until `sweep` or `close`.
"""

import select
import socket
import time
import uuid
from typing import Any

from claw.sdk.sandbox import engine
from claw.sdk.sandbox.agent import OOM_COUNTERS, Kept
from claw.sdk.sandbox.line import EngineChannel, LineLost, hang_up, socket_of, take_pieces, with_gap
from claw.sdk.sandbox.spec import Ran, SandboxError

LEASH = r"""
printf 'CLAW-BARE\n'
exec 3<&0 </dev/null
trap 'exit 0' TERM
while :; do
  (while read -r _; do :; done; kill -TERM 1) <&3 &
  (sleep "$CLAW_LIFETIME"; kill -TERM 1) &
  wait
done
"""
SHELL = 'command -v bash >/dev/null 2>&1 && exec bash -c "$1"; exec sh -c "$1"'
KILL = r"""
for round in 1 2 3; do for p in /proc/[0-9]*; do
  tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "CLAW_EXEC=$1" && kill -9 "${p#/proc/}"
done; done 2>/dev/null; true
"""
COUNTER = "cat " + " ".join(OOM_COUNTERS) + " 2>/dev/null"
RESCUE_S = 10.0
CHUNK = 1 << 16


class Bare:
    """`Line` for a container without the agent."""

    def __init__(self, container_id: str, user: str, leash: EngineChannel) -> None:
        self._id, self._user, self._leash = container_id, user, leash
        self._oom_kills = 0

    def run(self, request: dict[str, Any], stdin: bytes) -> Ran:
        """Run one command."""
        tag = uuid.uuid4().hex
        argv = request["argv"] or ["sh", "-c", SHELL, "sh", request["shell"]]
        env = {**request["env"], "CLAW_EXEC": tag}
        began = time.monotonic()
        call = _Exec(self._id, argv, env, request["user"], request["cwd"], stdin)
        in_time = call.watch(began + request["timeout_s"], request["max_output"])
        if not in_time:
            self._quietly(["sh", "-c", KILL, "sh", tag], request["user"])
        code = call.finish() if in_time else None
        out, err = call.kept[1], call.kept[2]
        gaps = out.left_out(), err.left_out()
        return Ran(
            code, with_gap(bytes(out.head + out.tail), gaps[0]),
            with_gap(bytes(err.head + err.tail), gaps[1]), time.monotonic() - began,
            not in_time, code != 0 and self._was_oom(), any(gaps),
        )

    def sweep(self) -> None:
        """Kill every process but the first, as each user that has some."""
        for user in {self._user, "0:0"}:
            self._quietly(["sh", "-c", "kill -9 -1"], user)

    def _was_oom(self) -> bool:
        call = self._quietly(["sh", "-c", COUNTER], "0:0")
        words = bytes(call.kept[1].head).split()
        before, self._oom_kills = self._oom_kills, (
            int(words[words.index(b"oom_kill") + 1]) if b"oom_kill" in words else 0)
        return self._oom_kills > before

    def _quietly(self, argv: list[str], user: str) -> "_Exec":
        call = _Exec(self._id, argv, {}, user, "/", b"")
        if not call.watch(time.monotonic() + RESCUE_S, CHUNK):
            raise LineLost("the engine's exec did not end")
        call.finish()
        return call

    def close(self) -> None:
        """Let go; the leash ends the container."""
        self._leash.close()


class _Exec:
    """One exec and its stream."""

    def __init__(self, container_id: str, argv: list[str], env: dict[str, str], user: str,
                 cwd: str, stdin: bytes) -> None:
        self.kept: dict[int, Kept] = {}
        self._stdin = memoryview(stdin)
        self._raw = bytearray()
        api = engine.api()
        try:
            with engine.speaking("a command"):
                self._id = api.exec_create(
                    container_id, argv, stdin=bool(stdin), environment=env, user=user,
                    workdir=cwd)["Id"]
                self._stream = api.exec_start(self._id, socket=True)
        except SandboxError as error:
            raise LineLost(str(error)) from error
        self._sock = socket_of(self._stream)

    def watch(self, end: float, max_output: int) -> bool:
        """Move bytes until the stream ends; False when `end` came first."""
        self.kept = {1: Kept(max_output), 2: Kept(max_output)}
        self._sock.setblocking(False)
        try:
            while (left := end - time.monotonic()) > 0:
                wants = [self._sock] if self._stdin else []
                readable, writable, _ = select.select([self._sock], wants, [], left)
                if writable:
                    self._feed()
                if readable and not self._take():
                    return True
            return False
        finally:
            hang_up(self._stream)

    def _feed(self) -> None:
        try:
            self._stdin = self._stdin[self._sock.send(self._stdin[:CHUNK]):]
            if not self._stdin:
                self._sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:  # nobody reads it any more
            self._stdin = self._stdin[:0]

    def _take(self) -> bool:
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._raw += data
        for kind, piece in take_pieces(self._raw):
            if kind in self.kept:
                self.kept[kind].add(piece)
        return bool(data)

    def finish(self) -> int | None:
        """Return the exit code."""
        with engine.speaking("a command"):
            code: int | None = engine.api().exec_inspect(self._id)["ExitCode"]
        return code
