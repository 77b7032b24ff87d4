"""Metrics: what is there against what should be, 0 to 1, by the names that OSWorld's tasks use.

A metric is called with the result, the expected value where the task has one, and its options.
What is malformed in the result is an exception, which counts as 0; what is malformed in the task is
refused before anything starts (`unsupported_options`).
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import data, office, screen, text

if TYPE_CHECKING:
    from ..task import Check

Metric = Callable[..., float]

METRICS: dict[str, Metric] = {
    "infeasible": lambda *_: 0.0,
    **text.METRICS, **data.METRICS, **office.METRICS, **screen.METRICS,
}
OPTIONS: dict[str, tuple[str, ...]] = {**text.OPTIONS, **data.OPTIONS, **office.OPTIONS}
"""the options that each metric knows; one that is not listed takes none"""


def unsupported_options(check: "Check") -> Iterator[str]:
    """Yield what a check asks of its metric and cannot have."""
    known = OPTIONS.get(check.func, ())
    for name in check.options:
        if name not in known:
            yield f"option {name!r}"
    if check.func == "compare_table":
        for rule in check.options.get("rules") or ():
            if rule.get("type") not in office.TABLE_RULES:
                yield f"rule {rule.get('type')!r}"
    if check.func == "check_json":
        yield from _methods(check.expected)


def _methods(expected: Any) -> Iterator[str]:
    rules = (expected or {}).get("rules") or {}
    for each in [*rules.get("expect", ()), *rules.get("unexpect", ())]:
        if each.get("method") not in data.METHODS:
            yield f"method {each.get('method')!r}"
