"""What the policy and the judge are shown, on a machine of paper: no desktop is needed."""

import asyncio
import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import claw_env_gui.env
import pytest
from claw_env_gui.actions import Action
from claw_env_gui.env import GuiEnv
from claw_env_gui.judge import PicturesJudge
from claw_env_gui.machine import Ended, Window
from claw_env_gui.settings import GuiConfig
from claw_env_gui.tasks import of_path
from PIL import Image

from claw.records import FinishReason
from claw.sdk import Case, EnvTurn

CLICK = '```json\n{"action_type": "CLICK", "parameters": {"x": 5, "y": 6}}\n```'


def screen(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (320, 240), (number * 40, 10, 200)).save(out, "PNG")
    return out.getvalue()


class Paper:
    """A screen that is another one after each action."""

    size, is_remote = (320, 240), False

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self.number = 0

    def screenshot(self) -> bytes:
        return screen(self.number)

    def nodes(self) -> list[Any]:
        return []

    def windows(self) -> list[Window]:
        return [Window(1, "note.txt", (), (0, 0, 320, 240), is_active=True)]

    def settle(self, still_s: float = 0.25, limit_s: float = 2.0) -> bool:
        return True

    def do(self, action: Action) -> None:
        self.number += 1

    def close(self) -> None:
        pass


@pytest.fixture
def play(
    task_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[GuiEnv, list[Any], list[Any]]]:
    """Return an episode of one click: (env, first messages, messages after it)."""
    monkeypatch.setattr(claw_env_gui.env, "_opened", lambda config: Paper())

    def played(*, sees: bool, **settings: Any) -> tuple[GuiEnv, list[Any], list[Any]]:
        config = GuiConfig(**settings)
        [task] = of_path(task_file(func="infeasible"), config) or []
        env = GuiEnv(task, config)
        env.takes_pictures = sees
        first = env.start()
        reply = {"role": "assistant", "content": CLICK}
        return env, first, env.reply(EnvTurn(reply, FinishReason.STOP, 0)) or []

    return played


def pictures(message: dict[str, Any]) -> list[bytes]:
    parts = message["content"] if isinstance(message["content"], list) else []
    return [base64.b64decode(p["image_url"]["url"].removeprefix("data:image/png;base64,"))
            for p in parts if p["type"] == "image_url"]


def test_a_model_that_sees_is_shown_the_screen_as_a_picture(play: Any) -> None:
    env, first, after = play(sees=True)
    assert [pictures(m) for m in (first[-1], *after)] == [[screen(0)], [screen(1)]]
    assert first[-1]["content"][0] == {"type": "text", "text": "Task: Do it."}
    kept = env.shown([*first, {"role": "assistant", "content": CLICK}, *after] * 2)
    assert sum(len(pictures(m)) for m in kept if m["role"] == "user") == env.config.history


def test_a_model_that_reads_is_shown_the_tree(play: Any) -> None:
    for settings in ({"sees": False}, {"sees": True, "observation": "tree"}):
        _, first, after = play(**settings)
        for message in (first[-1], *after):
            assert "The screen:\nWindows: note.txt (active)" in message["content"]


def test_what_is_set_goes_over_what_the_model_sees(play: Any) -> None:
    _, first, _ = play(sees=False, observation="both")
    assert pictures(first[-1]) == [screen(0)] and "Windows:" in first[-1]["content"][0]["text"]


@contextmanager
def endpoint(*answers: str) -> Iterator[tuple[str, list[Any]]]:
    """A scripted judge behind OpenAI's route; remembers what it was sent."""
    seen: list[Any] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                seen.append((self.path, self.headers.get("authorization"), body))
                said = answers[len(seen) - 1]
            raw = json.dumps({"choices": [{"message": {"content": said}}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.mark.parametrize("sees", [True, False])
def test_the_judge_is_sent_the_screens_before_and_after_whatever_the_policy_sees(
    play: Any, monkeypatch: pytest.MonkeyPatch, sees: bool
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-judge")
    env, first, after = play(sees=sees)
    case = Case("t", tuple(first), {"role": "assistant", "content": CLICK}, tuple(after), env.task,
                metadata={"env": env, "index": 0})
    with endpoint("it moved \\boxed{1}", "\\boxed{-1}", "well: \\boxed{1}") as (url, seen):
        judge = PicturesJudge(GuiConfig(judge_base_url=url, judge_model="eyes",
                                        judge_api_key_env="JUDGE_KEY"))
        verdict = asyncio.run(judge.judge(case))
    assert (verdict.vote, sorted(verdict.votes)) == (1, [-1, 1, 1])
    assert {(path, key) for path, key, _ in seen} == {("/v1/chat/completions", "Bearer sk-judge")}
    for _, _, body in seen:
        system, asked = body["messages"]
        assert body["model"] == "eyes" and "before and after" in system["content"]
        assert [p["type"] for p in asked["content"]] == ["text", "image_url", "text", "image_url"]
        assert pictures(asked) == [screen(0), screen(1)]
        assert "Do it." in asked["content"][0]["text"] and "CLICK" in asked["content"][0]["text"]
