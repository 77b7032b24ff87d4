"""v0: one episode, driven by the package: its rollout asks a client, and the client is us.

Owns: turning a rollout that asks for replies into an environment that is told replies.
Does not own: the rows (`legacy`).
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from claw.records import Message
from claw.sdk.adapters.checker import Score
from claw.sdk.adapters.verifiers import loop, messages
from claw.sdk.env import EnvTurn


class LegacyEnv:
    """One attempt at a row of a v0 environment."""

    def __init__(self, vf: Any, environment: Any, row: dict[str, Any]) -> None:
        self.tools: list[dict[str, Any]] = []
        self._rollout = Driven(vf, environment, row)

    async def start(self) -> list[Message]:
        """Return what the rollout asks first."""
        first = await loop.shared().run(self._rollout.open())
        self.tools = self._rollout.tools
        return first

    async def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Return what the package adds before it asks again; None when its rollout has ended."""
        following = await loop.shared().run(self._rollout.hear(turn))
        self.tools = self._rollout.tools
        return following

    async def score(self) -> Score:
        """Return the weighted sum of the rubric's reward functions."""
        return await loop.shared().run(self._rollout.score())

    async def close(self) -> None:
        """End the rollout; its own clean-up runs."""
        await loop.shared().run(self._rollout.close())


@dataclass(eq=False)
class Asked:
    """One question of the rollout to its client."""

    messages: list[Message]
    tools: list[dict[str, Any]]
    answer: "asyncio.Future[Any]"


class Driven:
    """A rollout on the verifiers loop that goes on when it is answered."""

    def __init__(self, vf: Any, environment: Any, row: dict[str, Any]) -> None:
        self._vf, self._environment, self._row = vf, environment, row
        self._types = import_module(f"{vf.__name__}.types")
        self._asks: asyncio.Queue[Asked | None] = asyncio.Queue()
        """questions; None says that the rollout has ended"""
        self._rollout: asyncio.Task[Any] | None = None
        self._asked: Asked | None = None
        self._scored: Score | None = None
        self.tools: list[dict[str, Any]] = []

    async def open(self) -> list[Message]:
        self._rollout = asyncio.create_task(self._run())
        asked = await self._next()
        if asked is None:
            state = self._rollout.result()
            raise RuntimeError(f"the rollout ended before it asked anything: {state['error']!r}")
        return asked.messages

    async def hear(self, turn: EnvTurn) -> list[Message] | None:
        before = self._asked
        assert before is not None, "a reply answers a question"
        if not before.answer.done():  # else the rollout's own time ended while the policy spoke
            before.answer.set_result(self._response(turn))
        asked = await self._next()
        if asked is None:
            return None
        known = [*before.messages, turn.reply]
        goes_on = len(asked.messages) > len(known) and all(
            messages.same(a, b) for a, b in zip(known, asked.messages, strict=False)
        )
        if not goes_on:
            raise ValueError("the package rewrote its conversation; only one that grows is played")
        return asked.messages[len(known):]

    async def score(self) -> Score:
        if self._scored is not None:
            return self._scored
        assert self._rollout is not None, "an episode is scored after its start"
        if self._asked is not None:  # claw ended it: a limit of turns or of the context
            if not self._asked.answer.done():
                over = self._vf.OverlongPromptError("the episode was ended")
                self._asked.answer.set_exception(over)
            if await self._next() is not None:
                raise RuntimeError("the rollout goes on after its end")
        state = self._rollout.result()
        if state.get("error") is not None:
            raise RuntimeError(f"the rollout failed: {state['error']!r}")
        rubric = self._environment.rubric
        await rubric.score_rollout(state)
        await rubric.cleanup(state)
        parts = {name: float(value) for name, value in (state["metrics"] or {}).items()}
        self._scored = Score(float(state["reward"]), parts)
        return self._scored

    async def close(self) -> None:
        if self._rollout is None or self._rollout.done():
            return
        self._rollout.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._rollout

    # --- the rollout and its client ----------------------------------------------------------

    async def _run(self) -> Any:
        client = _client(self._vf)(self._ask)
        try:
            return await self._environment.rollout(self._row, client, "claw-policy", {})
        finally:
            self._asks.put_nowait(None)

    async def _ask(self, prompt: Any, tools: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked = Asked(messages.plain(prompt), [_tool(t) for t in tools or ()], answer)
        self._asks.put_nowait(asked)
        return await answer

    async def _next(self) -> Asked | None:
        self._asked = await self._asks.get()
        if self._asked is not None:
            self.tools = self._asked.tools
        elif self._rollout is not None:
            await asyncio.wait([self._rollout])
            self._rollout.result()  # what it raised is the episode's failure
        return self._asked

    def _response(self, turn: EnvTurn) -> Any:
        typed = self._types
        calls = [typed.ToolCall(**call) for call in messages.calls_of(turn.reply)]
        finish = str(turn.finish_reason)
        message = typed.ResponseMessage(
            content=turn.reply.get("content"), tool_calls=calls or None,
            reasoning_content=turn.reply.get("reasoning_content"),
            finish_reason=finish if finish in ("stop", "length", "tool_calls") else "stop",
            is_truncated=finish == "length",
        )
        used = {k: turn.usage.get(k, 0) for k in ("prompt_tokens", "completion_tokens")}
        usage = typed.Usage(**used, reasoning_tokens=0, total_tokens=sum(used.values()))
        return typed.Response(
            id=f"claw-{turn.index}", created=int(time.time()), model="claw-policy", usage=usage,
            message=message,
        )


def _tool(tool: Any) -> dict[str, Any]:
    return messages.tool(tool.name, tool.description, tool.parameters)


def _client(vf: Any) -> Any:
    """The client class of a rollout: it passes each question on."""
    base: Any = import_module(f"{vf.__name__}.clients").Client

    class Asking(base):  # type: ignore[misc]
        def __init__(self, ask: Any) -> None:
            super().__init__(None)
            self._ask = ask

        async def get_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **rest: Any
        ) -> Any:
            if sampling_args:
                raise ValueError(f"the package wants its own sampling: {sampling_args}")
            return await self._ask(prompt, tools)

        async def close(self) -> None:
            """Nothing is held."""

        def _unused(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("questions do not become an endpoint's own here")

        setup_client = to_native_tool = to_native_prompt = _unused
        get_native_response = raise_from_native_response = from_native_response = _unused

    return Asking
