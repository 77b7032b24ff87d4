"""Errors in OpenAI's shape (or Anthropic's, on its paths), for every status.

Owns: the JSON of an error, and which status and headers it travels with.
Does not own: when an error happens.
"""

import json
import math
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from claw.sdk import EngineError

ANTHROPIC = "/v1/messages"
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Json(Response):
    """A JSON response in ASCII: a lone surrogate is an escape, not a crash."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return as_json(content)


def as_json(value: Any) -> bytes:
    """Return `value` as ASCII JSON; NaN and infinities are a bug, never sent."""
    return _ENCODER.encode(value).encode()


def bad(message: str, param: str | None = None, code: str | None = None) -> EngineError:
    """A 400 that names the field."""
    return EngineError(400, message, param=param, code=code)


def forbidden(message: str, code: str | None = None) -> EngineError:
    """A 403: the key is somebody's, and not for this."""
    return EngineError(403, message, type="permission_error", code=code)


def ours() -> EngineError:
    """A bug of ours: says no more than that, the log has the rest."""
    return EngineError(500, "The server failed; its log has the request id.", type="server_error")


def body_of(error: EngineError, path: str = "") -> dict[str, Any]:
    """Return the JSON that the clients of a path understand."""
    if path.startswith(ANTHROPIC):
        kinds = {404: "not_found_error", 413: "request_too_large", 500: "api_error"}
        kind = kinds.get(error.status, error.type)
        kind = "api_error" if kind == "server_error" else kind
        return {"type": "error", "error": {"type": kind, "message": error.message}}
    return {"error": {
        "message": error.message, "type": error.type, "param": error.param, "code": error.code,
    }}


def response_of(error: EngineError, path: str = "") -> Response:
    """Return the whole response, with `retry-after` where waiting helps."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Json(body_of(error, path), status_code=error.status, headers=headers)


def on_engine_error(request: Request, error: Exception) -> Response:
    """Starlette's handler for EngineError."""
    assert isinstance(error, EngineError)
    return response_of(error, request.scope["path"])


def on_bug(request: Request, error: Exception) -> Response:
    """Starlette's handler for everything else; the guard logs it."""
    return response_of(ours(), request.scope["path"])


def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals (404, 405) in the same shape."""
    assert isinstance(error, HTTPException)
    status, path = error.status_code, request.scope["path"]
    words = {
        404: f"Unknown path: {request.method} {path}",
        405: f"Method {request.method} is not allowed for {path}",
    }.get(status, HTTPStatus(status).phrase)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    answer = response_of(EngineError(status, words, type=kind), path)
    answer.headers.update(error.headers or {})
    return answer
