"""Whether a tool result reports an error. Reads signs of failure, not whether it was useful."""

import re
from typing import Any

from claw.records import Message
from claw.sdk.foreign_json import from_json
from claw.sdk.judges.hints import text_of

MAX_JSON_CHARS = 200_000
"""a longer result is read as text"""
MAX_EDGE_CHARS = 4000
NUM_EDGE_LINES = 4
"""status lines are looked for in so many lines at the start and at the end"""
SHORT_LINES = 8
"""in a result of so few lines, the first line may tell of failure in prose"""


def error_in(message: Message) -> str:
    """Return what shows that a tool failed, or an empty string."""
    flagged = _error_in_fields(message)
    if flagged is not None and flagged:
        return flagged
    text = text_of(message).strip()
    value = _json(text)
    if isinstance(value, dict):
        return _error_in_json(value)
    return "" if isinstance(value, list) else _error_in_text(text)


def _json(text: str) -> Any:
    if text[:1] not in ("{", "[") or len(text) > MAX_JSON_CHARS:
        return None
    try:
        return from_json(text)
    except ValueError:
        return None


def _error_in_json(value: dict[str, Any], depth: int = 0) -> str:
    """An explicit status decides; without one, wrapped results and printed text are read."""
    stated = _error_in_fields(value)
    if stated is not None:
        return stated
    for key in ("result", "response", "output", "stdout", "stderr", "content", "text"):
        inner = value.get(key)
        if isinstance(inner, dict) and depth < 3 and (found := _error_in_json(inner, depth + 1)):
            return found
        if isinstance(inner, str) and (found := _error_in_text(inner.strip())):
            return found
    return ""


def _error_in_fields(value: dict[str, Any]) -> str | None:
    """Return the failing field, an empty string for stated success, None for no statement."""
    fields = {str(key).lower().replace("_", "").replace("-", ""): key for key in value}
    stated = None
    for name, key in fields.items():
        failed = _failed(name, value[key])
        if failed:
            return f"{key}: {str(value[key])[:60]}"
        stated = "" if failed is False else stated
    return stated


def _failed(name: str, field: Any) -> bool | None:
    if name in _ERROR_FIELDS:
        return True if field and field not in ("0", "none", "None", "null", "false") else None
    if name in _SUCCESS_FIELDS and isinstance(field, bool):
        return not field
    number = _number(field)
    if name in _EXIT_FIELDS and number is not None:
        return number != 0
    if name in _HTTP_FIELDS and number is not None and 100 <= number <= 599:
        return number >= 400
    if name in ("status", "state", "outcome") and isinstance(field, str):
        return True if _BAD_STATUS.fullmatch(field) else _good_status(field)
    return None


def _good_status(field: str) -> bool | None:
    return False if field.lower() in ("ok", "success", "succeeded", "passed") else None


def _number(field: Any) -> int | None:
    if isinstance(field, bool) or not isinstance(field, int | str):
        return None
    if isinstance(field, int):
        return field
    return int(field) if re.fullmatch(r"-?\d{1,9}", field, re.ASCII) else None


def _error_in_text(text: str) -> str:
    """An exit status decides; then status lines, HTTP, tracebacks and prose of short results."""
    edge = text if len(text) <= 2 * MAX_EDGE_CHARS else _edges(text)
    lines = [line.strip()[:500] for line in edge.splitlines() if line.strip()]
    near = lines[:NUM_EDGE_LINES] + lines[NUM_EDGE_LINES:][-NUM_EDGE_LINES:]
    for line in near:
        if exit_status := _EXIT_LINE.match(line):
            return "" if int(exit_status["code"]) == 0 else line[:80]
    if _TRACEBACK.search("\n".join(lines[:2] + lines[-30:])) and any(map(_EXCEPTION.match, near)):
        return next(line[:80] for line in reversed(near) if _EXCEPTION.match(line))
    failed = next((line for line in near if _ERROR_LINE.search(line)), "")
    if not failed and lines and len(lines) <= SHORT_LINES and _ERROR_PROSE.match(lines[0]):
        failed = lines[0]
    return failed[:80]


def _edges(text: str) -> str:
    return f"{text[:MAX_EDGE_CHARS]}\n{text[-MAX_EDGE_CHARS:]}"


