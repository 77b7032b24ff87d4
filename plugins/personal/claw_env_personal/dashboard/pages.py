"""The pages: what is asked of the engine for each, and what its template gets.

Owns: routes that show something; every value goes through Jinja's escaping.
Does not own: who may see them (`door`), buttons (`acts`), updates (`live`).
"""

import time
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from claw.sdk import Engine, EngineError

from .door import Door, guarded, owner_of
from .drawing import chart, shade

HERE = Path(str(resources.files(__package__)))
PNG = b"\x89PNG\r\n"
"""begins a picture that is no JPEG; requests hold no third kind"""
RECENT = 30
"""turns on the first page"""


class Pages:
    """Renders what the engine knows."""

    def __init__(self, engine: Engine, door: Door, address: str = "") -> None:
        self._engine, self._door, self._address = engine, door, address
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True,
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        )
        self._templates.filters |= {"ago": ago, "clock": clock, "signed": signed,
                                    "vote": vote_words, "short": short}

    def render(self, name: str, request: Request, **values: Any) -> Response:
        """Return a page with the headers that all have."""
        values |= {"path": request.scope["path"], "token": self._door.token(request),
                   "said": request.query_params.get("said", "")[:400],
                   "needs_key": self._door.needs_key,
                   "person": getattr(request.state, "person", None)}
        status = int(values.pop("status_code", 200))
        text = self._templates.get_template(name).render(values)
        return guarded(HTMLResponse(clean(text), status_code=status))

    def row(self, turn: dict[str, Any]) -> str:
        """One line of the list of turns, for updates."""
        return clean(self._templates.get_template("_row.html").render(turn=turn))

    def failed(self, request: Request, error: EngineError) -> Response:
        return self.render("failed.html", request, error=error, status_code=error.status)

    async def _look(self, request: Request, what: str, **about: Any) -> dict[str, Any]:
        return await self._engine.look(what, owner=owner_of(request), **about)

    async def _status(self, request: Request) -> dict[str, Any]:
        return await self._engine.status(owner=owner_of(request))

    # --- pages -------------------------------------------------------------------------------

    async def home(self, request: Request) -> Response:
        """GET /: what it learned, from which words, what got worse; the newest turns."""
        turns = await self._look(request, "turns", limit=RECENT, main=True)
        learned = await self._look(request, "learning")
        versions = (await self._look(request, "versions"))["versions"]
        status = await self._status(request)
        asked = await self._look(request, "requests", limit=1)
        person = request.state.person
        budget = None if person.is_admin else await self._look(request, "budget")
        return self.render(
            "home.html", request, turns=turns["turns"], lessons=learned["lessons"],
            charts=curves(learned), worse=worse(versions, learned["max_rise"]), status=status,
            version=status.get("served_version", status.get("version", 0)),
            trend=trend(learned["versions"]),
            asked=asked, budget=budget, questions=(status.get("better") or {}).get("questions", 0),
            compared=learned["compared"], paused_until=turns.get("paused_until", 0),
        )

    async def turn(self, request: Request) -> Response:
        """GET /turns/{id}"""
        turn = await self._look(request, "turn", id=request.path_params["id"])
        if turn.get("state") == "forgotten":
            return self.render("forgotten.html", request)
        tokens = turn["tokens"]
        largest = max((abs(t["advantage"]) for t in tokens), default=0.0)
        for token in tokens:
            token["shade"] = shade(token["advantage"], largest)
        return self.render("turn.html", request, turn=turn, largest=largest)

    async def picture(self, request: Request) -> Response:
        """GET /pictures/{digest}: a picture of a request of theirs, as it was sent."""
        data = (await self._look(request, "picture", id=request.path_params["digest"]))["data"]
        kind = "image/png" if data.startswith(PNG) else "image/jpeg"
        return Response(data, media_type=kind)

    async def conversations(self, request: Request) -> Response:
        """GET /conversations"""
        found = await self._look(request, "conversations")
        return self.render("conversations.html", request, rows=found["conversations"])

    async def conversation(self, request: Request) -> Response:
        """GET /conversations/{id}; with ?forget=1 what forgetting it would do."""
        id = request.path_params["id"]
        found = await self._look(request, "conversation", id=id)
        about = None
        if request.query_params.get("forget"):
            about = await self._engine.act("forget", owner=owner_of(request), session=id,
                                           only_look=True)
        return self.render("conversation.html", request, talk=found, about=about)

    async def requests(self, request: Request) -> Response:
        """GET /requests: main or side, by which rule; the newest side turns."""
        return self.render("requests.html", request, asked=await self._look(request, "requests"))

    async def quarantine(self, request: Request) -> Response:
        """GET /quarantine"""
        found = await self._look(request, "quarantine")
        return self.render("quarantine.html", request, rows=found["turns"])

    async def versions(self, request: Request) -> Response:
        """GET /versions"""
        found = await self._look(request, "versions")
        status = await self._status(request)
        return self.render("versions.html", request, rows=found["versions"],
                           served=status.get("served_version", status.get("version", 0)),
                           max_rise=found["max_rise"], warnings=status.get("warnings") or [])

    async def version(self, request: Request) -> Response:
        """GET /versions/{number}"""
        found = await self._look(request, "version", id=request.path_params["number"])
        return self.render("version.html", request, version=found)

    async def people(self, request: Request) -> Response:
        """GET /people"""
        found = await self._look(request, "people")
        return self.render("people.html", request, rows=found["people"])

    async def compare(self, request: Request) -> Response:
        """GET /compare?a=1&b=2"""
        try:
            numbers = [int(request.query_params[name]) for name in ("a", "b")]
        except (KeyError, ValueError):
            raise EngineError(400, "Name two versions: /compare?a=1&b=2") from None
        both = [await self._look(request, "version", id=number) for number in numbers]
        return self.render("compare.html", request, both=both, rows=compared(*both))


