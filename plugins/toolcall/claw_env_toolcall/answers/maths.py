"""math-verify, asked in a process of its own.

Owns: that process: its limits, its deadline, and its end with this one.
Does not own: what it compares (`maths_process`).

sympy can think for ever about an answer that is written in five letters, and math-verify's own
deadline is an alarm signal, which works on a main thread only. A process can be killed.
"""

import asyncio
import json
import logging
import sys

log = logging.getLogger(__name__)

DEADLINE_S = 10.0
"""of one comparison; an answer that takes longer is not equal"""
START_S = 120.0
"""of the process: sympy is large"""
MAX_LINE = 1 << 16


class Maths:
    """One process, started when it is first asked. One comparison at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: asyncio.Lock | None = None

    async def equal(self, answer: str, right: str) -> bool:
        """Whether both say the same; False as well for what cannot be decided in time."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a process belongs to the loop that started it
            self._process, self._loop, self._turn = None, loop, asyncio.Lock()
        assert self._turn is not None
        async with self._turn:
            try:
                return await self._ask(answer, right)
            except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError) as error:
                log.warning("math-verify gave no answer: %r", error)
                await self._end()
                return False
            except BaseException:  # cancelled: an answer on its way would be taken for the next
                await self._end()
                raise

    async def _ask(self, answer: str, right: str) -> bool:
        process = await self._running()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps([answer, right]).encode() + b"\n")
        async with asyncio.timeout(DEADLINE_S):
            await process.stdin.drain()
            return bool(json.loads(await process.stdout.readuntil()))

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "claw_env_toolcall.answers.maths_process",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env={"PYTHONPATH": ":".join(filter(None, sys.path))},
            limit=MAX_LINE, start_new_session=True,
        )
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            await process.stdout.readuntil()  # it says that it is ready
        return process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


_maths = Maths()


async def equal(answer: str, right: str) -> bool:
    """Ask this process's math-verify."""
    return await _maths.equal(answer, right)
