"""What a policy writes becomes actions; nothing of it is run, and what is wrong is said."""

import json
from typing import Any

import pytest
from claw_env_gui import spaces
from claw_env_gui.actions import Action, Unreadable
from claw_env_gui.spaces import gui_source

from claw.sdk.env import assistant

SIZE = (1280, 800)


def read(space: str, said: Any) -> list[Action]:
    return spaces.read(space, said if isinstance(said, dict) else assistant(said), SIZE)


def click(**more: Any) -> Action:
    return Action("click", {"x": 3.0, "y": 4.0, "button": "left", "count": 1} | more)


@pytest.mark.parametrize("said", [
    '```json\n{"action_type": "CLICK", "parameters": {"x": 3, "y": 4}}\n```',
    '{"action_type": "CLICK", "x": 3, "y": 4} and nothing else',
    'I click.\n```\n[{"action_type": "CLICK", "parameters": {"x": 3, "y": 4, "button": "left"}}]',
    '<think>```json\n{"action_type": "FAIL"}\n```</think>'
    '```\n{"action_type":"CLICK","x":3,"y":4}\n```',
])
def test_computer_13_is_read_with_and_without_a_block(said: str) -> None:
    assert read("computer_13", said) == [click()]


@pytest.mark.parametrize("said, kind, args", [
    ({"action_type": "DOUBLE_CLICK", "parameters": {"x": 3, "y": 4}}, "click",
     {"x": 3.0, "y": 4.0, "button": "left", "count": 2}),
    ({"action_type": "RIGHT_CLICK"}, "click", {"button": "right", "count": 1}),
    ({"action_type": "MOVE_TO", "x": 1, "y": 2}, "move", {"x": 1.0, "y": 2.0}),
    ({"action_type": "DRAG_TO", "x": 1, "y": 2}, "drag", {"x": 1.0, "y": 2.0}),
    ({"action_type": "SCROLL", "dx": 0, "dy": -3}, "scroll", {"direction": "down", "count": 3}),
    ({"action_type": "TYPING", "text": "a<b ä"}, "write", {"text": "a<b ä"}),
    ({"action_type": "PRESS", "key": "Enter"}, "keys", {"names": ["Return"]}),
    ({"action_type": "HOTKEY", "keys": ["ctrl", "<"]}, "keys", {"names": ["Control_L", "less"]}),
    ({"action_type": "KEY_DOWN", "key": "shift"}, "key", {"name": "Shift_L", "down": True}),
    ({"action_type": "MOUSE_UP"}, "button", {"button": "left", "down": False}),
    ({"action_type": "FAIL"}, "fail", {}),
])
def test_each_action_of_computer_13(said: dict[str, Any], kind: str, args: dict[str, Any]) -> None:
    assert read("computer_13", json.dumps(said)) == [Action(kind, args)]


