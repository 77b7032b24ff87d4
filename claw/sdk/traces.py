"""Attempts in a file: one JSON line each, written and read back without loss.

Owns: the record, its line, appending so that a crash leaves whole lines.
Does not own: playing, and the formats of other projects (`claw.sdk.formats`).
"""

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from claw.errors import ClawError
from claw.records import End, Message, Signal

FORMAT = 1


@dataclass(frozen=True, slots=True)
class AttemptTrace:
    """One attempt at one task: what was said, how it ended, who judged it."""

    task_id: str
    attempt: int
    """0 to n - 1"""
    messages: tuple[Message, ...]
    """the whole conversation, the environment's messages and the policy's"""
    end: End
    outcome: float | None = None
    judge: str = ""
    """who said the outcome"""
    failure: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    turns: tuple[dict[str, Any], ...] = ()
    """per policy call: id, finish_reason, usage, version"""
    signals: tuple[Signal, ...] = ()
    num_tokens: int = 0
    seconds: float = 0.0

    @property
    def is_scored(self) -> bool:
        """Whether it counts: the infrastructure did its part and a judge gave a number."""
        return self.outcome is not None and self.end not in (End.FAILED, End.CANCELLED)


def to_line(trace: AttemptTrace) -> str:
    """Return the trace as one line of JSON; ASCII only, so that any text survives any file."""
    return json.dumps({"format": FORMAT, **_plain(asdict(trace))}, allow_nan=False)


def from_line(line: str) -> AttemptTrace:
    """Read what `to_line` wrote; raise ClawError that says what is wrong with it."""
    try:
        values = json.loads(line)
        found = values.pop("format", None)
        if found != FORMAT:
            raise ValueError(f"format {found!r}; this version reads {FORMAT}")
        values["end"] = End(values["end"])
        values["signals"] = tuple(_signal(value) for value in values.get("signals", ()))
        for name in ("messages", "tools", "turns"):
            values[name] = tuple(values.get(name, ()))
        return AttemptTrace(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClawError("not a trace", found=f"{error}: {line[:200]!r}") from error


def append(path: Path, trace: AttemptTrace) -> None:
    """Write one more line, on the disk when this returns."""
    with path.open("a", encoding="ascii") as out:
        out.write(to_line(trace) + "\n")
        out.flush()
        os.fsync(out.fileno())


def read(path: Path) -> list[AttemptTrace]:
    """Return the traces of a file; a last line that a crash cut short is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    made = []
    for number, line in enumerate(lines, 1):
        try:
            made.append(from_line(line))
        except ClawError as error:
            raise ClawError(f"line {number} of {path} is no trace", found=error.found) from error
    return made


def mend(path: Path) -> None:
    """Cut off a last line that a crash cut short, so that appending goes on behind whole lines."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)


def _plain(value: Any) -> Any:
    """What JSON cannot hold must not cost the trace: NaN is null, a strange object its repr."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else repr(value)


def _signal(value: dict[str, Any]) -> Signal:
    known = {f.name for f in fields(Signal)}
    if unknown := sorted(set(value) - known):
        raise ValueError(f"a signal has no field {unknown[0]!r}")
    lists = {name: tuple(value.get(name) or ()) for name in ("votes", "hints")}
    return Signal(**value | lists)