_ERROR_FIELDS = frozenset(
    {"error", "errors", "iserror", "exception", "traceback", "errormessage", "timedout", "errno"}
)
_SUCCESS_FIELDS = frozenset({"success", "ok", "succeeded", "passed", "successful"})
_EXIT_FIELDS = frozenset({"exitcode", "exitstatus", "returncode", "rc", "retcode"})
_HTTP_FIELDS = frozenset({"statuscode", "httpstatus", "httpcode", "httpstatuscode", "status"})
_BAD_STATUS = re.compile(
    r"(?:error|errored|fail|failed|failure|timeout|timed[_ ]out|denied|rejected|crashed|exception"
    r"|unauthori[sz]ed|forbidden|not[_ ]found)",
    re.IGNORECASE,
)
_EXIT_LINE = re.compile(
    r"[\W_]{0,4}(?:(?:the )?(?:process|command|program|script|shell|tool) )?(?:finished |failed )?"
    r"(?:with )?(?:(?:exit(?:ed)?|return(?:ed)?)[ _-]?)(?:with |a |non-zero |nonzero )*"
    r"(?:(?:exit |return )?(?:code|status"
    r"|value) ?(?:code )?)?[\W_]{0,4}?(?P<code>-?\d{1,9})[\W_]{0,4}"
    r"(?:/?\w{0,12}>)?$",
    re.IGNORECASE | re.ASCII,
)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)|^Uncaught |^\s*at \w", re.MULTILINE)
_EXCEPTION = re.compile(
    r"(?:Uncaught )?[A-Za-z_][\w.]{0,80}(?:Error|Exception|Interrupt"
    r"|Exit)\b(?::|$)"
)
_ERROR_LINE = re.compile(
    r"^\W{0,4}(?:fatal|(?:\w{1,20} )?error|exception|panic|failed|failure|unhandled \w+"
    r"|[A-Z]\w{0,60}(?:Error|Exception))(?: \d+)?\W{0,2}:(?! ?(?:0|none|null|no|false)\b)"
    r"|^[\w.-]{1,40}: (?:fatal|error):|^error\[\w+\]"
    r"|^[\w./\\-]{1,200}:\d+(?::\d+)?: (?:fatal )?error\b"
    r"|^(?:ba|z|da)?sh: .{1,200}(?:not found|denied|no such|syntax error|unexpected)"
    r"|: (?:command not found|no such file or directory|permission denied|not a directory"
    r"|is a directory|operation not permitted|cannot \w+)\W{0,2}$"
    r"|^(?:segmentation fault|killed$|aborted\b|bus error)|\bcore dumped\b|^npm err!"
    r"|^make(?:\[\d+\])?: \*\*\*"
    r"|^HTTP/[\d.]+ [45]\d\d\b|^(?:HTTP |status(?: code)?:? |error )?[45]\d\d(?: |: | - )"
    r"(?:bad|unauthori|forbid|not found|method|request|conflict|gone|too many|internal|bad gateway"
    r"|service|gateway|unprocess|payment|client error|server error)"
    r"|^(?:http )?status(?: code)?\W{1,3}[45]\d\d\b|\bstatus code:? [45]\d\d\W?$|^curl: \(\d+\)"
    r"|^=+ .{0,80}\b[1-9]\d* (?:failed|errors?)\b|^FAILED \(|^BUILD FAILED",
    re.IGNORECASE | re.ASCII,
)
_ERROR_PROSE = re.compile(
    r"error (?:executing|running|calling|while|during|opening|reading|loading|parsing|fetching"
    r"|connecting|processing)\b|(?:the )?(?:tool |command |request |http )?(?:tool|command|request"
    r"|operation|call|connection|process|execution|query)?\W?"
    r"(?:has |was )?(?:failed to|failed\b|unable to|could not|couldn't|cannot|can't|access denied"
    r"|permission denied|invalid (?:arg|param|json|input|tool|command|option|request|syntax)"
    r"|unknown (?:tool|command|function|option|argument|host)|unrecognized|no such (?:file|tool|dir"
    r"|command|option|table|column)|not found\b|timed out|time ?out\b|rate limit|denied\b|refused\b"
    r"|does not exist|an? (?:\w+ )?(?:error|exception) occurred)",
    re.IGNORECASE,
)
