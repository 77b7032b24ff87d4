"""`python -m benchmarks.trust`: what a run survives, in one table; its zeros decide the exit code.

Three parts, each of which writes its figures into a file: processes are killed and stopped at the
points of claw/engine/faults.py while people talk (tests/whole/test_whole_faults.py), odd inputs are
fed to all that reads what comes from outside (tests/fuzz), and many clients talk for long
(benchmarks.soak). `make trust` runs all of it, for some hours; `--points 0`, `--inputs 0` and
`--minutes 0` leave a part out. `--resume` goes on where an earlier run of the same code stopped:
what is in its folder and did not fail is not run again.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from claw.engine import faults

console = Console(highlight=False)
ROOT = Path(__file__).parents[1]
FAULTS = "tests/whole/test_whole_faults.py"
ALL_INPUTS, ALL_TIMES = 200_000, 60
"""the whole budget of tests/fuzz: so many inputs, which is so many times the short one"""
POINT_S = 500.0
"""the longest that one point may take; its test has less"""


@dataclass
class Case:
    """One test as pytest's own report has it."""

    name: str
    failed: str = ""
    figures: dict[str, float] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", default="all", help="how many fault points, or all")
    parser.add_argument("--at-once", type=int, default=1, help="points that are tried side by side")
    parser.add_argument("--inputs", type=int, default=ALL_INPUTS)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0, help="draws the sample of points")
    parser.add_argument("--out", type=Path, default=Path("trust"), help="folder of what is found")
    parser.add_argument("--resume", action="store_true", help="keep what --out already has")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with ThreadPoolExecutor(options.at_once) as pool:
        struck = list(pool.map(lambda words: _at_point(words, options),
                               chosen(options.points, options.seed)))
    fed = _fuzz(options)
    soak = _soak(options)
    rows, wrong = figures(struck, fed, soak)
    (options.out / "trust.json").write_text(json.dumps(
        {"rows": rows, "wrong": wrong, "points": [case.name for case in struck],
         "failed": {case.name: case.failed for case in (*struck, *fed) if case.failed}}, indent=2))
    _show(rows, wrong, (time.monotonic() - began) / 60)
    return int(bool(wrong))


# --- the parts -------------------------------------------------------------------------------


def chosen(points: str, seed: int) -> list[str]:
    """The faults to be tried, as the test names them: all, or a sample, kills and stops in turn."""
    from_test = subprocess.run(
        [sys.executable, "-m", "pytest", FAULTS, "--collect-only", "-q", "--run-slow", "-p",
         "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=POINT_S)
    known = [line.partition("[")[2].rstrip("]") for line in from_test.stdout.splitlines()
             if line.startswith(FAULTS)]
    if points == "all":
        return known
    order = random.Random(seed)
    by_action = [[w for w in known if w.endswith(f"={action}")] for action in faults.SIGNALS]
    for words in by_action:
        order.shuffle(words)
    mixed = itertools.chain.from_iterable(itertools.zip_longest(*by_action))
    return [words for words in mixed if words][: int(points)]


def _at_point(words: str, options: argparse.Namespace) -> Case:
    """A run of its own: what one leaves cannot help or hurt the next."""
    report = options.out / f"{words}.xml"
    cases = _kept(report, options) or list(
        _pytest([f"{FAULTS}::test_nothing_is_lost_at[{words}]"], report, POINT_S))
    case = cases[0] if cases else Case(words, "no report was written")
    case.name = words
    console.print(f"{words:40} {case.failed or 'survived'}")
    return case


def _fuzz(options: argparse.Namespace) -> list[Case]:
    if not options.inputs:
        return []
    times = max(1, round(options.inputs * ALL_TIMES / ALL_INPUTS))
    report = options.out / "fuzz.xml"
    return _kept(report, options) or list(
        _pytest(["tests/fuzz", "-m", "nightly"], report, None, {"CLAW_FUZZ": str(times)}))


def _soak(options: argparse.Namespace) -> dict[str, Any]:
    if not options.minutes:
        return {}
    out = options.out / "soak"
    file = out / "soak.json"
    if options.resume and file.exists():
        return dict(json.loads(file.read_text()))
    file.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", "--minutes", str(options.minutes), "--clients",
         str(options.clients), "--seed", str(options.seed), "--out", str(out.absolute())],
        cwd=ROOT, check=False)
    return dict(json.loads(file.read_text())) if file.exists() else {"failed": True}


