"""The fields of a request that say how the reply is drawn.

Owns: their ranges, and refusing what the policy cannot honour.
Does not own: the run's defaults for what a request leaves out.
"""

from typing import Any

from .body import kind_of
from .errors import bad

_RANGES = {"temperature": (0.0, 5.0), "top_p": (0.0, 1.0)}
_MAX_STOPS = 16
_MAX_TOP = 20


def sampling_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling fields that the request sets."""
    refuse_unhonoured(body)
    made: dict[str, Any] = {}
    for name, (low, high) in _RANGES.items():
        if body.get(name) is not None:
            made[name] = _number(body[name], low, high, name)
    if made.get("top_p") == 0:
        raise bad("top_p must be above 0; use temperature 0 for the likeliest tokens.", "top_p")
    if body.get("top_k") is not None:
        made["top_k"] = max(0, _whole(body["top_k"], -1, 1_000_000, "top_k"))
    if body.get("seed") is not None:
        made["seed"] = _whole(body["seed"], -(1 << 63), (1 << 63) - 1, "seed")
    if limits := _limits(body):
        made["max_tokens"] = min(limits)  # both names mean the same; the smaller wins
    if stop := _stop(body.get("stop")):
        made["stop"] = stop
    top = top_logprobs(body)
    if body.get("logprobs"):
        made["logprobs_k"] = top
    return made


def top_logprobs(body: dict[str, Any]) -> int:
    """Return how many alternatives each token is reported with."""
    wants, top = body.get("logprobs"), body.get("top_logprobs")
    if wants is not None and not isinstance(wants, bool):
        raise bad(f"logprobs must be true or false, not {kind_of(wants)}.", "logprobs")
    if top is None:
        return 0
    number = _whole(top, 0, _MAX_TOP, "top_logprobs")
    if number and not wants:
        raise bad("top_logprobs needs logprobs: true.", "top_logprobs")
    return number


def refuse_unhonoured(body: dict[str, Any]) -> None:
    """Raise for a setting that would be silently ignored."""
    if body.get("n") not in (None, 1) or isinstance(body.get("n"), bool):
        raise bad("n must be 1: one request gets one answer. Send the request again for more.", "n")
    for name in ("presence_penalty", "frequency_penalty"):
        if body.get(name) is not None and _number(body[name], -2.0, 2.0, name) != 0:
            raise bad(f"{name} must be 0: replies are drawn from the policy as it is.", name)
    form = body.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        raise bad("response_format must be {'type': 'text'}: the form of a reply cannot be forced. "
                  "Ask for it in a message.", "response_format")


def _limits(body: dict[str, Any]) -> list[int]:
    names = ("max_tokens", "max_completion_tokens")
    return [_whole(body[n], 1, 1 << 31, n) for n in names if body.get(n) is not None]


def _stop(value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise bad("stop must be a string or an array of strings, none of them empty.", "stop")
    if len(stops) > _MAX_STOPS:
        raise bad(f"stop holds {len(stops)} strings; allowed: {_MAX_STOPS}.", "stop")
    return stops


def _number(value: Any, low: float, high: float, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad(f"{name} must be a number, not {kind_of(value)}.", name)
    if not low <= value <= high:
        raise bad(f"{name} is {value}; allowed: {low:g} to {high:g}.", name)
    return float(value)


def _whole(value: Any, low: int, high: int, name: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise bad(f"{name} must be a whole number, not {value!r}."[:200], name)
    if not low <= value <= high:
        raise bad(f"{name} is out of range; allowed: {low} to {high}.", name)
    return value
