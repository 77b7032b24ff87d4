"""The dashboard in a real Chromium: keys, a live list, a phone, and what a page must not run."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from some_pages import EVIL, PAGES, engine, row

from claw.sdk import EngineError
from conftest import KEY

pytestmark = [pytest.mark.chromium, pytest.mark.slow]


class Growing:
    """An engine whose list of turns a test can change while a page is open."""

    def __init__(self, made: Any) -> None:
        self._made, self.changed, self.away = made, [], 0
        self.__dict__.update(made.__dict__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    async def look(self, what: str, **about: Any) -> dict[str, Any]:
        if "since" in about:
            if self.away:
                self.away -= 1
                raise EngineError(503, "away")
            found, self.changed = self.changed, []
            return {"turns": [one | {"updated": about["since"] + 1} for one in found]}
        return await self._made.look(what, **about)


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # a container's root has no sandbox of Chromium's own, and little shared memory
        found = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def open_page(chrome: Any, served: Any, complaints: list[str]) -> Iterator[Any]:
    """Serve an engine and open a browser on it that has logged in; complaints fail the test."""
    contexts = []

    def start(made: Any, **options: Any) -> tuple[Any, str]:
        address, _ = served(engine=made)
        context = chrome.new_context(**options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.goto(address + "/")
        page.fill("#key", KEY)
        page.press("#key", "Enter")
        page.wait_for_selector("#turns")
        return page, address

    yield start
    for context in contexts:
        context.close()
    assert not complaints


def test_the_keyboard_alone_gets_from_the_login_to_a_turns_tokens(open_page: Any) -> None:
    page, address = open_page(engine())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "turn_a":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"  # one sees where one is
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/turns/turn_a")
    assert page.locator(".tok.down4").last.inner_text() == " falls"


def test_a_request_that_shows_a_picture_shows_it_on_its_turns_page(open_page: Any) -> None:
    page, address = open_page(engine())
    page.goto(f"{address}/turns/turn_a")
    shown = page.locator(".message img")
    shown.evaluate("picture => picture.decode()")
    assert shown.evaluate("p => [p.naturalWidth, p.naturalHeight]") == [96, 48]


def test_a_turn_appears_and_changes_while_one_looks(open_page: Any) -> None:
    made = Growing(engine())
    page, _ = open_page(made)
    made.changed = [row("turn_new", state="waiting", request="New words", judge="", vote=None)]
    page.wait_for_selector("#turn_new .state.waiting")
    assert page.locator("#turns > a").first.get_attribute("id") == "turn_new"
    page.focus("#turn_new")
    made.changed = [row("turn_new", state="queued", request="New words")]
    page.wait_for_selector("#turn_new .state.queued")
    assert page.locator("#turn_new").count() == 1
    assert page.evaluate("document.activeElement.id") == "turn_new"  # the focus stays


def test_a_new_version_is_told_without_loading_the_page_again(open_page: Any) -> None:
    made = Growing(engine())
    page, _ = open_page(made)
    page.wait_for_function("document.getElementById('counts').textContent === '1 trained'")
    made._made.state["served_version"] = 3
    page.wait_for_selector("#new:not([hidden])")
    assert page.inner_text("#version") == "3"


def test_nothing_that_was_typed_runs_in_the_browser(open_page: Any) -> None:
    made = Growing(engine(EVIL, EVIL))
    page, address = open_page(made)
    made.changed = [row("turn_new", request=EVIL, said=EVIL)]
    page.wait_for_selector("#turn_new")
    for path in PAGES:
        assert page.evaluate("window.stolen === undefined")
        assert page.locator("main img[src=x]").count() == 0
        page.goto(address + path)
        assert page.locator("main script").count() == 0


def test_a_script_in_a_page_would_not_run_either(chrome: Any, served: Any) -> None:
    address, _ = served(engine=engine())
    context = chrome.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda m: refused.append(m.text))
    page.goto(address + "/login")
    page.evaluate("""() => {
        const script = document.createElement('script');
        script.textContent = 'window.stolen = 1';
        document.body.append(script);
    }""")
    assert page.evaluate("window.stolen === undefined")
    assert any("Content Security Policy" in line for line in refused)
    context.close()


def test_on_a_phone_nothing_is_wider_than_the_screen(open_page: Any) -> None:
    page, address = open_page(engine("w" * 300, "a long question " * 9),
                              viewport={"width": 360, "height": 740})
    for path in PAGES:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        small = page.evaluate("""() => [...document.querySelectorAll('main button')]
            .filter(b => b.getBoundingClientRect().height < 40).map(b => b.textContent)""")
        assert not small, path  # a thumb finds every button


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(open_page: Any, scheme: str) -> None:
    """WCAG's contrast of 4.5 for every text, tokens included."""
    made = engine()
    page, address = open_page(made, color_scheme=scheme)
    made.pages["requests"]["trouble"] = "12 requests, none trainable"
    made.pages["people"]["people"][0]["is_paused"] = True
    for path in ("/", "/turns/turn_a", "/versions", "/requests", "/people",
                 "/conversations/trace_a"):
        page.goto(address + path)
        seen = json.loads(page.evaluate("JSON.stringify((" + COLOURS + ")())"))
        assert len(seen) > 10
        poor = [(text, round(contrast(ink, grounds), 2)) for text, ink, grounds in seen
                if contrast(ink, grounds) < 4.5]
        assert not poor


