"""`python -m benchmarks.desktop`: how long a desktop takes to be there, and to be seen and used.

In the same run: one desktop after another (ready, a screenshot, a click, a key, the tree of an
editor, the editor's window), then eight at once that all type and are looked at.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from claw_env_gui.actions import Action
from claw_env_gui.desktop import Desktop
from rich.console import Console
from rich.table import Table

console = Console(highlight=False)
TARGETS = {"ready": "at most 2000", "screenshot": "at most 40"}


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def window(desktop: Desktop) -> None:
    """Start an editor and wait for its window."""
    desktop.launch(["mousepad"])
    while not desktop.windows():
        time.sleep(0.01)


def one(times: dict[str, list[float]], count: int) -> None:
    """Open a desktop, use it, close it."""
    made: list[Desktop] = []
    times["ready"].append(timed(lambda: made.append(Desktop())))
    [desktop] = made
    try:
        times["editor's window"].append(timed(lambda: window(desktop)))
        desktop.settle()
        for _ in range(count):
            times["screenshot"].append(timed(desktop.screenshot))
            times["click"].append(timed(lambda: desktop.do(
                Action("click", {"x": 640.0, "y": 400.0}))))
            times["10 keys"].append(timed(lambda: desktop.do(
                Action("write", {"text": "ten words!"}))))
            times["tree"].append(timed(desktop.nodes))
    finally:
        times["close"].append(timed(desktop.close))


def at_once(count: int, for_s: float) -> tuple[float, float]:
    """Return (seconds until all are up with an editor, steps a second of all together)."""
    began = time.perf_counter()
    with ThreadPoolExecutor(count) as threads:
        desktops = list(threads.map(lambda _: Desktop(), range(count)))
        try:
            list(threads.map(window, desktops))
            up = time.perf_counter() - began
            end = time.perf_counter() + for_s

            def act(desktop: Desktop) -> int:
                steps = 0
                while time.perf_counter() < end:
                    desktop.do(Action("write", {"text": "word "}))
                    desktop.screenshot()
                    desktop.nodes()
                    steps += 1
                return steps

            steps = sum(threads.map(act, desktops))
            return up, steps / for_s
        finally:
            list(threads.map(Desktop.close, desktops))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="few and short")
    smoke = parser.parse_args().smoke
    times: dict[str, list[float]] = {name: [] for name in (
        "ready", "editor's window", "screenshot", "click", "10 keys", "tree", "close")}
    for _ in range(1 if smoke else 5):
        one(times, 3 if smoke else 10)
    table = Table("one desktop", "median ms", "worst ms", "target")
    for name, found in times.items():
        table.add_row(name, f"{statistics.median(found):.1f}", f"{max(found):.1f}",
                      TARGETS.get(name, ""))
    console.print(f"{os.cpu_count()} processors, 1280 x 800")
    console.print(table)
    up, steps = at_once(2 if smoke else 8, 2.0 if smoke else 15.0)
    console.print(f"{2 if smoke else 8} at once: up with an editor after {up:.1f} s; then "
                  f"{steps:.1f} steps a second of all together (type, screenshot, tree)")


if __name__ == "__main__":
    main()
