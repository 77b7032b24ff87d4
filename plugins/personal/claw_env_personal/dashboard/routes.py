"""The dashboard's routes, to be mounted beside those of the endpoint.

Owns: which path does what, the login, and failures as pages.
Does not own: the pages themselves.
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from claw.sdk import Engine, EngineError, People

from .acts import Acts
from .door import Door, Page, check_origin, form_of, guarded
from .live import Live
from .pages import HERE, Pages


def routes(engine: Engine, people: People) -> list[Route | Mount]:
    """Return the routes of the dashboard."""
    door = Door(people)
    pages, acts = Pages(engine, door), Acts(engine)
    live = Live(engine, pages)

    def show(path: str, made: Page) -> Route:
        return Route(path, _told(pages, door.page(made)))

    def act(name: str, made: Page) -> Route:
        return Route(f"/act/{name}", _told(pages, door.act(made)), methods=["POST"])

    return [
        show("/", pages.home), show("/turns/{id}", pages.turn),
        show("/pictures/{digest}", pages.picture),
        show("/conversations", pages.conversations),
        show("/conversations/{id}", pages.conversation),
        show("/requests", pages.requests), show("/quarantine", pages.quarantine),
        show("/versions", pages.versions), show("/versions/{number:int}", pages.version),
        show("/compare", pages.compare), show("/people", pages.people),
        show("/events", live.events),
        act("pause", acts.pause), act("exclude", acts.exclude),
        act("quarantine", acts.quarantine), act("forget", acts.forget),
        act("rollback", acts.roll_back), act("export", acts.export),
        act("feedback", acts.feedback), act("budget", acts.budget),
        Route("/login", _told(pages, _login(door, people, pages)), methods=["GET", "POST"]),
        Route("/logout", _told(pages, door.act(_leave(door))), methods=["POST"]),
        Mount("/static", _Static(directory=HERE / "static")),
    ]


class _Static(StaticFiles):
    """Style and script: no secret, so no key; with the same headers as the pages."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = guarded(await super().get_response(path, scope))
        response.headers["cache-control"] = "no-cache"
        return response


def _login(door: Door, people: People, pages: Pages) -> Page:
    async def answer(request: Request) -> Response:
        if request.method == "GET":
            return pages.render("login.html", request, is_wrong=False)
        check_origin(request)
        form = await form_of(request)
        person = people.of(form.get("key", ""))
        if person is None:
            return pages.render("login.html", request, is_wrong=True, status_code=403)
        return guarded(door.enter(RedirectResponse("/", 303), person,
                                  is_https=request.scope["scheme"] == "https"))
    return answer


def _leave(door: Door) -> Page:
    async def answer(request: Request) -> Response:
        return guarded(door.leave(RedirectResponse("/login", 303)))
    return answer


def _told(pages: Pages, made: Page) -> Page:
    """A refusal is a page here, not JSON."""
    async def answer(request: Request) -> Response:
        try:
            return guarded(await made(request))
        except EngineError as error:
            return pages.failed(request, error)
    return answer