COLOURS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const box = node.parentElement;
    if (!node.textContent.trim() || !box.checkVisibility()) continue;
    if (box.closest('svg, .skip, option')) continue;
    const grounds = [];
    for (let at = box; at; at = at.parentElement) {
      grounds.push(getComputedStyle(at).backgroundColor);
    }
    found.push([node.textContent.trim().slice(0, 30), getComputedStyle(box).color, grounds]);
  }
  return found;
}"""


def _rgba(text: str) -> tuple[list[float], float]:
    numbers = [float(n) for n in re.findall(r"[\d.]+", text)]
    return numbers[:3], numbers[3] if len(numbers) > 3 else 1.0


def contrast(ink: str, grounds: list[str]) -> float:
    """Of a text on the backgrounds behind it, nearest first."""
    colour = [255.0, 255.0, 255.0]
    for ground in reversed(grounds):
        over, share = _rgba(ground)
        colour = [o * share + c * (1 - share) for o, c in zip(over, colour, strict=True)]
    light = sorted((_luminance(_rgba(ink)[0]), _luminance(colour)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def _luminance(colour: list[float]) -> float:
    parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4
             for c in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_the_measure_of_contrast_knows_black_on_white() -> None:
    assert contrast("rgb(0, 0, 0)", ["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"]) == pytest.approx(21)
    assert contrast("rgb(118, 118, 118)", ["rgb(255, 255, 255)"]) == pytest.approx(4.54, abs=0.01)


def test_rolling_back_is_asked_about_and_forms_work_in_a_browser(open_page: Any) -> None:
    made = engine()
    page, address = open_page(made)
    page.goto(address + "/versions")
    page.once("dialog", lambda d: d.dismiss())
    page.click("text=Roll back to v1")
    assert not made.acts
    page.once("dialog", lambda d: d.accept())
    page.click("text=Roll back to v1")
    page.wait_for_selector(".said")
    assert made.acts == [("rollback", {"to": 1})]
    assert page.inner_text(".said") == "v3 serves the weights of v1."
    page.goto(address + "/")
    page.click("text=Stop learning for an hour")
    page.wait_for_selector(".said")
    assert made.acts[-1] == ("pause", {"seconds": 3600.0})


def test_a_budget_is_set_and_paused_by_keyboard_alone(open_page: Any) -> None:
    made = engine()
    page, address = open_page(made)
    page.goto(address + "/people")
    page.focus("main")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "tokens_per_day"
    page.keyboard.press("Control+A")
    page.keyboard.type("900")
    page.keyboard.press("Enter")
    page.wait_for_selector(".said")
    name = "a-name-of-forty-characters-as-the-longest"
    assert made.acts == [("budget", {"name": name, "tokens_per_day": 900,
                                     "requests_per_minute": 3})]
    page.fill("[name=tokens_per_day]", "-1")
    page.keyboard.press("Enter")  # the browser itself refuses
    page.focus("main")
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == (
        f"Pause the budget of {name}")
    page.keyboard.press("Enter")
    page.wait_for_url("**/people?said=*paused*")
    assert made.acts[1:] == [("budget", {"name": name, "is_paused": True})]


def test_the_side_turns_are_two_keys_from_the_first_page(open_page: Any) -> None:
    page, address = open_page(engine())
    page.click("nav >> text=Requests")
    page.wait_for_url(f"{address}/requests")
    assert page.locator("nav [aria-current]").inner_text() == "Requests"
    page.click("#main >> text=side by name: heartbeat >> nth=1")
    page.wait_for_url(f"{address}/turns/turn_s")


def test_another_site_can_neither_frame_nor_press(open_page: Any, complaints: list[str]) -> None:
    """The same browser, logged in, opens a page of another origin that tries."""
    made = engine()
    page, address = open_page(made)
    page.route("http://evil.example/", lambda route: route.fulfill(
        content_type="text/html",
        body=f'<form method="post" action="{address}/act/pause"><input name="hours" value="1">'
             f'<button>press</button></form><iframe src="{address}/"></iframe>'))
    page.goto("http://evil.example/")
    assert page.frames[-1].locator("#turns").count() == 0  # no frame around our page
    with page.expect_navigation():
        page.click("button")
    assert "That did not work" in page.inner_text("main") and not made.acts
    complaints.clear()  # the browser told of the refused frame and of the 403


def test_a_page_outlives_an_engine_that_is_away(open_page: Any) -> None:
    made = Growing(engine())
    page, _ = open_page(made)
    made.away = 2
    made.changed = [row("turn_back")]
    page.wait_for_selector("#turn_back")
    assert made.away == 0
