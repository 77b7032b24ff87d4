"""v1: one episode of a row: its setup, its tools, its stops, its rewards.

Owns: the conversation that verifiers' plain chat harness would hold, and the package's trace of it.
Does not own: the row (`tasksets`), tool servers (`tools`).
"""

import asyncio
import time
from collections.abc import Awaitable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from claw.records import Message, Task
from claw.sdk.adapters.checker import Score
from claw.sdk.adapters.verifiers import loop, messages
from claw.sdk.adapters.verifiers.tools import Servers, answer
from claw.sdk.env import EnvTurn

if TYPE_CHECKING:
    from claw.sdk.adapters.verifiers.tasksets import TasksetPackage

POLICY = "claw-policy"
_opening = asyncio.Lock()
"""of a taskset's shared servers; waited for on the verifiers loop only"""


class TasksetEnv:
    """One attempt at a row of a taskset."""

    def __init__(self, package: "TasksetPackage", task: Task) -> None:
        self.tools: list[dict[str, Any]] = []
        self._rollout = Rollout(package, task)

    async def start(self) -> list[Message]:
        """Set the task up and return its prompt."""
        first = await loop.shared().run(self._rollout.open())
        self.tools = self._rollout.tools
        return first

    async def reply(self, turn: EnvTurn) -> list[Message] | None:
        """Return what the called tools say; None when no tool was called, or the task stops."""
        return await loop.shared().run(self._rollout.hear(turn))

    async def score(self) -> Score:
        """Return the sum of the task's weighted rewards."""
        return await loop.shared().run(self._rollout.score())

    async def close(self) -> None:
        """Remove the working folder and stop the tools."""
        await loop.shared().run(self._rollout.close())


