"""`GET /metrics`: what the endpoint measured itself, and what the run says of itself when asked.

Owns: names, labels and buckets. No label has values that a client chooses.
Does not own: counting inside the run (its status), who may read it (`guard`).
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from claw.sdk import Engine, EngineError, Event

from .errors import forbidden

PATH = "/metrics"
OTHER = "other"
MAX_VALUES = 100
"""of one label of what the run counts; what is rarer is counted as `other`"""
FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BETWEEN_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
ADAPTER = "default"
"""the adapter whose versions are shown; each owner has one of that name"""


class Metrics:
    """The endpoint's own counters, and the page."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        own = self._own = CollectorRegistry()
        self._paths: dict[Any, str] = {}
        self._requests = Counter("claw_http_requests", "Answers by route and status; status 0: the "
                                "client left first.", ["route", "status"], registry=own)
        self._tokens = Counter("claw_tokens", "Tokens of whole answers: in the prompts, and "
                               "sampled.", ["owner", "direction"], registry=own)
        self._first = Histogram("claw_first_token_seconds", "From the request to its first text.",
                                buckets=FIRST_S, registry=own)
        self._between = Histogram("claw_inter_token_seconds", "From one piece of text to the next; "
                                  "tokens that came together are one piece.", buckets=BETWEEN_S,
                                  registry=own)

    def know(self, routes: Iterable[Route]) -> None:
        """Count answers under these paths; all others are one."""
        self._paths = {route.endpoint: route.path for route in routes}

    def count(self, scope: Scope, status: int) -> None:
        """Count an answer; the router leaves in the scope what it found."""
        path = self._paths.get(scope.get("endpoint"), OTHER)
        self._requests.labels(path, str(status)).inc()

    async def watch(
        self, owner: str, events: AsyncIterator[Event]
    ) -> AsyncGenerator[Event, None]:
        """Pass the events of an answer on, and measure them."""
        seen, since = self._first, time.perf_counter()
        async with aclosing(events) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == "text":
                    now = time.perf_counter()
                    seen.observe(now - since)
                    seen, since = self._between, now
                elif event.type == "done":
                    for direction, name in (("in", "prompt_tokens"), ("out", "completion_tokens")):
                        self._tokens.labels(owner, direction).inc(event.usage.get(name, 0))
                yield event

    async def page(self, request: Request) -> Response:
        """GET /metrics: Prometheus' text, or OpenMetrics where it is asked for"""
        if not request.state.person.is_admin:
            raise forbidden("Only an administrator's key reads the metrics of all.")
        try:
            status: dict[str, Any] | None = await self._engine.status()
        except EngineError:
            status = None  # the endpoint's own numbers are still true
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(_Both(self._own, status)), media_type=kind)


class _Both:
    """What an encoder wants of a registry."""

    def __init__(self, own: CollectorRegistry, status: dict[str, Any] | None) -> None:
        self._own, self._status = own, status

    def collect(self) -> Iterator[Metric]:
        yield from self._own.collect()
        yield _gauge("claw_up", "Whether the run answers the endpoint.", self._status is not None)
        if self._status is not None:
            yield from of_status(self._status)


