"""The accessibility tree: what applications say is on the screen, filtered and bounded.

Owns: the nodes, reading them from the desk's JSON or from a virtual machine's XML, the lines that a
policy sees.
Does not own: asking applications (`desk`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

MAX_LINES = 150
MAX_CHARS = 8000
MAX_LABEL = 80
LAYOUT = frozenset({
    "application", "filler", "panel", "scroll pane", "viewport", "split pane", "layered pane",
    "root pane", "section", "redundant object", "unknown", "separator", "internal frame",
    "document web", "tool bar", "grouping", "paragraph", "static", "list", "table", "tree",
    "menu bar", "status bar", "page tab list", "frame", "block quote", "landmark", "form",
})
"""roles that are worth a line only for the words they hold"""
STATES = ("focused", "checked", "selected", "expanded", "pressed", "editable", "modal")
_PAIR = re.compile(r"\(?\s*(-?\d+)\s*,\s*(-?\d+)\s*\)?")


@dataclass(frozen=True, slots=True)
class Node:
    """One thing on the screen."""

    role: str
    name: str = ""
    states: frozenset[str] = frozenset()
    box: tuple[int, int, int, int] | None = None
    """x, y, width, height"""
    text: str | None = None
    value: float | None = None
    children: tuple["Node", ...] = field(default=(), repr=False)

    def walk(self) -> Iterator["Node"]:
        """Yield it and everything below, in the order of the screen."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo += reversed(node.children)


def of_desk(raw: dict[str, Any]) -> Node:
    """Return what the desk sent."""
    box = raw.get("box")
    return Node(
        str(raw.get("role") or ""), _clean(raw.get("name")), frozenset(raw.get("states") or ()),
        (box[0], box[1], box[2], box[3]) if box else None,
        None if raw.get("text") is None else _without_marks(str(raw["text"])), raw.get("value"),
        tuple(of_desk(child) for child in raw.get("children") or ()),
    )


def of_xml(text: str) -> list[Node]:
    """Return the applications of a virtual machine's XML (`/accessibility`)."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return []
    return [_of_element(child) for child in root]


def _of_element(element: ElementTree.Element) -> Node:
    found = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    at, size = _PAIR.match(found.get("screencoord", "")), _PAIR.match(found.get("size", ""))
    states = frozenset(name for name, value in found.items() if value == "true")
    return Node(
        element.tag.replace("-", " "), _clean(element.get("name")), states,
        (int(at[1]), int(at[2]), int(size[1]), int(size[2])) if at and size else None,
        _without_marks(element.text or "") or None, None,
        tuple(_of_element(child) for child in element),
    )


def shown(nodes: list[Node], size: tuple[int, int]) -> list[Node]:
    """Return the nodes that a person could see and would care about."""
    return [n for app in nodes for n in app.walk() if _is_on(n, size) and _says(n)]


def _is_on(node: Node, size: tuple[int, int]) -> bool:
    if node.box is None or "showing" not in node.states:
        return False
    x, y, width, height = node.box
    # what is hidden has a box far outside
    return (width > 0 and height > 0
            and -width < x < size[0] and -height < y < size[1])


def _says(node: Node) -> bool:
    if node.role in LAYOUT:
        return bool(node.name and node.role == "frame") or bool((node.text or "").strip())
    return bool(node.name or (node.text or "").strip() or "editable" in node.states
                or "focused" in node.states or node.value is not None)


def lines(nodes: list[Node], size: tuple[int, int], *, max_lines: int = MAX_LINES,
          max_chars: int = MAX_CHARS) -> str:
    """Return one line for each node: role, name, text, state, and where to click."""
    # the window in front first: what is cut off then is what lies behind
    front = sorted(nodes, key=lambda app: not any("active" in n.states for n in app.children))
    kept = shown(front, size)
    made: list[str] = []
    used = 0
    for node in kept[:max_lines]:
        line = _line(node)
        if used + len(line) > max_chars:
            break
        made.append(line)
        used += len(line) + 1
    if len(made) < len(kept):
        made.append(f"[{len(kept) - len(made)} more left out]")
    return "\n".join(made) or "[no application says what it shows]"


def _line(node: Node) -> str:
    assert node.box is not None, "shown() keeps none without a box"
    x, y, width, height = node.box
    parts = [node.role, f'"{_short(node.name)}"' if node.name else ""]
    text = (node.text or "").strip()
    if text and text != node.name:
        parts.append(f"text={_short(text)!r}")
    elif node.value is not None and node.role not in ("push button", "menu item", "menu"):
        parts.append(f"value={node.value:g}")
    states = [state for state in STATES if state in node.states]
    if states:
        parts.append(f"[{', '.join(states)}]")
    parts.append(f"at ({x + width // 2}, {y + height // 2})")
    return " ".join(part for part in parts if part)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 3] + "..."


def _without_marks(text: str) -> str:
    """Where a part of its own stands in a text there is a mark."""
    return text.replace("\ufffc", "").strip() if "\ufffc" in text else text


def _clean(value: Any) -> str:
    """Names carry blanks behind them."""
    return " ".join(str(value or "").split())