# --- what the numbers say ------------------------------------------------------------------------


def curves(learned: dict[str, Any]) -> list[Any]:
    """Return the learning curves, those that have anything to show."""
    rows = learned["versions"]
    xs = [row["version"] for row in rows]
    liked = [_share(row.get("up", 0), row.get("up", 0) + row.get("down", 0)) for row in rows]
    length = [row["tokens"] / row["turns"] if row["turns"] else None for row in rows]
    steps = [s for s in learned["steps"] if s.get("train/version") is not None]
    at = [int(s["train/version"]) for s in steps]
    found = [
        chart("Replies you were content with", xs, {"share": liked}, unit=" %", low=0, high=100),
        chart("Length of a reply", xs, {"tokens": length}, unit=" tokens", low=0),
        chart("Harder than for the first weights (nats; lower is better)", at, {
            "fixed texts": [s.get("gate/heldout_rise") for s in steps],
            "replies you liked": [s.get("gate/replay_rise") for s in steps],
        }, unit=" nats", limit=learned["max_rise"], low=min([0.0, *(
            v for s in steps for n in ("heldout", "replay")
            if (v := s.get(f"gate/{n}_rise")) is not None)])),
    ]
    return [one for one in found if one is not None]


def trend(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first and the newest version that were judged at all, as shares of content turns."""
    judged = [r for r in rows if r.get("up", 0) + r.get("down", 0)]
    if not judged:
        return None
    first, last = judged[0], judged[-1]
    share = [_share(r.get("up", 0), r.get("up", 0) + r.get("down", 0)) for r in (first, last)]
    return {"first": first["version"], "last": last["version"], "was": share[0], "now": share[1],
            "was_of": first.get("up", 0) + first.get("down", 0),
            "now_of": last.get("up", 0) + last.get("down", 0),
            "was_tokens": first["tokens"] / first["turns"],
            "now_tokens": last["tokens"] / last["turns"]}


def worse(versions: list[dict[str, Any]], limit: float) -> dict[str, Any]:
    """What the gate and the workers said: the newest version's rise, and what was turned down."""
    good = [v for v in versions if v["status"] == "published"]
    refused = [v for v in versions if v["status"] == "refused"]
    back = [v for v in versions if v["status"] == "rolled_back"]
    rises = []
    for name, words in _RISES:
        value = good[0]["metrics"].get(f"gate/{name}_rise") if good else None
        if value is not None:
            rises.append({"words": words, "value": value, "share": min(max(value / limit, 0), 1)})
    return {"rises": rises, "limit": limit, "refused": refused[:3], "rolled_back": back[:3],
            "version": good[0]["number"] if good else 0}


def compared(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of two versions side by side."""
    def under(v: dict[str, Any], name: str) -> float | None:
        row = v.get("under_it")
        return None if not row else row.get(name, 0)

    def content(v: dict[str, Any]) -> str:
        up, down = under(v, "up") or 0, under(v, "down") or 0
        return f"{_share(up, up + down):.0f} % of {up + down}" if up + down else "nobody said"

    def length(v: dict[str, Any]) -> str:
        turns = under(v, "turns")
        return f"{(under(v, 'tokens') or 0) / turns:.0f} tokens" if turns else "no reply yet"

    rows = [("status", a["status"], b["status"]),
            ("made from", _parent(a), _parent(b)),
            ("turns that taught it", str(a["turns"]), str(b["turns"])),
            ("replies you were content with", content(a), content(b)),
            ("length of a reply", length(a), length(b))]
    names = sorted({n for v in (a, b) for n in v["metrics"] if n in _METRICS})
    return rows + [(_METRICS[n], short(a["metrics"].get(n)), short(b["metrics"].get(n)))
                   for n in names]


_RISES = (("heldout", "fixed questions and answers"), ("replay", "replies you liked"))
_METRICS = {
    "gate/heldout_rise": "harder on fixed texts (nats)",
    "gate/replay_rise": "harder on replies you liked (nats)",
    "gate/drift": "moved away from the first weights (nats)",
    "gate/step_drift": "moved by its step (nats)",
    "train/loss": "loss of its step", "train/grad_norm": "gradient norm",
    "opd/overlap_mean": "agreement with the hinted teacher",
    "train/rl_samples": "turns with a vote",
    "train/opd_samples": "turns with a hint", "perf/total_s": "seconds of its step",
}


def _parent(version: dict[str, Any]) -> str:
    return "the first weights" if version["parent"] is None else f"v{version['parent']}"


def _share(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole else None


# --- filters -------------------------------------------------------------------------------------


def ago(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name} ago"
    return "just now"


def clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def short(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def vote_words(vote: int | None) -> str:
    return {1: "content", -1: "not content", 0: "neither"}.get(vote, "no verdict")  # type: ignore[arg-type]


def clean(text: str) -> str:
    """A lone surrogate cannot be sent as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