def of_status(status: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of what `/v1/status` says."""
    yield from _turns(status)
    yield from _workers(status.get("workers") or [])
    yield from _judges(status)
    yield _by("claw_versions", "Versions by what became of them.", "status",
              status.get("version_states") or {})
    yield from _versions(status.get("versions") or [], status.get("workers") or [])
    trainer = status.get("trainer") or {}
    yield _gauge("claw_train_step", "Steps that the trainer has made.", trainer.get("step") or 0)
    yield _by("claw_trainer", "1 for what the trainer does.", "state",
              {str(trainer.get("state") or "none"): 1})
    paused = float(status.get("paused_until") or 0) > time.time()
    yield _gauge("claw_learning_paused", "Whether a person has paused learning.", paused)


def _turns(status: Mapping[str, Any]) -> Iterator[Metric]:
    yield _by("claw_turns", "Turns by their state.", "state", status.get("turns") or {})
    yield _count("claw_turns_skipped", "Turns that teach nothing, and samples that were dropped "
                 "with them, by reason.", "reason", status.get("skipped") or {})
    yield _count("claw_guard", "What the guards found, by rule, and what became of held turns.",
                 "what", status.get("guard") or {})
    yield _by("claw_quarantine", "Turns that are held until a person has looked.", "owner",
              status.get("quarantine") or {})
    samples = status.get("samples") or {}
    yield _by("claw_samples_waiting", "Samples that wait for a step.", "owner",
              samples.get("by_owner") or {})
    yield _gauge("claw_samples_leased", "Samples of the step in hand.", samples.get("leased") or 0)
    sessions = status.get("sessions") or {}
    yield _gauge("claw_sessions_live", "Conversations that have not ended.",
                 sessions.get("open") or 0)
    yield _gauge("claw_queue_depth", "Requests that wait for a worker.", status.get("queue") or 0)
    yield _count("claw_call_troubles", "What went wrong on the way to workers and back.", "kind",
                 status.get("requests") or {})


def _workers(workers: list[dict[str, Any]]) -> Iterator[Metric]:
    yield _gauge("claw_workers", "Rollout workers that are connected.", len(workers))
    for name, about, field in (
        ("claw_worker_tokens_per_second", "Tokens that a worker samples.", "tokens_per_s"),
        ("claw_worker_requests", "Requests that a worker has in hand.", "running"),
        ("claw_worker_room", "Requests that a worker takes at once.", "room"),
    ):
        # by place, not by process id: that one is new after each restart
        yield _by(name, about, "worker", {str(i): w.get(field) or 0 for i, w in enumerate(workers)})


def _judges(status: Mapping[str, Any]) -> Iterator[Metric]:
    answers = CounterMetricFamily("claw_judge_answers", "Votes, abstentions and hints.",
                                  labels=["judge", "said"])
    for key, number in _bounded(status.get("signals") or {}).items():
        judge, _, said = key.rpartition("/")
        answers.add_metric([judge or OTHER, said], number)
    yield answers
    judging = status.get("judging") or {}
    yield SummaryMetricFamily("claw_judge_seconds", "How long a judge took for a turn.",
                              judging.get("asked") or 0, judging.get("seconds") or 0.0)
    yield _gauge("claw_judge_queue_depth", "Turns that wait for a judge.",
                 judging.get("waiting") or 0)
    failed = CounterMetricFamily("claw_judge_failures", "Turns that no judge could judge.")
    failed.add_metric([], (status.get("judged") or {}).get("failed") or 0)
    yield failed


def _versions(versions: list[dict[str, Any]], workers: list[dict[str, Any]]) -> Iterator[Metric]:
    # before the first step there is no version but the model's own, which workers serve as 0
    good: dict[str, float] = {o: 0 for w in workers for o, a, _ in w["versions"] if a == ADAPTER}
    for v in versions:
        if v["adapter"] == ADAPTER and v["status"] == "published":
            good[v["owner"]] = max(v["number"], good.get(v["owner"], 0))
    yield _by("claw_version", "Newest good version.", "owner", good)
    served = {owner: min((max((n for o, a, n in w["versions"] if (o, a) == (owner, ADAPTER)),
                              default=0) for w in workers), default=0) for owner in good}
    yield _by("claw_version_served", "The oldest version that a worker gives to new requests.",
              "owner", served)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=float(value))


def _by(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    made = GaugeMetricFamily(name, about, labels=[label])
    for value, number in _bounded(values).items():
        made.add_metric([value], number)
    return made


def _count(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    made = CounterMetricFamily(name, about, labels=[label])
    for value, number in _bounded(values).items():
        made.add_metric([value], number)
    return made


def _bounded(values: Mapping[str, float]) -> dict[str, float]:
    """The largest values; what else there is becomes one."""
    found = sorted(values.items(), key=lambda one: -one[1])
    kept = dict(found[:MAX_VALUES])
    if rest := sum(number for _, number in found[MAX_VALUES:]):
        kept[OTHER] = kept.get(OTHER, 0) + rest
    return kept