def _kept(report: Path, options: argparse.Namespace) -> list[Case]:
    """What an earlier run found there; nothing of a part that failed, which is tried again."""
    found = list(read(report)) if options.resume else []
    return [] if any(case.failed for case in found) else found


def _pytest(
    words: list[str], report: Path, limit_s: float | None, more: dict[str, str] | None = None
) -> Iterator[Case]:
    """Run tests; yield each as their report says, which is a file of JUnit's XML."""
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--run-slow", "-p", "no:cacheprovider",
               f"--junitxml={report.absolute()}", *words]
    with report.with_suffix(".out").open("wb") as said, suppress(subprocess.TimeoutExpired):
        subprocess.run(command, cwd=ROOT, stdout=said, stderr=said, check=False, timeout=limit_s,
                       env=os.environ | (more or {}))
    return read(report)


def read(report: Path) -> Iterator[Case]:
    """Yield the tests of a report; what was skipped or not reported is a failure too."""
    if not report.exists():
        return
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        wrong = [case.find(kind) for kind in ("failure", "error", "skipped")]
        found = [w.get("message", "")[:200].partition("\n")[0] for w in wrong if w is not None]
        properties = {p.get("name", ""): float(p.get("value", "nan"))
                      for p in case.iter("property")}
        yield Case(case.get("name", ""), "; ".join(found), properties)


# --- the table -------------------------------------------------------------------------------


def figures(
    struck: list[Case], fed: list[Case], soak: dict[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Return the rows of the table, and what of it is not as it must be."""
    survived = sum(not case.failed for case in struck)
    lost, twice, left = (sum(int(case.figures.get(name, 0)) for case in struck)
                         + int(soak.get(of_soak, 0)) for name, of_soak in (
        ("lost", "lost"), ("twice", "twice"), ("left", "orphans")))
    broken = [case.name for case in fed if case.failed]
    inputs = sum(int(case.figures.get("fuzz inputs", 0)) for case in fed)
    peak = dict(soak.get("peak_mb") or {})
    gap_s = max((case.figures.get("gap_s", 0.0) for case in struck), default=0.0)
    rows = {
        "points killed or stopped": f"{len(struck)}",
        "faults survived": f"{survived} of {len(struck)}",
        "inputs tried": f"{inputs:,} over {len(fed)} targets, {len(broken)} failed",
        "requests served during faults":
            f"{sum(int(case.figures.get('answered', 0)) for case in struck):,}",
        "requests served in the soak":
            f"{dict(soak.get('requests') or {}).get('answered', 0):,}",
        "turns lost": str(lost), "turns trained twice": str(twice), "orphans": str(left),
        "peak memory": f"{sum(peak.values()):.0f} MB" + (
            f" ({', '.join(f'{n} {mb:.0f}' for n, mb in sorted(peak.items()))})" if peak else ""),
        "longest gap in a stream": f"{gap_s:.1f} s at a fault, {soak.get('gap_s', 0.0):.1f} s else",
    }
    wrong = [f"{name}: {n}" for name, n in (("turns lost", lost), ("trained twice", twice),
                                            ("orphans", left)) if n]
    wrong += [f"{case.name}: {case.failed}" for case in (*struck, *fed) if case.failed]
    return rows, wrong + (["the soak did not come to its end"] if soak.get("failed") else [])


def _show(rows: dict[str, str], wrong: list[str], minutes: float) -> None:
    table = Table(title=f"{minutes:.0f} minutes, {describe()}", title_justify="left",
                  show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    for line in wrong:
        console.print(f"[bold]wrong[/bold] {line}")


if __name__ == "__main__":
    sys.exit(main())
