"""Pictures of numbers: SVG without a library, drawn on the server.

Owns: points, axes, and the words for people who cannot see the picture.
Does not own: which numbers (`pages`), colours (app.css: a class each).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 340, 150, 40, 22, 10
STEPS = 4
"""shades of an advantage on either side of nothing"""


@dataclass(frozen=True, slots=True)
class Chart:
    """What the template `chart.html` draws."""

    title: str
    said: str
    """the same in words"""
    lines: tuple[dict[str, Any], ...]
    """name, css class, points ("x,y x,y"), dots"""
    marks: tuple[dict[str, Any], ...]
    """of both axes: x, y, text, and whether a rule is drawn"""
    limit: float | None = None
    """y of a limit that must not be crossed"""
    width: int = WIDTH
    height: int = HEIGHT


def chart(
    title: str, xs: Sequence[int], series: dict[str, Sequence[float | None]], *,
    unit: str = "", limit: float | None = None, low: float | None = None,
    high: float | None = None,
) -> Chart | None:
    """Return lines over versions; None when there is nothing to draw."""
    series = {n: ys for n, ys in series.items() if any(y is not None for y in ys)}
    values = [v for ys in series.values() for v in ys if v is not None]
    if not values or not xs:
        return None
    bottom = min(values) if low is None else low
    top = max([*values, *([] if limit is None else [limit])]) if high is None else high
    if top - bottom < 1e-9:
        top, bottom = top + 0.5, bottom - 0.5

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - xs[0]) / max(xs[-1] - xs[0], 1)
        return (round(LEFT + across * (WIDTH - LEFT - 12), 1),
                round(TOP + (top - y) / (top - bottom) * (HEIGHT - TOP - BOTTOM), 1))

    lines = []
    for n, (name, ys) in enumerate(series.items()):
        dots = [{"x": at(x, y)[0], "y": at(x, y)[1], "text": f"v{x}: {_short(y)}{unit}"}
                for x, y in zip(xs, ys, strict=True) if y is not None]
        lines.append({"name": name, "css": f"line{n}", "dots": dots,
                      "points": " ".join(f"{d['x']},{d['y']}" for d in dots)})
    marks = [{"x": LEFT - 6, "y": at(xs[0], y)[1], "text": _short(y), "rule": True}
             for y in (bottom, (bottom + top) / 2, top)]
    every = max(1, len(xs) // 6)
    marks += [{"x": at(x, bottom)[0], "y": HEIGHT - 6, "text": f"v{x}", "rule": False}
              for x in xs[::every]]
    said = "; ".join(
        f"{name}: " + ", ".join(f"v{x} {_short(y)}{unit}" for x, y in zip(xs, ys, strict=True)
                                if y is not None)
        for name, ys in series.items()
    )
    return Chart(title, said, tuple(lines), tuple(marks),
                 None if limit is None else at(xs[0], limit)[1])


def _short(value: float) -> str:
    if abs(value) >= 10 or float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.2f}"


def shade(advantage: float, largest: float) -> str:
    """Return the css class of a token: `up1` to `up4`, `down1` to `down4`, or `level`."""
    share = advantage / largest if largest > 0 else 0.0
    if abs(share) < 0.02:
        return "level"
    step = max(1, min(STEPS, round(abs(share) * STEPS)))
    return f"{'up' if share > 0 else 'down'}{step}"
