"""The tool `python`: an interpreter in a sandbox, whose variables live as long as the episode.

Owns: the sandbox of an episode, starting the interpreter in it and starting it again.
Does not own: what runs inside (`sandboxed.interpreter`), the sandbox's own limits.
"""

import asyncio
from pathlib import Path

from claw.sdk.sandbox import Ran, Sandbox, SandboxError, Spec, open_sandbox

from ..settings import ToolcallConfig
from .sandboxed import interpreter
from .threads import on_thread
from .tool import Arguments, Tool, ToolError

PROGRAM, SOCKET = "/tmp/.claw/interpreter.py", "/tmp/.claw/socket"
START_S = 30.0
MAX_OUTPUT = 1 << 16
"""bytes that leave the sandbox; an observation is shorter still"""
GRACE_S = interpreter.GRACE_S + 15.0
RESTARTED = "(the interpreter was started anew: earlier variables are gone)"
DESCRIPTION = (
    "Run Python code. Variables, functions and imports stay for the next call. "
    "What is printed comes back, and the value of a last expression."
)
PARAMETERS = {
    "type": "object", "additionalProperties": False, "required": ["code"],
    "properties": {"code": {"type": "string", "description": "Python source"}},
}


def check(config: ToolcallConfig) -> None:
    """Open a sandbox and close it: SandboxError, which says what to do, where there can be none."""
    open_sandbox(_spec(config)).close()


class Python:
    """A source of one tool. Calls of one episode run one after the other: they share variables."""

    def __init__(self, config: ToolcallConfig) -> None:
        self._spec = _spec(config)
        self._call_s = config.call_s
        self._turn = asyncio.Lock()
        self._box: Sandbox | None = None
        self._num_starts = 0
        self._is_alive = False

    async def open(self) -> list[Tool]:
        """Open the sandbox; it waits with no interpreter until the first call."""
        self._box = await on_thread(open_sandbox, self._spec)
        return [Tool("python", DESCRIPTION, PARAMETERS, self._call, GRACE_S)]

    async def close(self) -> None:
        """Close the sandbox, also while code is running in it."""
        box, self._box = self._box, None
        if box is not None:
            await on_thread(box.close)

    async def _call(self, arguments: Arguments) -> str:
        async with self._turn:
            if self._box is None:
                raise ToolError("the sandbox is gone", "sandbox")
            try:
                return await self._run(self._box, str(arguments["code"]))
            except SandboxError as error:
                self._is_alive = False
                raise ToolError(f"the sandbox failed: {error.what}", "sandbox") from error
            except asyncio.CancelledError:
                await self.close()  # a thread may still be using it: nobody else may
                raise

    async def _run(self, box: Sandbox, code: str) -> str:
        note = await self._started(box)
        ran = await on_thread(
            box.run, ["python3", "-I", PROGRAM, "run", SOCKET, str(self._call_s)],
            timeout_s=self._call_s + interpreter.GRACE_S + 3.0, max_output=MAX_OUTPUT,
            stdin=code.encode("utf-8", "replace")[: interpreter.MAX_CODE],
        )
        self._is_alive = ran.exit_code in (0, interpreter.FAILED, interpreter.LATE)
        text = "\n".join(filter(None, [note, ran.text.rstrip("\n")]))
        if ran.exit_code == 0:
            return text or "(nothing was printed)"
        raise self._failed(ran, text)

    def _failed(self, ran: Ran, text: str) -> ToolError:
        seconds = f"{self._call_s:g} seconds"
        if ran.exit_code == interpreter.FAILED:
            return ToolError(text or "the code failed")
        if ran.out_of_memory:
            said, kind = "out of memory; variables are gone", "out_of_memory"
        elif ran.exit_code == interpreter.LATE:
            said, kind = f"interrupted after {seconds}; variables are kept", "deadline"
        elif ran.exit_code == interpreter.KILLED or ran.timed_out:
            said, kind = f"killed after {seconds}; variables are gone", "deadline"
        else:
            said, kind = "the interpreter ended; variables are gone", "gone"
        return ToolError("\n".join(filter(None, [text, f"({said})"])), kind)

    async def _started(self, box: Sandbox) -> str:
        """Make sure that an interpreter runs; return what the policy must know about it."""
        if self._is_alive:
            return ""
        source = Path(interpreter.__file__).read_bytes()
        await on_thread(box.write, PROGRAM, source)
        ran = await on_thread(
            box.run, ["python3", "-I", PROGRAM, "serve", SOCKET], timeout_s=START_S
        )
        if ran.exit_code != 0:
            raise ToolError(f"the interpreter does not start: {ran.text[:300]}", "sandbox")
        self._num_starts, self._is_alive = self._num_starts + 1, True
        return RESTARTED if self._num_starts > 1 else ""


def _spec(config: ToolcallConfig) -> Spec:
    return Spec(image=config.python.image, memory_mb=config.python.memory_mb)
