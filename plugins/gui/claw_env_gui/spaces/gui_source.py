"""OSWorld's `pyautogui`: Python source that is read, never run.

Owns: which calls of pyautogui and time mean which actions. The source is parsed into a syntax tree;
calls of known functions with constant arguments become actions, `with pyautogui.hold(...)` holds
keys, names may stand for constants. Anything else is refused by its line.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any

from claw.sdk import Message
from claw.sdk.env import assistant

from .. import actions
from ..actions import Action, Unreadable
from . import words

TOOLS: tuple[dict[str, Any], ...] = ()
PROMPT = """You use a computer with a screen of {width} x {height} pixels to complete a task.
Each time, write one block of Python that calls pyautogui, and nothing after it:
```python
pyautogui.click(640, 400)
```
There are click, doubleClick, rightClick, moveTo, dragTo, scroll, write, press and hotkey of
pyautogui, and time.sleep, all with plain numbers and texts. Write WAIT to wait, DONE when the task
is complete, FAIL when it cannot be done."""
MAX_SOURCE = 20_000
MODULES = ("pyautogui", "time", "pag")


def read(reply: Message, size: tuple[int, int]) -> list[Action]:
    """Return the actions of a reply."""
    text = words.text_of(reply)
    made: list[Action] = []
    for block in words.blocks(text) or ([text] if "pyautogui." in text else []):
        made += [words.WORDS[block]] if block in words.WORDS else parse(block)
    if not made and (word := words.last_word(text)):
        made.append(word)
    return made


def say(action: Action, size: tuple[int, int]) -> Message:
    """Return a message that asks for an action."""
    if action.is_end:
        return assistant(action.kind.upper())
    return assistant(f"```python\n{source_of(action)}\n```")


def source_of(action: Action) -> str:
    """Return source that does an action: for a policy to say, and for a virtual machine to run.

    Every value in it is written as a Python literal.
    """
    a = dict(action.args)
    where = f"{a['x']!r}, {a['y']!r}" if "x" in a else ""
    match action.kind:
        case "move":
            return f"pyautogui.moveTo({where})"
        case "move_by":
            return f"pyautogui.move({a['dx']!r}, {a['dy']!r})"
        case "drag":
            return f"pyautogui.dragTo({where}, button={a.get('button', 'left')!r}, duration=0.5)"
        case "drag_by":
            return (f"pyautogui.drag({a['dx']!r}, {a['dy']!r}, "
                    f"button={a.get('button', 'left')!r}, duration=0.5)")
        case "click":
            comma = ", " if where else ""
            return (f"pyautogui.click({where}{comma}clicks={a.get('count', 1)!r}, "
                    f"button={a.get('button', 'left')!r})")
        case "button":
            return f"pyautogui.mouse{'Down' if a['down'] else 'Up'}(button={a['button']!r})"
        case "scroll":
            sign = "" if a["direction"] in ("up", "right") else "-"
            name = "scroll" if a["direction"] in ("up", "down") else "hscroll"
            return f"pyautogui.{name}({sign}{a['count']!r}{', ' + where if where else ''})"
        case "write":
            return f"pyautogui.write({a['text']!r})"
        case "keys":
            keys = ", ".join(repr(actions.said_key(name)) for name in a["names"])
            return f"pyautogui.hotkey({keys})"
        case "key":
            return (f"pyautogui.key{'Down' if a['down'] else 'Up'}"
                    f"({actions.said_key(a['name'])!r})")
        case "wait":
            return f"time.sleep({a.get('seconds', 1.0)!r})"
    raise ValueError(f"pyautogui has no {action.kind!r}")


def parse(source: str) -> list[Action]:
    """Return the actions that a source asks for; Unreadable names the line that asks for more."""
    if len(source) > MAX_SOURCE:
        raise Unreadable(f"{len(source)} characters of source are too many; at most {MAX_SOURCE}")
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"that is no Python: {error}"[:200]) from None
    return list(_Reader().body(module.body))


class _Reader:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}

    def body(self, statements: list[ast.stmt]) -> Iterator[Action]:
        for statement in statements:
            try:
                yield from self.statement(statement)
            except Unreadable as error:
                raise Unreadable(f"line {statement.lineno}: {error}") from None

    def statement(self, it: ast.stmt) -> Iterator[Action]:
        match it:
            case ast.Import(names=names) if all(n.name in MODULES for n in names):
                return
            case ast.Expr(value=ast.Constant(value=str(word))) if word in words.WORDS:
                yield words.WORDS[word]
            case ast.Expr(value=ast.Name(id=word)) if word in words.WORDS:
                yield words.WORDS[word]
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Expr(value=ast.Call() as call):
                yield from self.call(call)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.names[name] = self.constant(value)
            case ast.Assign(targets=[ast.Tuple(elts=[*elts])], value=value):
                values = self.constant(value)
                if not isinstance(values, list) or len(values) != len(elts):
                    raise Unreadable("both sides of an assignment must have as many parts")
                for target, one in zip(elts, values, strict=True):
                    if not isinstance(target, ast.Name):
                        raise Unreadable("only plain names can be given a value")
                    self.names[target.id] = one
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=body):
                yield from self.held(call, body)
            case ast.Pass():
                return
            case _:
                raise Unreadable(f"{type(it).__name__} is not read here: write plain calls only")

    def held(self, call: ast.Call, body: list[ast.stmt]) -> Iterator[Action]:
        if _name(call.func) != "pyautogui.hold":
            raise Unreadable("only pyautogui.hold can stand after `with`")
        [keys] = [self.constant(a) for a in call.args][:1] or [None]
        names = [actions.key(k) for k in (keys if isinstance(keys, list) else [keys])]
        yield from (Action("key", {"name": n, "down": True}) for n in names)
        yield from self.body(body)
        yield from (Action("key", {"name": n, "down": False}) for n in reversed(names))

    def call(self, call: ast.Call) -> Iterator[Action]:
        name = _name(call.func).replace("pag.", "pyautogui.")
        if name not in CALLS:
            raise Unreadable(f"{name or 'that call'} is not read here; there are "
                             f"{', '.join(sorted(CALLS))}")
        takes, make = CALLS[name]
        given: dict[str, Any] = {}
        for at, arg in enumerate(call.args):
            value = self.constant(arg)
            if takes[-1:] == ("*keys",):
                given.setdefault("*keys", []).extend(value if isinstance(value, list) else [value])
            elif at < len(takes):
                given[takes[at]] = value
            else:
                raise Unreadable(f"{name} takes at most {len(takes)} arguments")
        for keyword in call.keywords:
            if keyword.arg not in takes and keyword.arg not in IGNORED:
                raise Unreadable(f"{name} takes no {keyword.arg!r}")
            given[str(keyword.arg)] = self.constant(keyword.value)
        first = given.get("x")  # a place may come as a pair
        if isinstance(first, list) and len(first) == 2:
            given["x"], given["y"] = first
        yield from make(given)

    def constant(self, it: ast.expr) -> Any:
        match it:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -actions.number(self.constant(inner), "a number")
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return [self.constant(e) for e in elts]
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op,
                           right=right):
                return _reckoned(self.constant(left), op, self.constant(right))
        raise Unreadable(f"{ast.unparse(it)[:60]} is no plain number or text")


def _reckoned(left: Any, op: ast.operator, right: Any) -> float:
    a, b = actions.number(left, "a number"), actions.number(right, "a number")
    if isinstance(op, ast.Add):
        return a + b
    if isinstance(op, ast.Sub):
        return a - b
    if isinstance(op, ast.Mult):
        return a * b
    if b == 0:
        raise Unreadable("a number is divided by 0")
    return a / b


def _name(func: ast.expr) -> str:
    return f"{func.value.id}.{func.attr}" if (
        isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name)) else ""


IGNORED = ("duration", "interval", "tween", "_pause", "logScreenshot", "mouseDownUp")
"""arguments about how long things take: they are done at once"""
Given = dict[str, Any]


def _place(a: Given) -> dict[str, float]:
    return actions.at(a.get("x"), a.get("y"))


def _click(button: str, count: int) -> Callable[[Given], list[Action]]:
    def make(a: Given) -> list[Action]:
        return [Action("click", {
            **_place(a), "button": actions.button(str(a.get("button", button)).lower()),
            "count": int(actions.number(a.get("clicks", count), "clicks"))})]
    return make


def _mouse(down: bool) -> Callable[[Given], list[Action]]:
    def make(a: Given) -> list[Action]:
        where = _place(a)
        moved = [Action("move", where)] if where else []
        name = "left" if a.get("button") in (None, "primary") else a["button"]
        return [*moved, Action("button", {"button": actions.button(name), "down": down})]
    return make


def _to(kind: str) -> Callable[[Given], list[Action]]:
    def make(a: Given) -> list[Action]:
        if not (where := _place(a)):
            raise Unreadable("x and y are missing")
        made: dict[str, Any] = dict(where)
        if kind == "drag" and "button" in a:
            made["button"] = actions.button(a["button"])
        return [Action(kind, made)]
    return make


def _by(kind: str) -> Callable[[Given], list[Action]]:
    def make(a: Given) -> list[Action]:
        return [Action(kind, {"dx": actions.number(a.get("x", 0), "x"),
                              "dy": actions.number(a.get("y", 0), "y")})]
    return make


def _scroll(way: str) -> Callable[[Given], list[Action]]:
    def make(a: Given) -> list[Action]:
        amount = actions.number(a.get("clicks"), "clicks")
        return actions.scrolls(amount if way == "h" else 0, amount if way == "v" else 0, _place(a))
    return make


def _write(a: Given) -> list[Action]:
    said = a.get("message", a.get("text"))
    if isinstance(said, list):
        return [Action("keys", {"names": [actions.key(k)]}) for k in said]
    return [Action("write", {"text": actions.text(said)})]


def _press(a: Given) -> list[Action]:
    keys = a.get("keys", a.get("key"))
    names = [actions.key(k) for k in (keys if isinstance(keys, list) else [keys])]
    count = int(min(actions.MAX_ACTIONS, max(0, actions.number(a.get("presses", 1), "presses"))))
    return [Action("keys", {"names": [name]}) for _ in range(count) for name in names]


def _key(down: bool) -> Callable[[Given], list[Action]]:
    return lambda a: [Action("key", {"name": actions.key(a.get("key")), "down": down})]


def _hotkey(a: Given) -> list[Action]:
    if not (keys := a.get("*keys")):
        raise Unreadable("hotkey needs keys")
    return [Action("keys", {"names": [actions.key(k) for k in keys]})]


_AT = ("x", "y", "duration", "tween")
CALLS: dict[str, tuple[tuple[str, ...], Callable[[Given], list[Action]]]] = {
    "pyautogui.click": (("x", "y", "clicks", "interval", "button"), _click("left", 1)),
    "pyautogui.leftClick": (("x", "y"), _click("left", 1)),
    "pyautogui.rightClick": (("x", "y"), _click("right", 1)),
    "pyautogui.middleClick": (("x", "y"), _click("middle", 1)),
    "pyautogui.doubleClick": (("x", "y", "interval", "button"), _click("left", 2)),
    "pyautogui.tripleClick": (("x", "y", "interval", "button"), _click("left", 3)),
    "pyautogui.moveTo": (_AT, _to("move")),
    "pyautogui.moveRel": (_AT, _by("move_by")), "pyautogui.move": (_AT, _by("move_by")),
    "pyautogui.dragTo": ((*_AT, "button"), _to("drag")),
    "pyautogui.dragRel": ((*_AT, "button"), _by("drag_by")),
    "pyautogui.drag": ((*_AT, "button"), _by("drag_by")),
    "pyautogui.mouseDown": (("x", "y", "button"), _mouse(True)),
    "pyautogui.mouseUp": (("x", "y", "button"), _mouse(False)),
    "pyautogui.scroll": (("clicks", "x", "y"), _scroll("v")),
    "pyautogui.vscroll": (("clicks", "x", "y"), _scroll("v")),
    "pyautogui.hscroll": (("clicks", "x", "y"), _scroll("h")),
    "pyautogui.write": (("message", "interval", "text"), _write),
    "pyautogui.typewrite": (("message", "interval", "text"), _write),
    "pyautogui.press": (("keys", "presses", "interval", "key"), _press),
    "pyautogui.keyDown": (("key",), _key(True)), "pyautogui.keyUp": (("key",), _key(False)),
    "pyautogui.hotkey": (("*keys",), _hotkey),
    "pyautogui.sleep": (("seconds",), lambda a: [actions.pause(a.get("seconds", 1))]),
    "time.sleep": (("seconds",), lambda a: [actions.pause(a.get("seconds", 1))]),
}
