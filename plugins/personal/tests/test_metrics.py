"""`/metrics` as Prometheus reads it: scraped over HTTP, read by its own parser."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
from claw_env_personal.metrics import MAX_VALUES, of_status
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from claw.sdk import EngineError, Person
from claw.sdk.doubles import Line, ScriptedEngine, ScriptedPeople
from conftest import KEY

AUTH = {"authorization": f"Bearer {KEY}"}
WORKERS = [
    {"pid": 71, "running": 3, "room": 8, "tokens_per_s": 40.5,
     "versions": [["default", "default", 4], ["bo", "default", 1]]},
    {"pid": 72, "running": 0, "room": 8, "tokens_per_s": 0.0,
     "versions": [["default", "default", 3], ["bo", "default", 1]]},
]
STATUS = {
    "workers": WORKERS, "context": 4096,
    "versions": [
        {"owner": "default", "adapter": "default", "number": n, "status": status}
        for n, status in enumerate(("published", "published", "refused", "published", "published"))
    ] + [{"owner": "bo", "adapter": "default", "number": 1, "status": "published"}],
    "version_states": {"published": 5, "refused": 1},
    "turns": {"trained": 12, "waiting": 2}, "skipped": {"stale": 3, "side": 1},
    "guard": {"bulk": 3, "tool_hints": 0}, "quarantine": {"bo": 2},
    "samples": {"waiting": 5, "leased": 4, "by_owner": {"default": 3, "bo": 2}},
    "sessions": {"open": 7}, "queue": 6, "requests": {"overloaded": 2},
    "signals": {"rules/+1": 4, "rules/abstained": 5, "rules/hints": 2, "person/-1": 1},
    "judged": {"judged": 9, "failed": 1}, "judging": {"waiting": 2, "asked": 10, "seconds": 2.5},
    "trainer": {"step": 5, "state": "training"},
}


class Scrape:
    """The samples of one page, by name and labels."""

    def __init__(self, text: str, parse: Callable[[str], Iterator[Any]] = plain) -> None:
        self.families = list(parse(text))
        self.values = {(s.name, tuple(sorted(s.labels.items()))): s.value
                       for family in self.families for s in family.samples}

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.values.get((name, tuple(sorted(labels.items()))))


def scrape(address: str, **headers: str) -> Scrape:
    answer = httpx.get(f"{address}/metrics", headers=AUTH | headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Scrape(answer.text)


def client(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)


def hello(address: str, **about: Any) -> Any:
    return client(address).chat.completions.create(
        model="claw-policy", messages=[{"role": "user", "content": "hello there"}], **about)


def test_answers_are_counted_by_route_and_status_and_never_by_what_clients_write(
    served: Any
) -> None:
    address, _ = served("one two three")
    hello(address)
    list(hello(address, stream=True))
    for path in ("/wp-admin.php", "/v1/chat/completions/x", "/v1/secret"):
        httpx.get(f"{address}{path}", headers=AUTH)
    for name in ("a", "b"):
        httpx.delete(f"{address}/v1/sessions/{name}", headers=AUTH)
    httpx.post(f"{address}/v1/chat/completions", headers=AUTH, content=b"[")
    httpx.get(f"{address}/v1/models")
    seen = scrape(address)
    counted = {labels: value for (name, labels), value in seen.values.items()
               if name == "claw_http_requests_total"}
    assert counted == {
        (("route", "/v1/chat/completions"), ("status", "200")): 2,
        (("route", "/v1/chat/completions"), ("status", "400")): 1,
        (("route", "/v1/sessions/{session:path}"), ("status", "200")): 2,
        (("route", "other"), ("status", "404")): 3,
        (("route", "other"), ("status", "401")): 1,
    }


def test_tokens_and_times_are_measured_for_whole_and_streamed_answers(served: Any) -> None:
    address, _ = served(Line("one two three four", wait_s=0.3, word_s=0.06))
    began = time.monotonic()
    hello(address)
    list(hello(address, stream=True))
    took = time.monotonic() - began
    seen = scrape(address)
    assert seen("claw_tokens_total", owner="default", direction="in") == 4
    assert seen("claw_tokens_total", owner="default", direction="out") == 8
    assert seen("claw_first_token_seconds_count") == 2
    assert seen("claw_first_token_seconds_sum") >= 0.6
    assert seen("claw_first_token_seconds_bucket", le="0.25") == 0
    assert seen("claw_inter_token_seconds_count") == 6
    assert seen("claw_inter_token_seconds_sum") >= 0.36
    assert seen("claw_inter_token_seconds_bucket", le="0.05") == 0
    first, between = (seen(f"claw_{n}_token_seconds_sum") for n in ("first", "inter"))
    assert first + between < took


def test_a_client_that_leaves_is_counted_without_a_status(served: Any) -> None:
    address, engine = served(Line("one two", wait_s=30))
    with pytest.raises(openai.APITimeoutError):
        client(address).with_options(timeout=0.3).chat.completions.create(
            model="claw-policy", messages=[{"role": "user", "content": "hi"}])
    until = time.monotonic() + 20
    while time.monotonic() < until and not engine.cancelled:
        threading.Event().wait(0.02)
    route = "/v1/chat/completions"
    while time.monotonic() < until:
        seen = scrape(address)
        if seen("claw_http_requests_total", route=route, status="0"):
            break
    assert seen("claw_http_requests_total", route=route, status="0") == 1


def test_the_runs_own_numbers_are_on_the_page(served: Any) -> None:
    address, engine = served("x")
    assert scrape(address)("claw_version_served", owner="default") == 0
    engine.state = STATUS
    seen = scrape(address)
    assert seen("claw_up") == 1
    assert seen("claw_turns", state="trained") == 12
    assert seen("claw_turns_skipped_total", reason="stale") == 3
    assert seen("claw_guard_total", what="bulk") == 3 and seen("claw_quarantine", owner="bo") == 2
    assert seen("claw_samples_waiting", owner="bo") == 2 and seen("claw_samples_leased") == 4
    assert seen("claw_sessions_live") == 7 and seen("claw_queue_depth") == 6
    assert seen("claw_call_troubles_total", kind="overloaded") == 2
    assert seen("claw_workers") == 2
    assert seen("claw_worker_tokens_per_second", worker="0") == 40.5
    assert seen("claw_worker_requests", worker="0") == 3
    assert seen("claw_worker_room", worker="1") == 8
    assert seen("claw_version", owner="default") == 4
    assert seen("claw_version_served", owner="default") == 3
    assert seen("claw_version_served", owner="bo") == 1
    assert seen("claw_versions", status="refused") == 1
    assert seen("claw_train_step") == 5 and seen("claw_trainer", state="training") == 1
    assert seen("claw_judge_answers_total", judge="rules", said="+1") == 4
    assert seen("claw_judge_answers_total", judge="rules", said="abstained") == 5
    assert seen("claw_judge_seconds_count") == 10 and seen("claw_judge_seconds_sum") == 2.5
    assert seen("claw_judge_queue_depth") == 2 and seen("claw_judge_failures_total") == 1
    assert seen("claw_learning_paused") == 0
    engine.state = STATUS | {"paused_until": time.time() + 60}
    assert scrape(address)("claw_learning_paused") == 1


def test_no_label_of_what_the_run_counts_grows_without_end() -> None:
    reasons = {f"reason {n}": n + 1 for n in range(3 * MAX_VALUES)}
    told = of_status(STATUS | {"skipped": reasons})
    [skipped] = [metric for metric in told if metric.name == "claw_turns_skipped"]
    assert len(skipped.samples) == MAX_VALUES + 1
    assert sum(s.value for s in skipped.samples) == sum(reasons.values())


def test_the_page_needs_the_key(endpoint: Any) -> None:
    made = endpoint("x")
    assert made.ask("GET", "/metrics", auth=False).status_code == 401
    assert made.ask("GET", "/metrics").status_code == 200


def test_the_endpoints_own_numbers_are_told_when_the_run_does_not_answer(endpoint: Any) -> None:
    class Away(ScriptedEngine):
        async def status(self, **about: Any) -> dict[str, Any]:
            await asyncio.sleep(0)
            raise EngineError(503, "the engine does not answer", type="server_error")

    made = endpoint(engine=Away("hello"))
    made.chat()
    seen = Scrape(made.ask("GET", "/metrics").text)
    assert seen("claw_up") == 0 and seen("claw_turns", state="trained") is None
    assert seen("claw_http_requests_total", route="/v1/chat/completions", status="200") == 1


def test_who_asks_for_openmetrics_gets_it(endpoint: Any) -> None:
    made = endpoint("x")
    made.engine.state = STATUS
    answer = made.ask("GET", "/metrics", headers={"accept": "application/openmetrics-text"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert Scrape(answer.text, open_metrics)("claw_turns", state="trained") == 12


def test_only_an_administrator_sees_the_numbers_of_all(served):
    keys = ScriptedPeople({"of-anna": Person("anna", is_admin=False), KEY: Person()})
    address, _ = served(engine=ScriptedEngine(), people=keys)
    answer = httpx.get(f"{address}/metrics", headers={"authorization": "Bearer of-anna"})
    assert answer.status_code == 403 and "claw_" not in answer.text
    assert httpx.get(f"{address}/metrics", headers=AUTH).status_code == 200
