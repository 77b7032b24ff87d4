"""Inputs of many targets: text with what breaks text, JSON with what breaks JSON, broken JSON.

Each is drawn from a `Random`: a strategy of hypothesis that says the same takes a hundred times as
long for an input, and what fails is found again by the number that the `Random` began with.
"""

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

NASTY = (
    "", " ", "\n", "\x00", "\ud83c", "\udc9d", "\ud83c\udf00", "\u202e", "\ufeff", "\u0130", "%00",
    "../../etc/passwd", "{{7*7}}", "{% raise %}", "<think>", "</think>", "<|im_end|>",
    "<tool_call>", "\x1b[31m", "'; DROP TABLE turns; --", "NaN", "1e309", "null", "0x10", "١٢",
    "HEARTBEAT_OK", "[cron:", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
    "\\boxed{1}", "[HINT_START]", "a" * 3000, "\u0301" * 300, "((((((((", "=" * 12,
    "[" * 3000, "{\"a\":" * 1500, "[" * 900 + "]" * 900, "http://[", "1" * 5000,
)
NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5,
           1e-320, 1e308, float("inf"), float("-inf"), float("nan"), 3, 7, 2.5, 400, 1.0)
PLAIN = "abc \n\t.,:;'\"`(){}[]<>\\/-_*#@!?=01"


def text(random: Random) -> str:
    """A short text, or one of those that are known to break things."""
    match random.randrange(4):
        case 0 | 1:
            return random.choice(NASTY)
        case 2:
            return "".join(random.choices(PLAIN, k=random.randrange(40)))
    return "".join(chr(random.choice((random.randrange(256), random.randrange(0x110000))))
                   for _ in range(random.randrange(12)))


def scalar(random: Random) -> Any:
    return random.choice((None, True, False, random.choice(NUMBERS), random.choice(NUMBERS),
                          random.random() * 10, text(random), text(random)))


def value(random: Random, depth: int = 3) -> Any:
    """Any JSON value."""
    kind = random.randrange(3) if depth else 0
    if kind == 1:
        return [value(random, depth - 1) for _ in range(random.randrange(4))]
    if kind == 2:
        return {text(random): value(random, depth - 1) for _ in range(random.randrange(4))}
    return scalar(random)


def deep(random: Random) -> Any:
    """A value in very many lists or objects."""
    made, is_list = scalar(random), random.random() < 0.5
    for _ in range(random.choice((30, 100, 200, 400, 600, 900, 960, 2000))):
        made = [made] if is_list else {"a": made}
    return made


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(
        value, list) else ()
    return [at, *(p for key, inner in inside for p in places(inner, (*at, key)))]


def changed(random: Random, examples: Sequence[Any], most: int = 3) -> Any:
    """One of the examples with a few of its parts replaced, dropped, doubled or renamed."""
    made = copy.deepcopy(random.choice(examples))
    for _ in range(random.randint(1, most)):
        *path, last = random.choice(places(made)[1:] or [("x",)])
        owner = made
        for key in path:
            owner = owner[key]
        match random.choice(("replace", "replace", "replace", "deep", "drop", "double", "other")):
            case "replace":
                owner[last] = value(random, random.randrange(3))
            case "deep" if random.random() < 0.2:
                owner[last] = deep(random)
                break  # what is so deep is neither searched nor copied
            case "drop":
                owner.pop(last, None) if isinstance(owner, dict) else owner.pop(last)
            case "double" if isinstance(owner, list):
                owner.insert(last, copy.deepcopy(owner[last]))
            case _ if isinstance(owner, dict):
                owner[text(random)] = value(random, 2)
    return made


def written(value: Any) -> bytes:
    """The value as JSON that any parser may be sent: NaN, lone surrogates, nested to any depth."""
    done: list[str] = []
    left: list[Any] = [value]
    while left:  # not by recursion, which ends at some depth
        item = left.pop()
        if isinstance(item, _Said):
            done.append(item)
        elif isinstance(item, dict):
            parts = [part for n, (key, inner) in enumerate(item.items())
                     for part in (_Said(f"{',' if n else ''}{json.dumps(key)}:"), inner)]
            left += [_Said("}"), *reversed(parts), _Said("{")]
        elif isinstance(item, list):
            parts = [part for n, inner in enumerate(item)
                     for part in (_Said("," if n else ""), inner)]
            left += [_Said("]"), *reversed(parts), _Said("[")]
        else:
            done.append(json.dumps(item))
    return "".join(done).encode()


class _Said(str):
    """A piece of JSON that is written already."""


def cut(random: Random, whole: bytes) -> bytes:
    """Bytes with a few of them changed, taken out, put in or cut off."""
    data = bytearray(whole)
    for _ in range(random.randrange(4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 9)]
            case 2 if random.random() < 0.3:
                del data[at:]
            case 3:
                data[at:at] = random.randbytes(random.randrange(6))
            case _:
                data[at:at] = random.choice(NASTY).encode("utf-8", "surrogatepass")
    return bytes(data)


def one_of(random: Random, *made: Callable[[Random], Any]) -> Any:
    return random.choice(made)(random)
