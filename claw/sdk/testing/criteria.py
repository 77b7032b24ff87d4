"""What the kit found out: one criterion is one sentence that holds or does not.

Owns: the shape of a finding and of a report, in words and as JSON.
Does not own: finding out (the groups).
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from claw.errors import where

MAX_SHOWN = 400
"""characters of what was found that are shown"""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One sentence about a plugin. `passed` is None where there is nothing to hold it against."""

    id: str
    description: str
    passed: bool | None
    required: bool = True
    """False: worth knowing, but no reason to fail"""
    task: str = ""
    expected: str = ""
    actual: str = ""
    do: str = ""

    @property
    def is_broken(self) -> bool:
        return self.passed is False and self.required

    def lines(self) -> list[str]:
        """The finding in words; what a criterion that holds was compared with is left out."""
        mark = {True: "ok  ", False: "FAIL" if self.required else "note", None: "-   "}[self.passed]
        where = f"  [task {self.task}]" if self.task else ""
        said = [f"{mark} {self.id:<20} {self.description}{where}"]
        if self.passed is True:
            return said
        parts = (("expected", self.expected), ("found", self.actual), ("do", self.do))
        return said + [f"       {name}: {text}" for name, text in parts if text]


@dataclass(frozen=True, slots=True)
class Report:
    """Every criterion of one plugin."""

    plugin: str
    version: str
    criteria: list[Criterion] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not any(criterion.is_broken for criterion in self.criteria)

    def broken(self) -> list[Criterion]:
        """The criteria for which the plugin fails."""
        return [criterion for criterion in self.criteria if criterion.is_broken]

    def as_json(self) -> dict[str, Any]:
        """Plain values: plugin, version, passed, criteria."""
        made = [asdict(criterion) for criterion in self.criteria]
        return {"plugin": self.plugin, "version": self.version, "passed": self.passed,
                "criteria": made}


def short(value: Any) -> str:
    """Return what was found, in one bounded piece of text."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def told(error: BaseException) -> str:
    """Return an error as `Type: words (file:line)`, the line being the last one of its trace."""
    return short(f"{type(error).__name__}: {error}") + f" ({where(error)})"
