"""What a runner asks for, checked: bad requests are refused in the words HTTP clients know.

Owns: messages, sampling fields, lengths. Does not own: answering (`gateway.py`).
"""

from typing import Any

from claw.config import RolloutConfig
from claw.engine.actor.album import is_picture
from claw.engine.actor.families import FAMILIES
from claw.records import Sampling
from claw.sdk.app import HELPERS, Ask, EngineError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_STOPS = 16
_KNOWN = ("temperature", "top_p", "top_k", "max_tokens", "seed", "stop", "logprobs_k")


def bad(message: str, param: str, code: str | None = None) -> EngineError:
    return EngineError(400, message, param=param, code=code)


def check_messages(ask: Ask, *, sees: bool = False) -> None:
    """Refuse what no template can render; raises EngineError 400. `sees`: pictures are taken."""
    if not isinstance(ask.messages, list) or not ask.messages:
        raise bad("messages must be a list with at least one message", "messages")
    for i, message in enumerate(ask.messages):
        _check_message(message, f"messages[{i}]", sees)
    if not isinstance(ask.tools, list) or not all(isinstance(t, dict) for t in ask.tools):
        raise bad("tools must be a list of objects", "tools")
    if ask.kind not in ("", "main", "side", *HELPERS):
        raise bad(f"kind is main, side, empty or one of {', '.join(HELPERS)}; "
                  f"found {ask.kind!r}", "kind")


def check_one_call(ask: Ask, calls: str) -> None:
    """Refuse one call at most where only the end of a reply ends a call. `calls`: the family."""
    if ask.one_call and calls and not FAMILIES[calls].ends:
        raise bad(f"this model's tool calls ({calls}) end where its reply does, so that several "
                  "cannot be kept from it; leave parallel_tool_calls out", "parallel_tool_calls")


def _check_message(message: Any, where: str, sees: bool) -> None:
    if not isinstance(message, dict):
        raise bad(f"{where} is no object", where)
    role = message.get("role")
    if role not in ROLES:
        raise bad(f"{where} has role {role!r}; allowed: {', '.join(ROLES)}", f"{where}.role")
    content = message.get("content")
    if isinstance(content, list):
        for part in content:
            _check_part(part, f"{where}.content", sees)
    elif content is None and role != "assistant":
        raise bad(f"{where} has no content", f"{where}.content")
    elif not isinstance(content, str | None):
        raise bad(f"{where}.content must be text or a list of parts", f"{where}.content")
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
        raise bad(f"{where}.tool_calls must be a list of function calls", f"{where}.tool_calls")


def _check_part(part: Any, where: str, sees: bool) -> None:
    if isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str)):
        return
    if sees and is_picture(part):
        return
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    taken = "text and image_url" if sees else "text only"
    raise bad(f"{where} has a part of type {kind!r}; this model takes {taken}", where,
              "unsupported_content")


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def sampling(ask: Ask, defaults: RolloutConfig) -> Sampling:
    """Return the sampling of a request, defaults filled in; raises EngineError 400."""
    given = {k: v for k, v in (ask.sampling or {}).items() if v is not None}
    if unknown := sorted(set(given) - set(_KNOWN)):
        raise bad(f"no sampling field {unknown[0]!r}; known: {', '.join(_KNOWN)}", unknown[0])
    stop = given.get("stop", ())
    stop = [stop] if isinstance(stop, str) else stop
    is_list = isinstance(stop, list | tuple) and len(stop) <= MAX_STOPS
    if not is_list or not all(isinstance(s, str) and s for s in stop):
        raise bad(f"stop is a text or a list of at most {MAX_STOPS} texts", "stop")
    k = int(_number(given, "logprobs_k", defaults.logprobs_k, 0, 64))
    seed = given.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise bad("seed is a whole number", "seed")
    return Sampling(
        temperature=_number(given, "temperature", defaults.temperature, 0, 5),
        top_p=_number(given, "top_p", defaults.top_p, 1e-6, 1),
        top_k=max(0, int(_number(given, "top_k", defaults.top_k, -1, 1_000_000))),
        max_tokens=int(_number(given, "max_tokens", defaults.max_tokens, 1, 10_000_000)),
        seed=None if seed is None else seed % (1 << 63), stop=tuple(stop),
        logprobs_k=max(k, defaults.logprobs_k),
    )


def _number(given: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise bad(f"{name} must be a number from {low:g} to {high:g}; found {value!r}", name)
    return value


def room(num_prompt: int, context: int) -> int:
    """Return how many tokens a reply may have; raises EngineError 400 when there is no room."""
    if num_prompt < context:
        return context - num_prompt
    raise bad(
        f"This model's maximum context length is {context} tokens. However, your messages "
        f"resulted in {num_prompt} tokens. Please reduce the length of the messages.",
        "messages", "context_length_exceeded",
    )
