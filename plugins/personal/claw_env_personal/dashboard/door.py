"""Who may see the dashboard.

Owns: the login, the cookie, the check that a POST comes from our own page, and the headers that
keep a browser from doing more than these pages need.
Does not own: the key of the API (`guard`), what the pages show.

The cookie holds no key: a name and a random id, signed with the keys. It is `HttpOnly` and
`SameSite=Strict`; a form carries a second signature of the same id, so that another page cannot
send it. A new key ends the sessions that the old one began.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from claw.sdk import EngineError, People, Person

COOKIE = "claw"
MAX_AGE_S = 30 * 86400
MAX_FORM = 256 * 1024
"""bytes of a form: the longest holds a reply that a person has edited"""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer a browser hides where a form comes from
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Page = Callable[[Request], Awaitable[Response]]


class Door:
    """Sessions of browsers that know a key. In a run without one every browser may enter."""

    def __init__(self, people: People) -> None:
        self.needs_key = bool(people.secret())
        self._people = people
        self._key = people.secret().encode() or secrets.token_bytes(32)
        # two runs on one host share a browser's cookies, whatever their ports
        self._cookie = f"{COOKIE}_{hashlib.sha256(b'name' + self._key).hexdigest()[:8]}"

    def session(self, request: Request) -> str:
        """Return the id of a browser that has logged in, or nothing."""
        id, _, signed = request.cookies.get(self._cookie, "").rpartition(".")
        is_ours = hmac.compare_digest(signed.encode(), self._signed("session", id).encode())
        return id if id and is_ours else ""

    def person(self, request: Request) -> Person | None:
        """Who has logged in here, as they are now."""
        name, _, _ = self.session(request).rpartition("/")
        return self._people.named(name) if name else None

    def token(self, request: Request) -> str:
        """Return what a form of this browser must carry."""
        return self._signed("form", self.session(request))

    def enter(self, response: Response, person: Person, *, is_https: bool) -> Response:
        """Let this browser in from now on."""
        id = f"{person.name}/{secrets.token_urlsafe(18)}"
        response.set_cookie(
            self._cookie, f"{id}.{self._signed('session', id)}", max_age=MAX_AGE_S, path="/",
            httponly=True, samesite="strict", secure=is_https,
        )
        return response

    def leave(self, response: Response) -> Response:
        response.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict")
        return response

    def _signed(self, what: str, id: str) -> str:
        """With the run's key and a person's own: a new one of either ends the session."""
        theirs = self._people.secret(id.rpartition("/")[0])
        text = f"{what}:{theirs}:{id}".encode("utf-8", "replace")
        return hmac.new(self._key, text, "sha256").hexdigest()

    # --- around pages ------------------------------------------------------------------------

    def page(self, made: Page) -> Page:
        """A page for browsers that have logged in; others are sent to the login."""
        async def answer(request: Request) -> Response:
            if person := self.person(request):
                request.state.person = person
                return await made(request)
            if self.needs_key:
                return RedirectResponse("/login", 303)
            return self.enter(RedirectResponse(request.scope["path"], 303), Person(),
                              is_https=request.scope["scheme"] == "https")
        return answer

    def act(self, made: Page) -> Page:
        """What changes something: only from a form of our own page."""
        async def answer(request: Request) -> Response:
            check_origin(request)
            person = self.person(request)
            if person is None:
                raise EngineError(403, "Log in first.", type="permission_error")
            form = await form_of(request)
            if not hmac.compare_digest(form.get("token", "").encode(),
                                       self.token(request).encode()):
                raise EngineError(403, "This form is not of this session. Load the page again.",
                                  type="permission_error")
            request.state.form, request.state.person = form, person
            return await made(request)
        return answer


def owner_of(request: Request) -> str:
    """Whose things a page shows and a form changes: those of who has logged in."""
    return str(request.state.person.name)


def check_origin(request: Request) -> None:
    """Refuse what another page sends: the browser names the page that a POST comes from."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    own = request.headers.get("host", "")
    if site not in ("same-origin", "none") or (origin and _host_of(origin) != own):
        raise EngineError(403, "This request comes from another page.", type="permission_error")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # no address at all, so not ours
        return None


async def form_of(request: Request) -> dict[str, str]:
    """Read a small form; a field that comes twice counts once."""
    from urllib.parse import parse_qsl

    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_FORM:
            raise EngineError(413, f"The form is larger than {MAX_FORM // 1024} kB.")
        parts.append(part)
    text = b"".join(parts).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=32))
    except ValueError as error:
        raise EngineError(400, "Not a form.") from error


def guarded(response: Response) -> Response:
    """Add the headers that every page has."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
