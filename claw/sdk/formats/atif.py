"""ATIF trajectories: an episode as a file that Harbor's tools can read.

Owns: messages -> steps, and writing the file.
Does not own: token ids and log-probs, which stay in the journal.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = "ATIF-v1.6"
Message = Mapping[str, Any]


class Record:
    """What is said in one episode, noted as it is said, and written at its end."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._usages: list[dict[str, int]] = []
        self._times: list[float] = []

    def note(self, *said: dict[str, Any], usage: Mapping[str, int] | None = None) -> None:
        """Note messages; `usage` holds the token counts of a reply."""
        self.messages += said
        self._times += [time.time()] * len(said)
        if usage is not None:
            self._usages.append(dict(usage))

    def write(
        self, folder: str, *, task: str, attempt: str, agent: str, version: str,
        tools: Sequence[Mapping[str, Any]], extra: Mapping[str, Any],
    ) -> None:
        """Write a file of its own into `folder`, named after the task and the attempt."""
        made = trajectory(self.messages, session_id=attempt, agent=agent, version=version,
                          tools=tools, usages=self._usages, times=self._times,
                          extra={"task": task, **extra})
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", task)[:80]
        write(Path(folder).expanduser() / f"{name}-{attempt}.json", made)


def trajectory(
    messages: Sequence[Message], *, session_id: str, agent: str, version: str, model: str = "",
    tools: Sequence[Mapping[str, Any]] = (), usages: Sequence[Mapping[str, int]] = (),
    times: Sequence[float] = (), extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the trajectory of chat messages in OpenAI's shape.

    `usages` holds the token counts of each assistant message, in order; `times` the time of each
    message in seconds since the epoch.
    """
    about: dict[str, Any] = {"name": agent, "version": version}
    if model:
        about["model_name"] = model
    if tools:
        about["tool_definitions"] = [dict(tool) for tool in tools]
    made: dict[str, Any] = {
        "schema_version": SCHEMA, "session_id": session_id, "agent": about,
        "steps": _steps(messages, usages, times), "final_metrics": _totals(usages, messages),
    }
    if extra:
        made["extra"] = dict(extra)
    return made


def write(path: Path, made: Mapping[str, Any]) -> None:
    """Write a trajectory: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(made, indent=2), encoding="ascii")  # keeps lone surrogates escaped
    part.replace(path)


def _steps(
    messages: Sequence[Message], usages: Sequence[Mapping[str, int]], times: Sequence[float]
) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    num_replies = 0
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool" and steps and steps[-1]["source"] == "agent":
            observed = steps[-1].setdefault("observation", {"results": []})
            called = {c["tool_call_id"] for c in steps[-1].get("tool_calls", ())}
            observed["results"].append(_result(message, called))
            continue
        step: dict[str, Any] = {"step_id": len(steps) + 1}
        if index < len(times):
            step["timestamp"] = datetime.fromtimestamp(times[index], UTC).isoformat()
        step["source"] = {"assistant": "agent", "system": "system"}.get(str(role), "user")
        step["message"] = _text(message)
        if role == "assistant":
            step |= _said(message)
            if num_replies < len(usages):
                step["metrics"] = _counts(usages[num_replies])
            num_replies += 1
        steps.append(step)
    return steps


def _said(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if message.get("reasoning_content"):
        made["reasoning_content"] = str(message["reasoning_content"])
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    if calls:
        made["tool_calls"] = calls
    return made


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    said = function.get("arguments")
    try:
        arguments = json.loads(said) if isinstance(said, str) else said
    except (ValueError, RecursionError):
        arguments = None
    return {
        "tool_call_id": str(call.get("id") or ""), "function_name": str(function.get("name") or ""),
        # what the policy said is kept even where it is no object
        "arguments": arguments if isinstance(arguments, dict) else {"unreadable": str(said)},
    }


def _result(message: Message, called: set[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"content": _text(message)}
    if message.get("tool_call_id") in called:  # a reader refuses a result of no call
        made["source_call_id"] = str(message["tool_call_id"])
    return made


def _counts(usage: Mapping[str, int]) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return {name: int(usage[name]) for name in names if name in usage}


def _totals(
    usages: Sequence[Mapping[str, int]], messages: Sequence[Message]
) -> dict[str, int]:
    return {
        "total_prompt_tokens": sum(int(u.get("prompt_tokens", 0)) for u in usages),
        "total_completion_tokens": sum(int(u.get("completion_tokens", 0)) for u in usages),
        "total_steps": sum(1 for m in messages if m.get("role") != "tool"),
    }


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [p.get("text", "") if isinstance(p, Mapping) else p for p in content]
        return "\n".join(str(p) for p in parts)
    return "" if content is None else str(content)
