"""A chat request: from a JSON object to what the engine is asked.

Owns: the fields of POST /v1/chat/completions. Unknown fields are ignored, as clients expect.
Does not own: reading the body, making the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from claw.sdk import Ask, EngineError

from .body import array_of, kind_of
from .errors import bad
from .messages import plain_messages
from .sampling import sampling_of, top_logprobs
from .sessions import kin_of, kind_of_turn, session_of


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One checked request."""

    ask: Ask
    stream: bool
    include_usage: bool
    logprobs: bool
    top_logprobs: int
    ends_session: bool
    """the client said that this is the session's last request"""


def chat_request(
    body: dict[str, Any], headers: Mapping[str, str], models: list[str]
) -> ChatRequest:
    """Check `body`; raise an EngineError that names the field."""
    check_model(body.get("model"), models)
    messages = plain_messages(body.get("messages"))
    session, named_by = session_of(headers, body, messages)
    key, parent = kin_of(headers, body, messages)
    tools = _tools(body)
    ask = Ask(
        messages, tools, sampling_of(body), session, kind_of_turn(headers, body),
        named_by=named_by, key=key, parent=parent, tells_calls=_flag(body, "stream"),
        one_call=bool(tools) and not _flag(body, "parallel_tool_calls", default=True),
    )
    return ChatRequest(
        ask, _flag(body, "stream"), _includes_usage(body), bool(body.get("logprobs")),
        top_logprobs(body), bool(ask.session) and _flag(body, "session_done"),
    )


def check_model(name: Any, models: list[str]) -> None:
    """A model may be left out; another one than the run's is a 404."""
    if name is None:
        return
    if not isinstance(name, str):
        raise bad(f"model must be a string, not {kind_of(name)}.", "model")
    if name not in models:
        raise EngineError(
            404, f"The model {name[:200]!r} does not exist here; this run serves {models[0]!r}.",
            code="model_not_found", param="model",
        )


def _includes_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise bad(f"stream_options must be an object, not {kind_of(options)}.", "stream_options")
    return _flag(options, "include_usage")


def _tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    tools = array_of(body, "tools")
    for i, tool in enumerate(tools):
        _check_tool(tool, f"tools[{i}]")
    choice = body.get("tool_choice")
    if choice == "none":
        return []
    if choice not in (None, "auto"):
        raise bad("tool_choice must be 'auto' or 'none': the policy cannot be forced to call.",
                  "tool_choice")
    return tools


def _check_tool(tool: Any, at: str) -> None:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type", "function") != "function":
        raise bad(f"{at} must be {{type: 'function', function: {{name, parameters}}}}.", at)
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise bad(f"{at}.function.name must be a string.", f"{at}.function.name")


def _flag(body: dict[str, Any], name: str, *, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(f"{name} must be true or false, not {kind_of(value)}.", name)
    return value
