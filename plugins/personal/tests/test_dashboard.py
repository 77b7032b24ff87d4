"""The dashboard without a browser: who gets in, what a form needs, what a page may hold."""

import asyncio
import html
import re
from typing import Any

import httpx
import pytest
from claw_env_personal.app import build
from claw_env_personal.dashboard import drawing, live, pages
from claw_env_personal.dashboard.door import Door
from claw_env_personal.settings import PersonalConfig
from some_pages import EVIL, PAGES, PICTURE, PIXELS, engine, row, version

from claw.sdk import Person
from claw.sdk.doubles import ScriptedPeople
from conftest import KEY

HOST = "http://app"


class Browser:
    """Keeps cookies and fills in forms; no script runs in it."""

    def __init__(
        self, made: Any, key: str = KEY, people: ScriptedPeople | None = None
    ) -> None:
        self.engine = made
        people = people or ScriptedPeople({key: Person()} if key else None)
        self.app = build(made, PersonalConfig(), {"people": people, "model": "m"})
        self.cookies = httpx.Cookies()

    def ask(self, method: str, path: str, **rest: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url=HOST, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **rest)
                self.cookies = client.cookies
                return answer

        return asyncio.run(asyncio.wait_for(send(), 30))

    def get(self, path: str) -> httpx.Response:
        return self.ask("GET", path)

    def log_in(self, key: str = KEY) -> "Browser":
        self.ask("POST", "/login", data={"key": key})
        return self

    def send(self, name: str, **form: Any) -> httpx.Response:
        """Send a form as the page holds it."""
        found = re.search(r'name="token" value="(\w+)"', self.get("/").text)
        assert found, "a page for those who are in holds forms"
        return self.ask("POST", f"/act/{name}", data={"token": found[1]} | form)


@pytest.fixture
def browser() -> Browser:
    return Browser(engine()).log_in()


@pytest.mark.parametrize("path", [*PAGES, "/events"])
def test_without_the_key_every_page_sends_to_the_login(path: str) -> None:
    answer = Browser(engine()).get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert not answer.text