class Rollout:
    """A trace that grows, on the verifiers loop."""

    def __init__(self, package: "TasksetPackage", task: Task) -> None:
        self._package, self._task = package, package.row(task)
        self._data = self._task.data
        self._trace = self._new_trace()
        self._runtime: Any = None
        self._began = 0.0
        self._servers: list[Servers] = []
        self.tools: list[dict[str, Any]] = []

    def _new_trace(self) -> Any:
        traces, task = import_module("verifiers.v1.trace"), self._task
        config = import_module("verifiers.v1.configs.agent").AgentConfig(model=POLICY)
        about = traces.TraceTask(
            type=type(task).__name__, data=task.data, key=task.key, hash=task.hash
        )
        state = import_module("verifiers.v1.state").state_cls(type(task))()
        return traces.Trace(task=about, state=state, agent=traces.AgentInfo(config=config))

    async def open(self) -> list[Message]:
        runtimes = import_module("verifiers.v1.runtimes")
        self._runtime = runtimes.make_runtime(runtimes.SubprocessConfig(), name=self._trace.id)
        self._runtime.env = dict(self._task.runtime_env())
        await self._runtime.start()
        async with asyncio.timeout(self._data.timeout.setup):
            await self._invoke(self._task.setup)
            await self._open_servers()
        typed = import_module("verifiers.v1.types")
        if self._data.system_prompt:
            self._add(typed.SystemMessage(content=self._data.system_prompt))
        prompt = self._data.prompt
        first = [typed.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt
        for message in first:
            self._add(message)
        self._trace.timing.agent.start, self._began = time.time(), time.monotonic()
        return messages.plain(self._said())

    async def _open_servers(self) -> None:
        own = Servers(list(self._task.toolsets(self._task.config)))
        self._servers = [own]
        await own.open(self._data)
        if shared := await _shared_servers(self._package):
            self._servers.append(shared)
        self.tools = [schema for s in self._servers for schema in s.schemas]

    async def hear(self, turn: EnvTurn) -> list[Message] | None:
        message, response = self._heard(turn)
        if await self._stops("Response", response) or self._is_late():
            return None
        if not message.tool_calls:
            self._trace.stop("agent_completed")
            return None
        said = await asyncio.gather(*(
            answer(call, self._trace.state, self._servers) for call in messages.calls_of(turn.reply)
        ))
        typed = import_module("verifiers.v1.types")
        for result in said:
            self._add(typed.ToolMessage(**{k: v for k, v in result.items() if k != "role"}))
        request = typed.Request(messages=self._said(), tools=self._typed_tools())
        if await self._stops("Trace", self._trace) or await self._stops("Request", request):
            return None
        return list(said)

    async def score(self) -> Score:
        trace, limits = self._trace, self._data.timeout
        if trace.stop_condition is None:
            trace.stop("max_turns")  # claw ended it: a limit of turns or of the context
        trace.timing.agent.end = time.time()
        async with asyncio.timeout(limits.finalize):
            await self._invoke(self._task.finalize)
        async with asyncio.timeout(limits.scoring):
            await self._task.score(trace, self._runtime)
        trace.is_completed = trace.ok = True
        parts = {name: r.value for name, r in trace.rewards.items() if r is not None}
        return Score(float(trace.reward), parts)

    async def close(self) -> None:
        for own in self._servers[:1]:
            await own.close()
        self._servers = []
        if self._runtime is not None:
            await self._runtime.stop()
            self._runtime = None

    # --- the trace ---------------------------------------------------------------------------

    def _add(self, message: Any, *, sampled: bool = False) -> int:
        """Append a message to the one line that the conversation is."""
        nodes = self._trace.nodes
        node = import_module("verifiers.v1.graph").MessageNode
        nodes.append(node(
            parent=len(nodes) - 1 if nodes else None, message=message, sampled=sampled
        ))
        return len(nodes) - 1

    def _said(self) -> list[Any]:
        return [node.message for node in self._trace.nodes]

    def _heard(self, turn: EnvTurn) -> tuple[Any, Any]:
        typed, traces = import_module("verifiers.v1.types"), import_module("verifiers.v1.trace")
        calls = [typed.ToolCall(**call) for call in messages.calls_of(turn.reply)]
        message = typed.AssistantMessage(
            content=turn.reply.get("content"), tool_calls=calls or None,
            reasoning_content=turn.reply.get("reasoning_content"),
        )
        usage = typed.Usage(
            prompt_tokens=turn.usage.get("prompt_tokens", 0),
            completion_tokens=turn.usage.get("completion_tokens", 0),
        )
        finish = str(turn.finish_reason)
        finish = finish if finish in ("stop", "length", "tool_calls") else "stop"
        node = self._add(message, sampled=True)
        self._trace.calls.append(
            traces.ModelCall(node=node, model=POLICY, finish_reason=finish, usage=usage)
        )
        response = typed.Response(
            id=f"{self._trace.id}-{turn.index}", created=int(time.time()), model=POLICY,
            message=message, finish_reason=finish, usage=usage,
        )
        return message, response

    def _typed_tools(self) -> list[Any]:
        tool = import_module("verifiers.v1.types").Tool
        return [tool(**schema["function"]) for schema in self.tools]

    # --- the task's own methods --------------------------------------------------------------

    async def _invoke(self, hook: Any) -> None:
        invoke = import_module("verifiers.v1.utils.decorators").invoke
        work: Awaitable[None] = invoke(hook, {"trace": self._trace, "runtime": self._runtime})
        await work

    async def _stops(self, kind: str, value: Any) -> bool:
        """Ask the task's `@vf.stop` methods that look at this kind of thing."""
        session = import_module("verifiers.v1.session")
        trace = import_module("verifiers.v1.trace").Trace
        for stop in self._task.hooks("stop"):
            if session.hook_boundary(stop, allow_trace=True).__name__ != kind:
                continue
            if await session.call_hook(stop, {type(value): value, trace: self._trace}):
                self._trace.stop(stop.__name__)
                return True
        return False

    def _is_late(self) -> bool:
        """The row's own limit on the time of all turns."""
        limit = self._data.timeout.agent
        if limit is None or time.monotonic() - self._began < limit:
            return False
        self._trace.stop("agent_timeout")
        return True


async def _shared_servers(package: "TasksetPackage") -> Servers | None:
    """The servers of the whole taskset: set up once, for all episodes of this process."""
    async with _opening:
        if package.shared_tools is None:
            servers = Servers(list(type(package.taskset).toolsets(package.taskset.config)))
            await servers.open()
            package.shared_tools = servers
    shared: Servers = package.shared_tools
    return shared if shared.schemas else None
