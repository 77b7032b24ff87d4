"""The gold solution: a script beside the task, which acts as a policy does and through it alone.

Owns: reading the script, finding on the screen what it points at, and saying each step in the words
of the action space that the episode uses.
Does not own: doing it: every step goes through the episode's `reply`.

A script is a list of steps. A step is an action of `computer_13`, or points at something that the
accessibility tree shows: {"action_type": "CLICK", "on": {"role": "menu", "name": "File"}}. A
"wait_for" of a step names a window, or something in the tree, that must be there before it; with
"wait_gone" no window may have that in its title any more, such as the * of what is not saved.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claw.sdk import Message
from claw.sdk.formats.folder import FormatError, read_text

from .actions import Action
from .env import GuiEnv
from .spaces import computer13, say
from .tree import Node

FIND_S = 60.0
SCRIPT = "oracle.json"


def play(env: Any, script: str = SCRIPT) -> Callable[[list[Message]], Message | None] | None:
    """Return a policy that follows the task's script; None where there is none."""
    assert isinstance(env, GuiEnv), "claw_env makes no other"
    path = env.desktop_task.folder / script
    if not path.is_file():
        return None
    steps = read(path)
    todo = iter(steps)

    def policy(_: list[Message]) -> Message | None:
        step = next(todo, None)
        return None if step is None else say(env.config.actions, action_of(step, env),
                                             env.machine.size)

    return policy


def read(path: Path) -> list[dict[str, Any]]:
    try:
        steps = json.loads(read_text(path))
    except ValueError as error:
        raise FormatError("a script is no JSON", found=f"{path}: {error}") from error
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise FormatError("a script must be a list of steps", found=str(path))
    return steps


def action_of(step: dict[str, Any], env: GuiEnv) -> Action:
    """Return the action of a step, once what it waits for is there."""
    given = dict(step)
    if wanted := given.pop("wait_for", None):
        _until(env, lambda: _is_there(env, wanted), f"{wanted!r}")
    if gone := given.pop("wait_gone", None):
        _until(env, lambda: not any(gone in w.title for w in env.machine.windows()), f"no {gone!r}")
    if on := given.pop("on", None):
        found = _until(env, lambda: _node(env, on), f"{on}")
        x, y, width, height = found.box or (0, 0, 0, 0)
        given |= {"x": x + width // 2, "y": y + height // 2}
    made = computer13.of_dict(given)
    return made[0] if isinstance(made, list) else made


def _is_there(env: GuiEnv, wanted: str) -> bool:
    if any(wanted in window.title for window in env.machine.windows()):
        return True
    return any(wanted in (node.name, (node.text or "").strip())
               for app in env.machine.nodes() for node in app.walk())


def _node(env: GuiEnv, on: dict[str, str]) -> Node | None:
    for app in env.machine.nodes():
        for node in app.walk():
            if all(getattr(node, key) == value for key, value in on.items()) \
                    and "showing" in node.states and node.box and node.box[2] > 0:
                return node
    return None


def _until(env: GuiEnv, look: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + FIND_S
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"the screen never showed {what}")
        time.sleep(0.1)
    return found
