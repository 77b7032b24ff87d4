"""Action spaces: how a policy writes what it does. One module each, with the same four names.

`PROMPT` tells the policy how to write, `TOOLS` are its tools, `read(reply, size)` returns the
actions of an assistant message (Unreadable says what is wrong with it), and `say(action, size)`
returns a message that asks for an action. Nothing in a reply is run.
"""

from types import ModuleType
from typing import Any

from claw.sdk import Message

from ..actions import MAX_ACTIONS, Action, Unreadable
from . import computer13, computer_use, gui_source

SPACES: dict[str, ModuleType] = {
    "computer_13": computer13, "pyautogui": gui_source, "computer_use": computer_use,
}


def read(space: str, reply: Message, size: tuple[int, int]) -> list[Action]:
    """Return the actions of a reply, at least one."""
    made: list[Action] = SPACES[space].read(reply, size)
    if not made:
        raise Unreadable("Nothing was done: that reply holds no action.")
    if len(made) > MAX_ACTIONS:
        raise Unreadable(f"{len(made)} actions are too many for one reply; at most {MAX_ACTIONS}")
    return made


def tools(space: str) -> list[dict[str, Any]]:
    return list(SPACES[space].TOOLS)



def say(space: str, action: Action, size: tuple[int, int]) -> Message:
    """Return what a policy would say to have this done."""
    made: Message = SPACES[space].say(action, size)
    return made
