"""What can be done to a desktop, whatever the policy calls it.

Owns: the actions, the names of keys, the bounds of a reply.
Does not own: how a policy writes them (`spaces`), doing them (`desktop`, `remote`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WAIT, DONE, FAIL = "wait", "done", "fail"
ENDS = (DONE, FAIL)
BUTTONS = ("left", "middle", "right")
MAX_ACTIONS = 50
"""of one reply"""
MAX_WAIT_S = 30.0
MAX_TEXT = 20_000

KEYS = {
    "enter": "Return", "return": "Return", "\n": "Return", "\r": "Return", "tab": "Tab",
    "\t": "Tab", "esc": "Escape", "escape": "Escape", "space": "space", " ": "space",
    "backspace": "BackSpace", "delete": "Delete", "del": "Delete", "insert": "Insert",
    "home": "Home", "end": "End", "pageup": "Page_Up", "pgup": "Page_Up", "page_up": "Page_Up",
    "pagedown": "Page_Down", "pgdn": "Page_Down", "page_down": "Page_Down", "up": "Up",
    "down": "Down", "left": "Left", "right": "Right", "arrowup": "Up", "arrowdown": "Down",
    "arrowleft": "Left", "arrowright": "Right", "ctrl": "Control_L", "control": "Control_L",
    "ctrlleft": "Control_L", "ctrlright": "Control_R", "alt": "Alt_L", "altleft": "Alt_L",
    "altright": "Alt_R", "option": "Alt_L", "shift": "Shift_L", "shiftleft": "Shift_L",
    "shiftright": "Shift_R", "win": "Super_L", "winleft": "Super_L", "winright": "Super_R",
    "super": "Super_L", "meta": "Super_L", "cmd": "Super_L", "command": "Super_L",
    "capslock": "Caps_Lock", "numlock": "Num_Lock", "scrolllock": "Scroll_Lock",
    "printscreen": "Print", "prtsc": "Print", "pause": "Pause", "menu": "Menu", "apps": "Menu",
    "add": "KP_Add", "subtract": "KP_Subtract", "multiply": "KP_Multiply", "divide": "KP_Divide",
    "decimal": "KP_Decimal", "volumeup": "XF86_AudioRaiseVolume",
    "volumedown": "XF86_AudioLowerVolume", "volumemute": "XF86_AudioMute",
    "!": "exclam", '"': "quotedbl", "#": "numbersign", "$": "dollar", "%": "percent",
    "&": "ampersand", "'": "apostrophe", "(": "parenleft", ")": "parenright", "*": "asterisk",
    "+": "plus", ",": "comma", "-": "minus", ".": "period", "/": "slash", ":": "colon",
    ";": "semicolon", "<": "less", "=": "equal", ">": "greater", "?": "question", "@": "at",
    "[": "bracketleft", "\\": "backslash", "]": "bracketright", "^": "asciicircum",
    "_": "underscore", "`": "grave", "{": "braceleft", "|": "bar", "}": "braceright",
    "~": "asciitilde",
    **{f"f{n}": f"F{n}" for n in range(1, 13)}, **{f"num{n}": f"KP_{n}" for n in range(10)},
}
"""what people and models call a key -> its X name"""


class Unreadable(ValueError):
    """A reply that is no action, in words for the policy."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. What each kind takes is what the desk's `do_<kind>` takes."""

    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_end(self) -> bool:
        return self.kind in ENDS


def key(name: Any) -> str:
    """Return the X name of a key."""
    if not isinstance(name, str) or not name:
        raise Unreadable(f"a key is a name, not {name!r}")
    if len(name) == 1 and name.isascii() and name.isalnum():
        return name
    if (found := KEYS.get(name.lower())) is None:
        raise Unreadable(f"no key is called {name!r}"[:80])
    return found


def said_key(name: str) -> str:
    """Return what `key` reads as this X name."""
    return _SAID.get(name, name)


_SAID = {name: said for said, name in reversed(KEYS.items()) if said.strip()}


def button(name: Any) -> str:
    if name is None:
        return "left"
    if name not in BUTTONS:
        raise Unreadable(f"no mouse button {name!r}; there are {', '.join(BUTTONS)}"[:120])
    return str(name)


def number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e6:
        raise Unreadable(f"{what} must be a number, not {value!r}"[:120])
    return float(value)


def text(value: Any) -> str:
    """Return text that can be typed: no NUL, no half of a pair, not endless."""
    if not isinstance(value, str):
        raise Unreadable(f"text must be a string, not {value!r}"[:120])
    if len(value) > MAX_TEXT:
        raise Unreadable(f"{len(value)} characters are too many for one action; at most {MAX_TEXT}")
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "")


def at(x: Any, y: Any) -> dict[str, float]:
    """Return a place; both coordinates or none."""
    if x is None and y is None:
        return {}
    return {"x": number(x, "x"), "y": number(y, "y")}


def scrolls(dx: float, dy: float, where: Mapping[str, float]) -> list[Action]:
    """Return scrolling by notches: dy above 0 is up, dx above 0 is right."""
    made = []
    for amount, more, less in ((dy, "up", "down"), (dx, "right", "left")):
        count = min(100, round(abs(amount)))
        if count:
            made.append(Action("scroll", {"direction": more if amount > 0 else less,
                                          "count": count, **where}))
    return made


def pause(seconds: Any) -> Action:
    return Action(WAIT, {"seconds": min(MAX_WAIT_S, max(0.0, number(seconds, "seconds")))})
