"""JSON that others wrote: a client, a policy, a tool, a data set.

Owns: that whatever is wrong with it is a ValueError, its depth included: for what is nested too
deeply the standard parser raises RecursionError, and so does who writes again what was just read.
"""

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 100
"""levels of objects and arrays"""


def from_json(text: str | bytes, *, strict: bool = True, finite: bool = False) -> Any:
    """Return the value that `text` holds; ValueError, in words, for what is none.

    `strict` refuses control characters in strings; `finite` what JSON does not know: NaN and
    infinities, also those that are written as 1e999.
    """
    numbers: dict[str, Any] = {
        "parse_constant": _no_constant, "parse_float": _finite} if finite else {}
    try:
        value = json.loads(text, strict=strict, **numbers)
    except RecursionError:
        raise _too_deep() from None
    if _is_deeper(value):
        raise _too_deep()
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is too large for a number")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _too_deep() -> ValueError:
    return ValueError(f"nested too deeply; allowed: {MAX_DEPTH} levels")


def _is_deeper(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        inside = (part for item in level
                  for part in (item.values() if isinstance(item, dict) else item))
        level = [part for part in inside if isinstance(part, dict | list)]
    return bool(level)
