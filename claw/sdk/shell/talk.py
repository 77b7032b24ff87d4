"""How a policy asks for something to be done: a fenced block of bash, or tool calls.

Owns: from one reply to results and the messages that tell them.
Does not own: what is done (`tools`), when an episode is over (the environment).
"""

import re
from dataclasses import dataclass
from typing import Literal

from claw.records import Message
from claw.sdk.clip import clip
from claw.sdk.shell.tools import Result, Tools

FENCE = re.compile(r"```(?:bash|sh|shell|console)?[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
NO_CALL = "Nothing was done: that is no tool call. Call one of the tools, or finish."
Way = Literal["fence", "tools"]


@dataclass(frozen=True, slots=True)
class Acted:
    """What one turn of the policy came to."""

    kinds: tuple[str, ...]
    """of each result, as in `tools.Result`"""
    exit_codes: tuple[int | None, ...] = ()

    @classmethod
    def of(cls, results: list[Result]) -> "Acted":
        return cls(tuple(r.kind for r in results), tuple(r.exit_code for r in results))

    @property
    def is_unreadable(self) -> bool:
        """Whether the reply was no action at all."""
        return set(self.kinds) == {"unreadable"}


class Talk:
    """Reads replies, and has done what they ask for."""

    def __init__(
        self, tools: Tools, way: Way, *, max_output: int, no_block: str,
        done: re.Pattern[str] | None = None,
    ) -> None:
        """`no_block` is said to a reply without a block; one in which `done` is found finishes."""
        self._tools, self._way, self._max_output = tools, way, max_output
        self._no_block, self._done = no_block, done

    def act(self, reply: Message) -> tuple[list[Result], list[Message]]:
        """Return what came of a reply, and the messages that say so."""
        return self._called(reply) if self._way == "tools" else self._fenced(reply)

    def _fenced(self, reply: Message) -> tuple[list[Result], list[Message]]:
        text = str(reply.get("content") or "")
        match = FENCE.search(text)
        if match is not None and match[1].strip():
            result = self._tools.command(match[1])
        elif self._done is not None and self._done.search(text):
            result = Result("", "finish")
        else:
            result = Result(self._no_block, "unreadable")
        return [result], [{"role": "user", "content": self._short(result.text)}]

    def _called(self, reply: Message) -> tuple[list[Result], list[Message]]:
        calls = reply.get("tool_calls") or []
        if not calls:
            if "<tool_call>" not in str(reply.get("content") or ""):
                return [Result("", "finish")], []
            return [Result(NO_CALL, "unreadable")], [{"role": "user", "content": NO_CALL}]
        results: list[Result] = []
        following: list[Message] = []
        for call in calls:
            function = call.get("function") or {}
            result = self._tools.call(str(function.get("name")), function.get("arguments"))
            results.append(result)
            following.append({"role": "tool", "tool_call_id": str(call.get("id") or ""),
                              "content": self._short(result.text)})
            if result.kind == "finish":
                break
        return results, following

    def _short(self, text: str) -> str:
        return clip(text, self._max_output)
