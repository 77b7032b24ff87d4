"""The buttons: each a form that is sent to our own page and answered by going back.

Owns: what a form means. Does not own: whether it may be sent (`door`), what then happens (engine).
"""

from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from claw.sdk import Engine, EngineError

from ..guard import check_scope
from .door import guarded, owner_of

MAX_PAUSE_H = 24 * 365
MAX_LIMIT = 10**12


class Acts:
    """One method a button; the form is in `request.state.form`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def _act(self, request: Request, what: str, **about: Any) -> dict[str, Any]:
        return await self._engine.act(what, owner=owner_of(request), **about)

    async def pause(self, request: Request) -> Response:
        hours = _number(request, "hours", 0, MAX_PAUSE_H)
        await self._act(request, "pause", seconds=hours * 3600.0)
        return _back("/", "Learning goes on." if not hours else
                     "Learning is paused: what is said until then teaches nothing.")

    async def exclude(self, request: Request) -> Response:
        id, is_on = _text(request, "trace_id"), _text(request, "on") == "1"
        done = await self._act(request, "exclude", trace_id=id, on=is_on)
        taken = int(done.get("taken_back") or 0)
        return _back(f"/conversations/{quote(id, safe='')}",
                     f"Never learned from this conversation from now on; {taken} turns taken back."
                     if is_on else "This conversation may be learned from again.")

    async def quarantine(self, request: Request) -> Response:
        id, do = _text(request, "turn_id"), _text(request, "do")
        done = (await self._act(request, "quarantine", do=do, turn_ids=[id])).get("done") or {}
        status = done.get(id, "settled meanwhile")
        return _back("/quarantine", "Dropped: it never teaches." if do == "drop" else
                     f"Released: {status}.")

    async def forget(self, request: Request) -> Response:
        id = _text(request, "trace_id")
        done = await self._act(request, "forget", session=id)
        learned = ", ".join(f"v{n}" for n in done.get("learned") or ())
        said = f"Forgotten: {done.get('forgotten', 0)} turns and all derived from them."
        if not learned:
            return _back("/conversations", f"{said} No version has learned from them.")
        said += (f" {learned} had learned from them; v{done.get('back_to')} is the newest version "
                 "that has not. Roll back to it below if you want that gone too.")
        return _back("/versions", said)

    async def roll_back(self, request: Request) -> Response:
        number = _number(request, "number", 0, 1 << 31)
        done = await self._act(request, "rollback", to=number)
        return _back("/versions", f"v{done.get('number')} serves the weights of v{number}.")

    async def export(self, request: Request) -> Response:
        done = await self._act(request, "export", number=_number(request, "number", 0, 1 << 31))
        return _back("/versions", f"Written to {done.get('folder')}")

    async def budget(self, request: Request) -> Response:
        """Set what somebody may use, or pause it; the engine lets an administrator only."""
        name, pause = _text(request, "person"), _optional(request, "pause")
        if pause:
            await self._act(request, "budget", name=name, is_paused=pause == "1")
            return _back("/people", f"The budget of {name} is paused: nothing is answered to them."
                         if pause == "1" else f"{name} may go on.")
        tokens = _number(request, "tokens_per_day", 0, MAX_LIMIT)
        await self._act(request, "budget", name=name, tokens_per_day=tokens,
                        requests_per_minute=_number(request, "requests_per_minute", 0, MAX_LIMIT))
        return _back("/people", f"The limits of {name} count from their next request on.")

    async def feedback(self, request: Request) -> Response:
        """A thumb, words, or the reply as the person would have had it: outranks every judge."""
        check_scope(request, "feedback")
        id, edit = _text(request, "turn_id"), _optional(request, "edit")
        value, text = _number(request, "value", -1, 1), _optional(request, "text")
        done = await self._engine.feedback(id, value, text, edit,
                                           owner=owner_of(request))
        return _back(f"/turns/{quote(id, safe='')}", f"Taken: {done.get('status', 'kept')}.")


def _optional(request: Request, name: str) -> str:
    return str(request.state.form.get(name, "")).strip()


def _text(request: Request, name: str) -> str:
    value = _optional(request, name)
    if not value or len(value) > 256 or not value.isprintable():
        raise EngineError(400, f"The form has no usable {name}.", param=name)
    return value


def _number(request: Request, name: str, low: int, high: int) -> int:
    try:
        value = int(_optional(request, name))
    except ValueError:
        raise EngineError(400, f"{name} must be a whole number.", param=name) from None
    if not low <= value <= high:
        raise EngineError(400, f"{name} is out of range; allowed: {low} to {high}.", param=name)
    return value


def _back(path: str, said: str) -> Response:
    return guarded(RedirectResponse(f"{path}?{urlencode({'said': said})}", 303))
