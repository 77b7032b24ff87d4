"""A program of the host's own that stays inside a sandbox and answers: one request at a time.

Owns: starting it from its text, the framing of requests and answers, their deadlines.
Does not own: what is asked. The program and what it starts live as long as the sandbox does.
"""

import json
import struct
import threading
import time
from typing import Any

from claw.sdk.sandbox import engine
from claw.sdk.sandbox.container import Container
from claw.sdk.sandbox.line import EngineChannel, LineLost
from claw.sdk.sandbox.program import LOAD
from claw.sdk.sandbox.spec import Sandbox, SandboxError

FRAME = struct.Struct(">II")
"""bytes of the JSON header, bytes of the body"""
MAX_ANSWER = 64 << 20


class Conversation:
    """Python inside the image runs `text`, which must write `hello` and then answer frames."""

    def __init__(
        self, box: Sandbox, text: str, *, hello: bytes, user: str, start_s: float = 30.0
    ) -> None:
        if not isinstance(box, Container):
            raise SandboxError("a conversation needs a container", found=type(box).__name__,
                               allowed='engine = "docker"')
        program = text.encode()
        self._lock, self._is_closed = threading.Lock(), False
        end = time.monotonic() + start_s
        with engine.speaking("starting a program in a sandbox"):
            made = engine.api().exec_create(
                box.id, ["python3", "-I", "-X", "utf8", "-c", LOAD], stdin=True, user=user,
                environment={"CLAW_BYTES": str(len(program))})
            channel = EngineChannel(engine.api().exec_start(made["Id"], socket=True))
        self._channel = channel
        try:
            channel.send(program, end)
            said = channel.read(len(hello), end)
        except LineLost as error:
            channel.close()
            raise SandboxError("a program in a sandbox did not start", found=str(error)) from error
        if said != hello:
            channel.close()
            raise SandboxError("a program in a sandbox did not start", found=repr(said))

    def ask(self, header: dict[str, Any], body: bytes = b"", *,
            timeout_s: float) -> tuple[dict[str, Any], bytes]:
        """Send one request and return its answer; SandboxError when none comes in time."""
        raw = json.dumps(header).encode()
        with self._lock:
            if self._is_closed:
                raise SandboxError("the program in the sandbox is lost", found="it was let go of")
            end = time.monotonic() + timeout_s
            try:
                self._channel.send(FRAME.pack(len(raw), len(body)) + raw + body, end)
                sizes = FRAME.unpack(self._channel.read(FRAME.size, end))
                if sum(sizes) > MAX_ANSWER:
                    raise LineLost(f"an answer of {sum(sizes)} bytes")
                said, data = (self._channel.read(size, end) for size in sizes)
                answer = json.loads(said)
            except (LineLost, ValueError) as error:
                # what comes later would be taken for the answer to something else
                self.close()
                raise SandboxError("the program in the sandbox is lost",
                                   found=str(error)) from error
        return answer, data

    def close(self) -> None:
        """Let go of it; twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._channel.close()
