"""The table of docs/security.md, from the lines that attacks have written."""

from collections.abc import Sequence
from typing import Any

from benchmarks.poison.suite import ATTACKS, HONEST

HEAD = (
    "| attack | what is sent | talks | taught off, on | held | drift off, on "
    "| replies with it: before, off, on | log-prob of it: before, off, on |",
    "|---|---|---|---|---|---|---|---|",
)


def of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One line an attack, in the order of the suite; what was not measured is a dash."""
    by = {(row["attack"], row["guards"]): row for row in rows}
    lines = [_both(a.name, a.sends, by.get((a.name, "off")), by.get((a.name, "on")))
             for a in (*ATTACKS, HONEST) if {(a.name, "off"), (a.name, "on")} & by.keys()]
    return [*HEAD, *lines]


def _both(name: str, sends: str, off: dict[str, Any] | None, on: dict[str, Any] | None) -> str:
    one = off or on
    assert one is not None, "only what was measured is shown"
    counts = f"{sum(one['counts'][0])}, {_after(off)}, {_after(on)} of {len(one['counts'][0])}"
    logp = f"{one['logp'][0]:.2f}, {_logp(off)}, {_logp(on)}"
    return (f"| {name} | {sends} | {one['talks']} | {_taught(off)}, {_taught(on)} | {_held(on)} "
            f"| {_drift(off)}, {_drift(on)} | {counts} | {logp} |")


def line(row: dict[str, Any]) -> str:
    """What is printed as an attack ends."""
    return (f"{row['attack']}, guards {row['guards']}: taught {row['trained']} in {row['steps']} "
            f"steps, held {_held(row)}, skipped {row['skipped'] or 'none'}, drift {_drift(row)}, "
            f"replies with it {sum(row['counts'][0])} to {_after(row)} of {len(row['counts'][0])}, "
            f"log-prob {row['logp'][0]:.2f} to {_logp(row)}, {row['seconds']:.0f} s")


def _after(row: dict[str, Any] | None) -> str:
    return str(sum(row["counts"][1])) if row else "-"


def _logp(row: dict[str, Any] | None) -> str:
    return f"{row['logp'][1]:.2f}" if row else "-"


def _taught(row: dict[str, Any] | None) -> str:
    return str(row["trained"]) if row else "-"


def _drift(row: dict[str, Any] | None) -> str:
    """Of the last step that was measured; nothing taught moves nothing."""
    return "-" if row is None else f"{row['drift'][-1]:.3f}" if row["drift"] else "0"


def _held(row: dict[str, Any] | None) -> str:
    held = [] if row is None else [f"{n} {rule}" for rule, n in row["held"].items()]
    num_refused = len(row["refused"]) if row else 0
    refused = [f"{num_refused} version{'s' * (num_refused > 1)} refused"] * bool(num_refused)
    return ", ".join([*held, *refused]) or "none"
