"""Request bodies: bytes up to a cap, then a JSON object.

Owns: reading, the cap, and what is wrong with JSON, in words.
Does not own: what the object means.
"""

import json
from typing import Any

from starlette.requests import Request

from claw.sdk import EngineError
from claw.sdk.foreign_json import from_json

from .errors import bad

DRAIN = 2
"""a body beyond the cap is read and dropped up to so many caps: a client that is still sending
would see a broken connection instead of the answer"""


async def read_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in the body, or raise 413 or 400."""
    return parse_object(await _read(request, max_bytes))


async def _read(request: Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    num_bytes = 0
    async for part in request.stream():
        num_bytes += len(part)
        if num_bytes <= max_bytes:
            parts.append(part)
        elif num_bytes > DRAIN * max_bytes:
            break
        else:
            parts.clear()
    if num_bytes > max_bytes:
        raise EngineError(
            413, f"The request body is larger than {max_bytes / 2**20:g} MB.",
            code="request_too_large",
        )
    return b"".join(parts)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse strictly: UTF-8, no NaN, an object. Escaped lone surrogates are text like any other."""
    try:
        value = from_json(raw.decode("utf-8"), finite=True)
    except UnicodeDecodeError as error:
        raise bad(f"The request body is not UTF-8: {error.reason} at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise bad(f"The request body is not JSON: {error.msg} at {where}.") from None
    except ValueError as error:
        raise bad(f"The request body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise bad(f"The request body must be a JSON object, not {kind_of(value)}.")
    return value


def array_of(body: dict[str, Any], name: str, at: str = "") -> list[Any]:
    """Return the array of that name, in the object that is at `at`; a missing one, or null, is
    empty."""
    value = body.get(name) or []
    if not isinstance(value, list):
        where = f"{at}.{name}" if at else name
        raise bad(f"{where} must be an array, not {kind_of(value)}.", where)
    return value


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type, for people."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean",
             int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)
