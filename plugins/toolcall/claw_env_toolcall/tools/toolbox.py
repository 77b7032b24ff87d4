"""The tools of one episode, and calls of them.

Owns: checks before a call, deadlines, that calls run at once, and what the policy reads of it all.
Does not own: what a tool does, how calls were written (`calls`).
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from claw.sdk import UsageError, nearest

from ..calls import Call
from .arguments import problem
from .tool import Source, Tool, ToolError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    calls: int
    """of one episode"""
    chars: int
    """of one observation"""
    call_s: float
    total_s: float
    """seconds that the calls of one episode may take, those that run at once counted once; no call
    begins later"""


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of one call."""

    call: Call
    text: str
    error: str = ""
    """the failure in a word: unknown_tool, broken_call, wrong_arguments, exception, ..."""
    hint: str = ""
    """what to do differently, in our own words: nothing of a tool's output is in it"""


class Toolbox:
    """`await open()` before use, `await close()` at the end."""

    def __init__(self, sources: Sequence[Source], limits: Limits) -> None:
        self._sources, self._limits = sources, limits
        self._opened: list[Source] = []
        self.tools: dict[str, Tool] = {}
        self.num_calls, self.seconds = 0, 0.0

    async def open(self) -> None:
        """Open every source; two tools of one name are an error."""
        self._opened = list(self._sources)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(source.open()) for source in self._sources]
        for tool in (tool for task in tasks for tool in task.result()):
            if tool.name in self.tools:
                raise UsageError(f"two tools are named {tool.name!r}", do="leave one source out")
            self.tools[tool.name] = tool

    async def close(self) -> None:
        """Close what was opened; one that fails keeps no other from it."""
        opened, self._opened = self._opened, []
        for done in await asyncio.gather(*(s.close() for s in opened), return_exceptions=True):
            if isinstance(done, BaseException):
                log.warning("a source of tools did not close: %r", done)

    async def run(self, calls: Sequence[Call]) -> list[Observation]:
        """Run the calls of one reply at once; every one gets an observation."""
        started = time.monotonic()
        try:
            return list(await asyncio.gather(*(self._one(call) for call in calls)))
        finally:
            self.seconds += time.monotonic() - started

    async def _one(self, call: Call) -> Observation:
        self.num_calls += 1
        left_s = self._limits.total_s - self.seconds
        if self.num_calls > self._limits.calls or left_s <= 0:
            spent = "calls" if left_s > 0 else "time"
            return _failed(call, "budget", f"no {spent} left for tools",
                           "The tools are used up. Give the final answer now.")
        if refusal := self._refusal(call):
            return refusal
        tool, seconds = self.tools[call.name], self._limits.call_s
        try:
            async with asyncio.timeout(seconds + tool.grace_s):
                text = await tool.call(call.arguments or {})
        except TimeoutError:
            return _failed(call, "deadline", f"no result within {seconds:.3g} seconds",
                           f"The call of {call.name} took too long. Ask for less at once.")
        except ToolError as error:
            return self._raised(call, str(error) or error.kind, error.kind)
        except Exception as error:  # a tool is anybody's code; what it raises is the policy's news
            return self._raised(call, f"{type(error).__name__}: {error}", "exception")
        return Observation(call, cut(clean(text), self._limits.chars))

    def _raised(self, call: Call, text: str, kind: str) -> Observation:
        hint = f"The call of {call.name} failed. Read the error and write the call differently."
        return _failed(call, kind, cut(clean(text), self._limits.chars), hint)

    def _refusal(self, call: Call) -> Observation | None:
        if call.problem:
            hint = ("Write a tool call as one JSON object with the keys name and arguments, "
                    "between <tool_call> and </tool_call>.")
            return _failed(call, "broken_call", call.problem, hint)
        tool = self.tools.get(call.name)
        names = ", ".join(self.tools) or "none"
        if tool is None:
            guess = nearest(call.name, list(self.tools))
            text = f"there is no tool {call.name[:100]!r}; {guess or f'the tools are: {names}'}"
            return _failed(call, "unknown_tool", text, f"Call one of these tools: {names}.")
        if wrong := problem(tool.parameters, call.arguments):
            needed = ", ".join(tool.parameters.get("properties", {})) or "none"
            hint = f"The tool {tool.name} takes these arguments: {needed}."
            return _failed(call, "wrong_arguments", f"wrong arguments: {wrong}", hint)
        return None


def cut(text: str, chars: int) -> str:
    """Return at most about `chars` characters: head and tail, and how much is missing."""
    if len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def clean(text: str) -> str:
    """Replace lone surrogates, which no tokenizer and no wire takes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _failed(call: Call, kind: str, text: str, hint: str) -> Observation:
    return Observation(call, f"error: {clean(text)}", kind, hint)