@pytest.mark.parametrize("path", PAGES)
def test_with_the_key_every_page_is_there(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    assert "What is rain?" in answer.text or "v2" in answer.text


def test_a_wrong_key_lets_nobody_in() -> None:
    made = Browser(engine())
    assert made.ask("POST", "/login", data={"key": KEY + "x"}).status_code == 403
    assert made.get("/").status_code == 303


def test_the_cookie_is_no_key_and_only_for_our_own_pages() -> None:
    cookie = Browser(engine()).ask("POST", "/login", data={"key": KEY}).headers["set-cookie"]
    assert KEY not in cookie
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie


@pytest.mark.parametrize("value", ["", "x", ".", "id.0000", "id." + "0" * 64, "\u00e9.\u00e9"])
def test_a_made_up_cookie_lets_nobody_in(value: str) -> None:
    made = Browser(engine())
    made.log_in()
    [name] = [c.name for c in made.cookies.jar]
    answer = made.ask("GET", "/", headers={"cookie": f"{name}={value}".encode()})
    assert answer.status_code in (200, 303)
    made.cookies = httpx.Cookies()
    assert made.ask("GET", "/", headers={"cookie": f"{name}={value}".encode()}).status_code == 303


def test_a_cookie_of_another_key_lets_nobody_in() -> None:
    old, new = Browser(engine(), key="old").log_in("old"), Browser(engine(), key="new")
    assert old.get("/").status_code == 200
    new.cookies = old.cookies
    assert new.get("/").status_code == 303


def test_logging_out_ends_the_session(browser: Browser) -> None:
    found = re.search(r'name="token" value="(\w+)"', browser.get("/").text)
    assert found
    browser.ask("POST", "/logout", data={"token": found[1]})
    assert browser.get("/").status_code == 303


@pytest.mark.parametrize("name", ["pause", "exclude", "quarantine", "forget", "rollback", "export",
                                  "feedback", "budget"])
def test_a_form_that_is_not_of_our_page_changes_nothing(browser: Browser, name: str) -> None:
    form = {"hours": "1", "trace_id": "trace_a", "number": "1", "turn_id": "turn_a", "value": "1",
            "do": "release", "person": "anna", "pause": "1"}
    token = re.search(r'name="token" value="(\w+)"', browser.get("/").text)
    assert token
    good = form | {"token": token[1]}
    refused = [
        browser.ask("POST", f"/act/{name}", data=form),
        browser.ask("POST", f"/act/{name}", data=form | {"token": "0" * 64}),
        browser.ask("POST", f"/act/{name}", data=good, headers={"origin": "http://evil.example"}),
        browser.ask("POST", f"/act/{name}", data=good, headers={"origin": "null"}),
        browser.ask("POST", f"/act/{name}", data=good, headers={"sec-fetch-site": "cross-site"}),
        Browser(browser.engine).ask("POST", f"/act/{name}", data=good),
    ]
    assert [answer.status_code for answer in refused] == [403] * 6
    assert not browser.engine.acts and not browser.engine.votes


def test_no_page_can_be_framed_or_run_foreign_code(browser: Browser) -> None:
    for path in (*PAGES, "/login", "/static/app.js", "/nothing-here/x"):
        answer = browser.get(path)
        policy = answer.headers.get("content-security-policy", "")
        if answer.status_code == 404:
            continue
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy and "unsafe-eval" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_what_a_person_or_model_typed_is_text_on_every_page(path: str) -> None:
    made = Browser(engine(EVIL, EVIL))
    made.engine.pages["turn/turn_a"]["tokens"][0]["text"] = EVIL
    made.engine.pages["versions"]["versions"][0]["note"] = EVIL
    made.engine.pages["people"]["people"][0]["name"] = EVIL
    text = made.log_in().get(path).text
    assert "<script>window" not in text and "<img src=x" not in text
    assert html.escape(EVIL).replace("&#x27;", "&#39;") in text


def test_a_message_in_the_address_is_text(browser: Browser) -> None:
    text = browser.get("/?said=" + EVIL).text
    assert "<img" not in text and "&lt;img" in text


def test_a_lone_surrogate_is_no_broken_page() -> None:
    made = Browser(engine("half \ud83d of it")).log_in()
    assert made.get("/").status_code == 200 and "half \ufffd of it" in made.get("/").text


def test_nothing_is_fetched_from_elsewhere(browser: Browser) -> None:
    texts = [browser.get(path).text for path in (*PAGES, "/static/app.css", "/static/app.js")]
    assert not re.findall(r'(?:src|href|action)="(?:https?:)?//', "".join(texts))
    assert "@import" not in texts[-2] and "url(" not in texts[-2]


# --- what the pages say --------------------------------------------------------------------------


def test_the_first_page_answers_what_from_which_words_and_whether_worse(browser: Browser) -> None:
    text = browser.get("/").text
    assert "“Shorter, please.”" in text and "3 turns, v1 to v2" in text
    assert "25 %" in text and "75 %" in text  # 2 of 8, then 6 of 8
    assert "15 tokens; it had 40" in text
    assert "3 better, 1 worse, 4 neither" in text
    assert "as before" in text and "+0.02 nats per token; limit +0.50" in text


def test_a_refused_version_is_told_on_the_first_page() -> None:
    rows = [version(3, status="refused", note="the loss rose"), version(2)]
    told = pages.worse(rows, 0.5)
    assert told["version"] == 2 and [v["number"] for v in told["refused"]] == [3]


def test_how_far_a_version_moved_and_that_learning_has_stopped_is_told() -> None:
    made = Browser(engine()).log_in()
    made.engine.state["warnings"] = ["Learning has stopped. claw rollback N"]
    for path in ("/", "/versions"):
        assert "Learning has stopped. claw rollback N" in made.get(path).text
    assert "moved from the first weights: +0.25" in made.get("/versions").text
    assert "moved away from the first weights (nats)" in made.get("/compare?a=1&b=2").text


def test_requests_are_counted_by_rule_and_mark_and_side_turns_say_why(browser: Browser) -> None:
    text = browser.get("/requests").text
    assert "3 main, 9 side of the newest 12" in text
    rows = dict(re.findall(r'<th scope="row">([^<]+)<td class="count">(\d+)', text))
    assert rows == {"main by default": "3", "side by name: heartbeat": "9", "name": "12",
                    "session": "11", "new": "1", "side": "9"}
    assert re.findall(r'class="why">(side by [^·]+) ·', text) == [
        "side by name: heartbeat", "side by text: subagent"]
    assert text.count("a sub-agent's") == 1 and "/turns/turn_s" in text


def test_when_nothing_can_be_learned_the_first_page_says_why(browser: Browser) -> None:
    assert 'role="alert"' not in browser.get("/").text
    browser.engine.pages["requests"]["trouble"] = "12 requests, none trainable: every one a side"
    for path in ("/", "/requests"):
        assert re.search(r'role="alert">12 requests, none trainable', browser.get(path).text)


@pytest.mark.parametrize(("asked", "said"), [
    (0, "start the run with <code>better.questions=8</code>"),
    (8, "Each version answers 8 questions"),
])
def test_before_two_versions_were_compared_the_page_says_how_they_are(
    browser: Browser, asked: int, said: str
) -> None:
    browser.engine.state["better"] = {"questions": asked}
    assert said not in browser.get("/").text  # a comparison is there
    browser.engine.pages["learning"]["compared"] = None
    assert said in browser.get("/").text


def test_a_subagents_conversation_and_the_turn_that_asked_for_it_lead_to_each_other(
    browser: Browser
) -> None:
    for path in ("/conversations/trace_a", "/turns/turn_a"):
        assert 'href="/conversations/trace_c"' in browser.get(path).text
    child = browser.get("/conversations/trace_c").text
    assert 'href="/turns/turn_a"' in child and 'href="/conversations/trace_a"' in child


def test_a_turns_page_shows_each_tokens_worth_and_each_hints_overlap(browser: Browser) -> None:
    text = browser.get("/turns/turn_a").text
    shades = re.findall(r'class="tok (\w+)" title="([+-]\S+) ', text)
    assert shades == [("down1", "-0.50"), ("down4", "-2.00"), ("up2", "+1.00")]
    assert "3.25 of the likeliest ids per token" in text and "chosen" in text
    assert "from rules" in text and text.count("shown by the whole conversation") == 1
    assert re.findall(r'class="vote (\w+)">([\w ]+)<', text) == [
        ("poor", "not content"), ("none", "hint")]
    assert 'answered by <a href="/versions/1">v1' in text
    assert 'taught <a href="/versions/2">v2' in text
    assert "and a part of type input_audio" in text
    assert f'<img src="/pictures/{PICTURE}"' in text


def test_a_picture_of_a_request_is_shown_as_a_picture_and_nothing_else(browser: Browser) -> None:
    answer = browser.get(f"/pictures/{PICTURE}")
    assert (answer.content, answer.headers["content-type"]) == (PIXELS, "image/png")
    browser.engine.pages[f"picture/{PICTURE}"] = {"data": b"<html><script>alert(1)</script>"}
    assert browser.get(f"/pictures/{PICTURE}").headers["content-type"] == "image/jpeg"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/pictures/" + "0" * 64).status_code == 404
    assert Browser(browser.engine).get(f"/pictures/{PICTURE}").status_code == 303


@pytest.mark.parametrize(("advantage", "css"), [
    (0.0, "level"), (0.01, "level"), (0.1, "up1"), (0.5, "up2"), (1.0, "up4"),
    (-0.1, "down1"), (-1.0, "down4"),
])
def test_a_shade_is_the_share_of_the_strongest_push(advantage: float, css: str) -> None:
    assert drawing.shade(advantage, 1.0) == css
    assert drawing.shade(0.0, 0.0) == "level"


def test_a_chart_stays_inside_its_picture_and_shows_its_limit() -> None:
    made = drawing.chart("x", [1, 2, 5], {"a": [0.0, None, 2.0]}, limit=3.0)
    assert made is not None and made.limit is not None
    [line] = made.lines
    assert [d["text"] for d in line["dots"]] == ["v1: 0", "v5: 2"]
    assert all(0 <= d["x"] <= made.width and 0 <= d["y"] <= made.height for d in line["dots"])
    assert made.limit < line["dots"][1]["y"] < line["dots"][0]["y"]  # upwards is more
    assert drawing.chart("x", [], {}) is None and drawing.chart("x", [1], {"a": [None]}) is None
    assert drawing.chart("x", [4], {"a": [1.0]}) is not None  # one point


@pytest.mark.parametrize(("path", "status"), [
    ("/turns/none", 404), ("/versions/9", 404), ("/compare?a=x", 400), ("/conversations/zzz", 404),
])
def test_what_is_not_there_is_a_page_that_says_so(browser: Browser, path: str, status: int) -> None:
    answer = browser.get(path)
    assert answer.status_code == status and "That did not work" in answer.text


# --- what the buttons do -------------------------------------------------------------------------


def test_each_button_asks_the_engine_for_what_it_says(browser: Browser) -> None:
    browser.send("pause", hours="1")
    browser.send("exclude", trace_id="trace_a", on="1")
    browser.send("rollback", number="1")
    browser.send("export", number="2")
    assert browser.engine.acts == [
        ("pause", {"seconds": 3600.0}), ("exclude", {"trace_id": "trace_a", "on": True}),
        ("rollback", {"to": 1}), ("export", {"number": 2}),
    ]


def test_forgetting_is_asked_about_first_and_names_the_versions(browser: Browser) -> None:
    text = browser.get("/conversations/trace_a?forget=1").text
    assert "v1 learned from it" in text and "roll back to v0" in text
    assert browser.engine.acts == [("forget", {"session": "trace_a", "only_look": True})]
    answer = browser.send("forget", trace_id="trace_a")
    assert browser.engine.acts[-1] == ("forget", {"session": "trace_a"})
    told = browser.get(answer.headers["location"]).text
    assert "2 turns" in told and "v0 is the newest version that has not" in told


def test_a_held_turn_is_released_or_dropped_by_its_buttons(browser: Browser) -> None:
    text = browser.get("/quarantine").text
    assert "quarantine: bulk: the same words" in text and "Shorter, please." in text
    told = [browser.send("quarantine", turn_id="turn_b", do=do).headers["location"]
            for do in ("release", "drop")]
    assert "queued" in told[0] and "never+teaches" in told[1]
    assert browser.engine.acts == [
        ("quarantine", {"do": do, "turn_ids": ["turn_b"]}) for do in ("release", "drop")]


def test_a_persons_own_reply_goes_along_with_the_thumb(browser: Browser) -> None:
    browser.ask("POST", "/v1/chat/completions", headers={"authorization": f"Bearer {KEY}"},
                json={"model": "claw-policy", "messages": [{"role": "user", "content": "x"}]})
    answer = browser.send("feedback", turn_id="turn_0000", value="-1", text=" too long ",
                          edit="Rain falls.")
    assert answer.status_code == 303
    assert browser.engine.votes == [("turn_0000", -1, "too long")]
    assert browser.engine.edits == ["Rain falls."]


@pytest.mark.parametrize(("name", "form"), [
    ("pause", {"hours": "-1"}), ("pause", {"hours": "x"}), ("pause", {}), ("forget", {}),
    ("rollback", {"number": "1.5"}), ("feedback", {"turn_id": "t", "value": "2"}),
    ("forget", {"trace_id": "x" * 300}), ("budget", {"person": "anna"}),
    ("budget", {"person": "anna", "tokens_per_day": "-1", "requests_per_minute": "0"}),
    ("budget", {"pause": "1"}),
])
def test_a_form_with_nonsense_is_refused_in_words(
    browser: Browser, name: str, form: dict[str, str]
) -> None:
    answer = browser.send(name, **form)
    assert answer.status_code == 400 and "That did not work" in answer.text
    assert not browser.engine.acts


def test_a_form_that_is_too_large_is_refused(browser: Browser) -> None:
    answer = browser.ask("POST", "/act/pause", content=b"a" * (300 * 1024))
    assert answer.status_code == 413


def test_without_a_key_the_page_opens_and_forms_still_need_their_token() -> None:
    made = Browser(engine(), key="")
    assert made.get("/").status_code == 303  # takes a session first
    assert made.get("/").status_code == 200
    assert made.ask("POST", "/act/pause", data={"hours": "1"}).status_code == 403
    assert made.send("pause", hours="1").status_code == 303 and made.engine.acts


# --- updates -------------------------------------------------------------------------------------


def test_one_watcher_tells_every_page_of_a_person_of_a_changed_turn_once() -> None:
    async def run() -> tuple[list[str], list[str], int]:
        made = engine()
        changed: dict[str, Any] = {}

        async def look(what: str, *, owner: str, **about: Any) -> dict[str, Any]:
            nonlocal changed
            if owner != "anna":
                return {"turns": []}
            changed = changed or row(updated=about["since"] + 10, request=EVIL)
            return {"turns": [changed] if changed["updated"] > about["since"] else []}

        made.look = look  # type: ignore[method-assign]
        watched = live.Live(made, pages.Pages(made, Door(ScriptedPeople())), every_s=0.01)
        others = watched._stream("bo")
        assert [await anext(others), await anext(others)][1].startswith("event: status")
        streams = [watched._stream("anna") for _ in range(2)]
        opened = [await anext(s) for s in streams]  # both look before anything changes
        firsts = [[opened[i], await anext(s), await anext(s)] for i, s in enumerate(streams)]
        await asyncio.sleep(0.1)  # several rounds in which nothing changed
        assert all(queue.empty() for queues in watched._open.values() for queue in queues)
        for stream in (*streams, others):
            await stream.aclose()
        # nobody looks any more: the watchers end
        await asyncio.wait_for(asyncio.gather(*watched._watchers.values()), 5)
        return (*firsts, len(watched._open))

    one, two, left = asyncio.run(asyncio.wait_for(run(), 20))
    assert one[1:] == two[1:] and left == 0
    assert one[1].startswith("event: turn\n") and "&lt;script&gt;" in one[1]
    assert "<script>" not in one[1]
    assert one[2].startswith("event: status\n")


# --- several people ------------------------------------------------------------------------------


@pytest.fixture
def keys() -> ScriptedPeople:
    return ScriptedPeople({KEY: Person(), "of-anna": Person("anna", is_admin=False)})


def entered(keys: ScriptedPeople, key: str) -> Browser:
    return Browser(engine(), people=keys).log_in(key)


def test_a_person_sees_and_changes_only_their_own(keys: ScriptedPeople) -> None:
    browser = entered(keys, "of-anna")
    for path in ("/", "/conversations", "/versions"):
        assert browser.get(path).status_code == 200
    assert browser.send("pause", hours="1").status_code == 303
    assert set(browser.engine.owners) == {"anna"}
    assert browser.engine.acts == [("pause", {"seconds": 3600.0})]
    assert "anna" in browser.get("/").text and "/people" not in browser.get("/").text


def test_a_session_ends_with_the_key_that_began_it(keys: ScriptedPeople) -> None:
    hers, mine = entered(keys, "of-anna"), entered(keys, KEY)
    mine.app = hers.app
    assert hers.get("/").status_code == 200 and "/people" in mine.get("/").text
    keys.keys["another-of-anna"] = keys.keys.pop("of-anna")
    assert hers.get("/").headers["location"] == "/login" and mine.get("/").status_code == 200


def test_a_cookie_cannot_be_made_to_name_somebody_else(keys: ScriptedPeople) -> None:
    browser = entered(keys, "of-anna")
    (name, value), = browser.cookies.items()
    browser.cookies.set(name, value.replace("anna", "default"))
    assert browser.get("/").headers["location"] == "/login"


def test_the_administrator_sees_what_people_use(keys: ScriptedPeople) -> None:
    browser = entered(keys, KEY)
    page = browser.get("/people").text
    for said in ("a-name-of-forty", "120 of 500 tokens", "at most 3 requests a minute"):
        assert said in page


def test_a_person_sees_their_own_budget_and_the_administrator_has_none(
    keys: ScriptedPeople
) -> None:
    browser = entered(keys, "of-anna")
    text = browser.get("/").text
    assert "Your budget" in text and "120 of 500 tokens" in text and "Paused" not in text
    browser.engine.pages["budget"]["is_paused"] = True
    assert "Nothing is answered to your key until" in browser.get("/").text
    assert "Your budget" not in entered(keys, KEY).get("/").text


def test_the_administrator_sets_and_pauses_a_budget_on_the_page(keys: ScriptedPeople) -> None:
    browser = entered(keys, KEY)
    name = "a-name-of-forty-characters-as-the-longest"
    form = re.search(r'action="/act/budget".*?</form>', browser.get("/people").text, re.S)
    assert form and f'value="{name}"' in form[0] and 'value="500"' in form[0]
    browser.send("budget", person=name, tokens_per_day="900", requests_per_minute="0")
    assert "is paused" in browser.get(
        browser.send("budget", person=name, pause="1").headers["location"]).text
    browser.send("budget", person=name, pause="0")
    assert browser.engine.acts == [
        ("budget", {"name": name, "tokens_per_day": 900, "requests_per_minute": 0}),
        ("budget", {"name": name, "is_paused": True}),
        ("budget", {"name": name, "is_paused": False})]
    browser.engine.pages["people"]["people"][0]["is_paused"] = True
    text = browser.get("/people").text
    assert "Let it go on" in text and "Pause the budget" not in text


def test_a_key_that_is_not_for_feedback_gives_none_here_either() -> None:
    people = ScriptedPeople({"of-anna": Person("anna", False, scopes=("chat",))})
    browser = Browser(engine(), people=people).log_in("of-anna")
    answer = browser.send("feedback", turn_id="turn_1", value="1")
    assert answer.status_code == 403 and "not for feedback" in answer.text
    assert browser.engine.votes == [] and browser.send("pause", hours="1").status_code == 303
