"""The desktop, in a real container: seen, used, crashed, closed; and behind a VM's routes."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_gui import remote
from claw_env_gui.actions import Action
from claw_env_gui.desktop import Desktop
from claw_env_gui.env import GuiEnv
from claw_env_gui.judge import PicturesJudge, ScreenJudge
from claw_env_gui.machine import Failed
from claw_env_gui.osworld.setup import SetupError
from claw_env_gui.remote import Vm, leased, take
from PIL import Image
from vm_server import Server

from claw.records import FinishReason
from claw.sdk import Case, EnvTurn
from claw.sdk.env import assistant
from claw.sdk.sandbox import SandboxError, engine

pytestmark = [pytest.mark.docker, pytest.mark.slow]
TaskFile = Callable[..., Path]
Episode = Callable[..., GuiEnv]
HARD = "<a> & 'b' \"c\" {d} \\ ~ ä € 你好 🙂\ttab\nlast"
NOTE = "/home/user/note.txt"


def until(look: Callable[[], Any], limit_s: float = 30.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def keys(*names: str) -> Action:
    return Action("keys", {"names": list(names)})


def editor(machine: Any, path: str) -> None:
    """Open a file in the text editor and wait until it has the keyboard."""
    machine.launch(["mousepad", path])
    name = Path(path).name
    until(lambda: any(name in n.name for a in machine.nodes() for n in a.walk()))
    machine.settle(still_s=0.3, limit_s=5)


def texts(machine: Any) -> list[str]:
    return [n.text or "" for a in machine.nodes() for n in a.walk() if n.role == "text"]


def close_all(desktop: Desktop) -> None:
    for window in desktop.windows():
        desktop.close_window(window)
    desktop.run("pkill mousepad; pkill xterm; true")
    until(lambda: not desktop.windows())


def test_a_picture_shows_what_was_typed_and_a_file_holds_it(desktop: Desktop) -> None:
    desktop.write(NOTE, b"")
    editor(desktop, NOTE)
    before = desktop.screenshot()
    desktop.do(Action("write", {"text": HARD}))
    until(lambda: HARD in texts(desktop))
    after = Image.open(io.BytesIO(desktop.screenshot()))
    assert after.size == desktop.size and after.format == "PNG"
    assert after.tobytes() != Image.open(io.BytesIO(before)).tobytes()
    desktop.do(keys("Control_L", "s"))
    assert until(lambda: desktop.read(NOTE)) == HARD.encode()
    close_all(desktop)


def test_clicks_drags_and_the_wheel_reach_an_application(desktop: Desktop) -> None:
    desktop.write(NOTE, b"".join(b"line %d\n" % n for n in range(200)))
    editor(desktop, NOTE)
    [menu] = [n for a in desktop.nodes() for n in a.walk() if (n.role, n.name) == ("menu", "Edit")]
    x, y, width, height = menu.box or (0, 0, 0, 0)
    desktop.do(Action("click", {"x": x + width / 2, "y": y + height / 2}))
    items = until(lambda: [n for a in desktop.nodes() for n in a.walk() if n.role == "menu item"])
    assert "Select All" in {item.name for item in items}
    desktop.do(keys("Escape"))
    [page] = [n for a in desktop.nodes() for n in a.walk() if n.role == "text"]
    x, y, _, _ = page.box or (0, 0, 0, 0)
    desktop.do(Action("move", {"x": x + 60.0, "y": y + 8.0}))
    desktop.do(Action("drag", {"x": x + 60.0, "y": y + 80.0}))
    desktop.do(keys("Control_L", "c"))
    assert until(desktop.clipboard).count("line") >= 2, "a drag selects lines"
    still = desktop.screenshot()
    desktop.do(Action("scroll", {"direction": "down", "count": 10, "x": x + 60.0, "y": y + 40.0}))
    desktop.settle()
    assert desktop.screenshot() != still
    close_all(desktop)


def test_what_cannot_be_done_is_said_and_the_desktop_goes_on(desktop: Desktop) -> None:
    with pytest.raises(Failed, match="outside the screen"):
        desktop.do(Action("click", {"x": 5000.0, "y": 10.0}))
    with pytest.raises(Failed, match="no key 'Greek_omega'"):
        desktop.do(keys("Greek_omega"))
    with pytest.raises(Failed, match="cannot be started"):
        desktop.launch(["no-such-program"])
    with pytest.raises(Failed, match="too many"):
        desktop.do(Action("write", {"text": "a" * 30_000}))
    assert desktop.screenshot()[:4] == b"\x89PNG"


def test_an_application_that_crashes_is_seen_and_the_panel_comes_back(desktop: Desktop) -> None:
    desktop.launch(["sh", "-c", "kill -SEGV $$"])
    until(lambda: desktop.windows() is not None and any(e.code == -11 for e in desktop.ended))
    seen = len(desktop.ended)
    desktop.run("pkill -KILL tint2")
    until(lambda: desktop.windows() is not None
          and [e.name for e in desktop.ended[seen:]] == ["tint2"])
    before = desktop.screenshot()
    until(lambda: desktop.screenshot() != before)


def test_an_application_that_hangs_holds_up_no_tree(desktop: Desktop) -> None:
    desktop.write(NOTE, b"stuck")
    editor(desktop, NOTE)
    desktop.run("pkill -STOP mousepad")
    began = time.monotonic()
    desktop.nodes()
    assert time.monotonic() - began < 15
    desktop.run("pkill -KILL mousepad")
    until(lambda: not desktop.windows())


def test_there_is_no_network_and_nobody_is_root(desktop: Desktop) -> None:
    assert desktop.run(["id", "-u"]).stdout == b"1000\n"
    assert desktop.run(["ls", "/sys/class/net"]).stdout.split() == [b"lo"]


def test_closing_leaves_no_container(needs_desktop: None) -> None:
    made = Desktop()
    id = made.box.id
    made.close()
    made.close()
    assert id not in {c["Id"] for c in engine.api().containers(all=True)}
    with pytest.raises(SandboxError, match="closed"):
        made.run(["true"])


def test_a_missing_image_says_how_to_make_it(needs_docker: None, monkeypatch: Any) -> None:
    from claw_env_gui import desktop

    monkeypatch.setattr(desktop, "IMAGE", "claw/desktop:missing")
    with pytest.raises(SandboxError, match="make desktop"):
        Desktop(image="claw/desktop:missing")


# --- episodes ---------------------------------------------------------------------------------

def turn(env: GuiEnv, said: Any) -> list[dict[str, Any]] | None:
    reply = said if isinstance(said, dict) else assistant(said)
    return env.reply(EnvTurn(reply, FinishReason.STOP, len(env.acted)))


def act(kind: str, **args: Any) -> str:
    return json.dumps({"action_type": kind, "parameters": args})


def note(task_file: TaskFile, **more: Any) -> Path:
    return task_file(**{
        "result": {"type": "vm_command_line", "command": ["cat", NOTE]},
        "expected": {"type": "rule", "rules": {"expected": "7\n"}},
        "config": [{"type": "execute",
                    "parameters": {"command": f"echo -n > {NOTE}", "shell": True}},
                   {"type": "open", "parameters": {"path": NOTE}}], **more})


async def judged(env: GuiEnv, index: int, *, final: bool = False, judge: Any = None) -> Any:
    case = Case("t", (), {"role": "assistant", "content": "x"}, (), env.task, final=final,
                metadata={"env": env, "index": index})
    return await (judge or ScreenJudge(env.config)).judge(case)


def test_an_episode_is_seen_acted_judged_and_written(
    task_file: TaskFile, episode: Episode, tmp_path: Path
) -> None:
    import asyncio

    env = episode(note(task_file, evaluator={"postconfig": [
        {"type": "execute", "parameters": {"command": [
            "python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's')"]}},
        {"type": "sleep", "parameters": {"seconds": 1}}]}),
        observation="both", trajectories=str(tmp_path / "t"))
    [seen] = turn(env, act("TYPING", text="7\n")) or []
    words, picture = seen["content"]
    assert "text='7'" in words["text"] and "note.txt" in words["text"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert "there are MOVE_TO, CLICK" in str(turn(env, act("JUMP")))
    assert "outside the screen" in str(turn(env, act("CLICK", x=9999, y=1)))
    assert turn(env, "DONE") is None
    votes = [asyncio.run(judged(env, i)).vote for i in range(3)]
    assert votes == [0, -1, -1]
    end = asyncio.run(judged(env, 3, final=True))
    assert (end.number, end.vote) == (1.0, 1), end.reason
    env.close()
    [folder] = (tmp_path / "t").iterdir()
    lines = [json.loads(line) for line in (folder / "traj.jsonl").read_text().splitlines()]
    assert [line["info"]["kind"] for line in lines] == ["ok", "unreadable", "failed", "end"]
    assert (folder / "result.txt").read_text() == "1.0\n"
    sizes = {Image.open(folder / line["screenshot_file"]).size for line in lines[:3]}
    assert sizes == {(1280, 800)}


def test_three_replies_in_a_row_that_are_no_action_end_the_episode(
    task_file: TaskFile, episode: Episode
) -> None:
    env = episode(note(task_file))
    assert turn(env, "") and turn(env, "Hm.") and turn(env, "Well.") is None
    assert env.score().value == 0.0


def test_a_tool_call_is_answered_as_one(task_file: TaskFile, episode: Episode) -> None:
    env = episode(note(task_file), actions="computer_use")
    assert [t["function"]["name"] for t in env.tools] == ["computer_use"]
    said = assistant(calls=[("computer_use", {"action": "type", "text": "7\n"})])
    answer, screen = turn(env, said) or []
    assert (answer["role"], answer["tool_call_id"]) == ("tool", said["tool_calls"][0]["id"])
    assert screen["role"] == "user" and "text='7'" in screen["content"]


def test_a_step_that_hangs_or_fails_is_named(task_file: TaskFile, episode: Episode) -> None:
    def with_step(kind: str, **parameters: Any) -> Path:
        return note(task_file, config=[{"type": kind, "parameters": parameters}])

    with pytest.raises(SetupError, match=r"step 0 \(execute\).*longer than 0.5 s"):
        episode(with_step("execute", command=["sleep", "60"]), step_timeout_s=0.5)
    with pytest.raises(SetupError, match=r"\(launch\).*ended with 3"):
        episode(with_step("launch", command=["sh", "-c", "exit 3"]))


def test_a_policy_that_ends_its_own_screen_is_still_scored(
    task_file: TaskFile, episode: Episode
) -> None:
    env = episode(note(task_file))
    env.machine.run("echo 7 > note.txt; pkill -KILL Xvfb")  # type: ignore[attr-defined]
    assert turn(env, act("TYPING", text="8")) is None
    assert [a.kind for a in env.acted] == ["lost"] and env.score().value == 1.0


def test_the_judge_of_pictures_is_shown_both_screens(task_file: TaskFile, episode: Episode) -> None:
    import asyncio

    env = episode(note(task_file))
    turn(env, act("TYPING", text="7"))
    asked: list[Any] = []

    async def ask(messages: Any, temperature: float, max_tokens: int) -> str:
        asked.append(messages)
        return "\\boxed{1}" if len(asked) < 3 else "\\boxed{-1}"

    verdict = asyncio.run(judged(env, 0, judge=PicturesJudge(env.config, ask)))
    assert (verdict.vote, len(verdict.votes)) == (1, 3)
    parts = asked[0][1]["content"]
    pictures = [p["image_url"]["url"] for p in parts if p["type"] == "image_url"]
    assert len(pictures) == 2 and pictures[0] != pictures[1]
    assert "Do it." in parts[0]["text"]


# --- a virtual machine --------------------------------------------------------------------------

def test_a_virtual_machine_is_used_over_its_routes(desktop: Desktop) -> None:
    with Server(desktop) as address:
        vm = Vm(address)
        vm.write(NOTE, b"")
        editor(vm, NOTE)
        vm.do(Action("write", {"text": "plain <text>, "}))
        vm.do(Action("write", {"text": "ä 你好"}))
        until(lambda: any("plain <text>, ä 你好" in text for text in texts(vm)))
        vm.do(keys("Control_L", "s"))
        assert until(lambda: vm.read(NOTE)) == "plain <text>, ä 你好".encode()
        assert vm.read("/home/user/none") is None
        assert vm.run(["echo", "a"]).stdout == b"a\n"
        assert vm.size == desktop.size and vm.screenshot()[:4] == b"\x89PNG"
        with pytest.raises(Failed, match="404"):
            vm.close_window(remote.Window(0, "nothing", (), (0, 0, 0, 0)))
        vm.close()
    with pytest.raises(SandboxError, match="does not answer"):
        Vm(address, timeout_s=2)
    close_all(desktop)


def test_a_lease_of_a_dead_owner_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = ("import sys, time; from claw_env_gui.remote import take; kept = take('http://a');"
            "print(kept is not None, flush=True); time.sleep(600)")
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    try:
        assert owner.stdout and owner.stdout.readline() == "True\n"
        assert take("http://a/") is None, "somebody alive has it"
        with pytest.raises(SandboxError, match="in use"):
            leased(["http://a"], timeout_s=1, wait_s=0.3)
    finally:
        owner.kill()
        owner.wait()
    assert take("http://a") is not None
