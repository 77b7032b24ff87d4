"""Arguments of a call: read from JSON, checked against the tool's schema.

Owns: what is wrong with arguments, in one sentence.
Does not own: the schema (each tool's), running the call.
"""

import json
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_CHARS = 100_000
"""of one call; more is no call that a policy means"""


def read(text: str) -> Any:
    """Return the value that `text` holds; raise ValueError, in words, for what is no JSON."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"{len(text)} characters; at most {MAX_CHARS}")
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def problem(schema: dict[str, Any], arguments: Any) -> str:
    """Return what is wrong with the arguments, or an empty string."""
    # an empty registry: a schema of a stranger's server makes nobody fetch what it refers to
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(arguments))
    except (Unresolvable, SchemaError, RecursionError) as broken:
        return f"the tool's schema cannot be used: {type(broken).__name__}"
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    said = error.message if len(error.message) <= 300 else error.message[:300] + "..."
    return f"{where}: {said}" if where else said


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