@pytest.mark.parametrize("said, why", [
    ('{"action_type": "JUMP"}', "no action 'JUMP'"),
    ('{"action_type": "CLICK", "x": 1}', "y must be a number"),
    ('{"action_type": "CLICK", "x": 1, "y": 2, "z": 3}', "takes no 'z'"),
    ('{"action_type": "CLICK", "x": NaN, "y": 2}', "x must be a number"),
    ('{"action_type": "PRESS", "key": "hyper"}', "no key is called 'hyper'"),
    ('{"action_type": "TYPING"}', "text must be a string"),
    ('```json\n{"action_type": \n```', "no JSON"),
    ("Let me think.", "holds no action"),
    ("[" * 9000, "no action"),
])
def test_what_is_wrong_is_said(said: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read("computer_13", said)


def test_source_is_read_as_the_calls_it_makes() -> None:
    said = """```python
import pyautogui, time
x, y = 3, 4
pyautogui.click(x, y)
pyautogui.doubleClick(x=2 * x, y=y - 1, interval=0.1)
pyautogui.hotkey('ctrl', 'shift', 't')
pyautogui.typewrite("it's <ok>\\n", interval=0.05)
pyautogui.press(['up', 'enter'], presses=2)
with pyautogui.hold('shift'):
    pyautogui.press('down')
pyautogui.scroll(-5)
time.sleep(0.5)
```"""
    assert read("pyautogui", said) == [
        click(), click(x=6.0, y=3.0, count=2),
        Action("keys", {"names": ["Control_L", "Shift_L", "t"]}),
        Action("write", {"text": "it's <ok>\n"}),
        *[Action("keys", {"names": [n]}) for n in ("Up", "Return") * 2],
        Action("key", {"name": "Shift_L", "down": True}), Action("keys", {"names": ["Down"]}),
        Action("key", {"name": "Shift_L", "down": False}),
        Action("scroll", {"direction": "down", "count": 5}), Action("wait", {"seconds": 0.5}),
    ]


@pytest.mark.parametrize("source, why", [
    ("import os; os.system('touch /tmp/claw-was-run')", "Import is not read"),
    ("__import__('os').system('true')", "not read here"),
    ("pyautogui.click(*[1, 2])", "no plain number"),
    ("pyautogui.write(open('/etc/passwd').read())", "no plain number"),
    ("for i in range(3): pyautogui.click(1, 2)", "For is not read"),
    ("pyautogui.alert('hi')", "pyautogui.alert is not read"),
    ("pyautogui.write(9 ** 9 ** 9)", "no plain number"),
    ("pyautogui.write('a' * 10)", "must be a number"),
    ("pyautogui.click(1, 2", "no Python"),
    ("x" * 30_000, "too many"),
    ("pyautogui.press('a', presses=10**9)", "no plain number"),
])
def test_source_that_is_more_than_calls_is_refused_by_its_line(source: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        gui_source.parse(source)


def test_the_line_is_named() -> None:
    with pytest.raises(Unreadable, match="line 2"):
        gui_source.parse("pyautogui.click(1, 2)\nwhile True: pass")


@pytest.mark.parametrize("arguments, kind, args", [
    ({"action": "left_click", "coordinate": [500, 1000]}, "click",
     {"x": 640.0, "y": 799.0, "button": "left", "count": 1}),
    ({"action": "triple_click", "coordinate": [0, 0]}, "click",
     {"x": 0.0, "y": 0.0, "button": "left", "count": 3}),
    ({"action": "scroll", "coordinate": [500, 500], "pixels": -2}, "scroll",
     {"direction": "down", "count": 2, "x": 640.0, "y": 400.0}),
    ({"action": "key", "keys": ["ctrl", "s"]}, "keys", {"names": ["Control_L", "s"]}),
    ({"action": "terminate", "status": "failure"}, "fail", {}),
])
def test_computer_use_has_coordinates_from_0_to_1000(
    arguments: dict[str, Any], kind: str, args: dict[str, Any]
) -> None:
    said = assistant(calls=[("computer_use", arguments)])
    assert read("computer_use", said) == [Action(kind, args)]


@pytest.mark.parametrize("arguments, why", [
    ({"action": "left_click", "coordinate": [500, 1001]}, "from 0 to 1000"),
    ({"action": "left_click", "coordinate": [500]}, r"\[x, y\]"),
    ({"action": "fly"}, "no action 'fly'"), ("{", "no JSON"), ({"action": "terminate"}, "status"),
    ({"action": "type", "text": "a", "speed": 3}, "takes no 'speed'"),
])
def test_a_call_that_cannot_be_used_says_why(arguments: Any, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        read("computer_use", assistant(calls=[("computer_use", arguments)]))


@pytest.mark.parametrize("space", ["computer_13", "pyautogui", "computer_use"])
@pytest.mark.parametrize("action", [
    click(x=640.0, y=400.0), click(x=640.0, y=400.0, button="right"),
    Action("move", {"x": 64.0, "y": 8.0}), Action("write", {"text": "it's\n\"ä\" \\ ```"}),
    Action("keys", {"names": ["Control_L", "Page_Up"]}),
    Action("keys", {"names": ["exclam"]}), Action("scroll", {"direction": "up", "count": 3}),
    Action("done"), Action("fail"),
], ids=lambda a: a.kind)
def test_what_is_said_for_an_action_is_read_as_that_action(space: str, action: Action) -> None:
    if space != "computer_use" and "```" in str(action.args):
        pytest.skip("a block ends at its mark")
    assert spaces.read(space, spaces.say(space, action, SIZE), SIZE) == [action]


@pytest.mark.parametrize("space", ["computer_13", "pyautogui"])
def test_a_word_alone_at_the_end_is_an_action(space: str) -> None:
    assert [a.kind for a in read(space, "All is there.\n**DONE**")] == ["done"]
    assert [a.kind for a in read(space, "```\nWAIT\n```")] == ["wait"]
    with pytest.raises(Unreadable):
        read(space, "I am not DONE yet, I think.")


def test_too_many_actions_are_refused() -> None:
    with pytest.raises(Unreadable, match="too many for one reply"):
        read("pyautogui", "pyautogui.click(1, 2)\n" * 51)


def test_half_a_pair_and_nul_do_not_reach_the_keyboard() -> None:
    [action] = read("computer_13", '{"action_type": "TYPING", "text": "a\\ud83c\\u0000b"}')
    assert action.args["text"] == "a\ufffdb"
