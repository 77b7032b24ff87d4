"""A request of OpenAI's Responses API as a chat request.

Owns: input items, tools and limits under their other names; refusing what needs a memory.
Does not own: checking what is the same in both (`requests`, `messages`, `sampling`).
"""

import json
from typing import Any

from .body import array_of, kind_of
from .errors import bad

_SAME = ("model", "stream", "temperature", "top_p", "user", "session_id", "turn_type",
         "session_done", "prompt_cache_key", "parallel_tool_calls")
_PARTS = {"input_text": "text", "output_text": "text", "text": "text"}


def from_responses(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the chat request that means the same."""
    _refuse_unhonoured(body)
    made = {name: body[name] for name in _SAME if name in body}
    made["messages"] = _messages(body.get("instructions"), body.get("input"))
    made["tools"] = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(array_of(body, "tools"))]
    if "max_output_tokens" in body:
        made["max_completion_tokens"] = body["max_output_tokens"]
    if body.get("tool_choice") is not None:
        made["tool_choice"] = body["tool_choice"]
    return made


def _refuse_unhonoured(body: dict[str, Any]) -> None:
    for name in ("previous_response_id", "conversation", "prompt"):
        if body.get(name) is not None:
            raise bad(f"{name} is not supported: answers are not kept for clients. Send the whole "
                      "conversation in input.", name)
    if body.get("background"):
        raise bad("background must be false: an answer is given to who waits for it.", "background")
    form = (body.get("text") or {}) if isinstance(body.get("text"), dict | None) else {}
    if (form.get("format") or {"type": "text"}) != {"type": "text"}:
        raise bad("text.format must be {'type': 'text'}: the form of a reply cannot be forced.",
                  "text.format")
    if body.get("top_logprobs"):
        raise bad("top_logprobs is not supported here; POST /v1/chat/completions has them.",
                  "top_logprobs")


def _tool(tool: Any, at: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise bad(f"{at} must have type 'function': nothing is hosted here.", at)
    named = {k: tool[k] for k in ("name", "description", "parameters") if tool.get(k) is not None}
    return {"type": "function", "function": named}


def _messages(instructions: Any, given: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if isinstance(instructions, str) and instructions:
        made.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*made, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise bad(f"input must be a string or an array of items, not {kind_of(given)}.", "input")
    for i, item in enumerate(given):
        _add(made, item, f"input[{i}]")
    return made


def _add(made: list[dict[str, Any]], item: Any, at: str) -> None:
    """Add one item; what the model said in one go is one message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        made.append(_message(item, at, made))
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        _ours(made).setdefault("tool_calls", []).append(
            {"id": item.get("call_id"), "type": "function", "function": function})
    elif kind == "function_call_output":
        output = item.get("output")
        made.append({"role": "tool", "tool_call_id": item.get("call_id"),
                     "content": _content(output, f"{at}.output")})
    elif kind == "reasoning":
        parts = [*array_of(item, "content", at), *array_of(item, "summary", at)]
        thought = "\n".join(str(p.get("text", "")) for p in parts if isinstance(p, dict))
        made.append({"role": "assistant", "content": None, "reasoning_content": thought})
    else:
        said = json.dumps(kind)[:80] if isinstance(kind, str) else kind_of(item)
        raise bad(f"{at}.type is {said}; allowed: message, function_call, function_call_output, "
                  "reasoning.", f"{at}.type")


def _message(item: dict[str, Any], at: str, made: list[dict[str, Any]]) -> dict[str, Any]:
    content = _content(item.get("content"), f"{at}.content")
    if item.get("role") == "assistant" and _is_bare_thought(made):
        return made.pop() | {"content": content}
    return {"role": item.get("role"), "content": content}


def _ours(made: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the assistant's message that a call belongs to."""
    if not made or made[-1]["role"] != "assistant":
        made.append({"role": "assistant", "content": None})
    return made[-1]


def _is_bare_thought(made: list[dict[str, Any]]) -> bool:
    last = made[-1] if made else {}
    return "reasoning_content" in last and last["content"] is None and "tool_calls" not in last


def _content(value: Any, at: str) -> Any:
    if not isinstance(value, list):
        return value
    return [_part(part, f"{at}[{i}]") for i, part in enumerate(value)]


def _part(part: Any, at: str) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in _PARTS:
        return {"type": "text", "text": part.get("text")}
    if kind == "refusal":
        return part
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    names = {"input_image": "image_url", "input_file": "file", "input_audio": "input_audio"}
    return {"type": names.get(str(kind), kind)}  # refused by name, with its place, or by type
