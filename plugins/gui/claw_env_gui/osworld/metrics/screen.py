"""Metrics of pictures, windows and the accessibility tree."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...tree import Node


def check_accessibility_tree(result: list[Node], rules: list[dict[str, Any]]) -> float:
    """For each rule something that shows has the role, the name and the text it names.

    OSWorld's own rules are CSS selectors or XPath over its VM's XML; those are refused. A rule here
    is {"role": ..., "name": ..., "text": ..., "states": [...]}, each part optional.
    """
    nodes = [node for app in result for node in app.walk()]
    return float(all(any(_fits(node, rule) for node in nodes) for rule in rules))


def _fits(node: Node, rule: dict[str, Any]) -> bool:
    if unknown := set(rule) - {"role", "name", "text", "states"}:
        raise ValueError(f"a rule about the tree knows no {sorted(unknown)[0]!r}")
    return (rule.get("role", node.role) == node.role and rule.get("name", node.name) == node.name
            and rule.get("text", node.text) == node.text
            and set(rule.get("states", ())) <= node.states)


def check_image_size(path: Path | None, rule: dict[str, Any]) -> float:
    """A picture has the expected width and height, where they are given."""
    from PIL import Image

    if path is None:
        return 0.0
    with Image.open(path) as picture:
        return float(rule.get("width", picture.width) == picture.width
                     and rule.get("height", picture.height) == picture.height)


def compare_image_list(first: Any, second: Any) -> float:
    """Two lists of pictures are the same, pixel for pixel."""
    from PIL import Image, ImageChops

    pairs = list(zip(*(each if isinstance(each, list) else [each] for each in (first, second)),
                     strict=True))
    for a, b in pairs:
        with Image.open(a) as one, Image.open(b) as other:
            if one.size != other.size:
                return 0.0
            if ImageChops.difference(one.convert("RGB"), other.convert("RGB")).getbbox():
                return 0.0
    return 1.0


METRICS: dict[str, Callable[..., float]] = {
    f.__name__: f for f in (check_accessibility_tree, check_image_size, compare_image_list)}
