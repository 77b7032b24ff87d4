"""`python -m benchmarks.sandbox`: commands in warm sandboxes, beside the engine's own exec.

Both run `true` in containers of the same image and limits, in the same run, by turns: what a
machine does besides is in both. Also: how long 32 sandboxes take to be there, and to be gone.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.table import Table

from claw.sdk.sandbox import Sandbox, Spec, engine, open_sandbox

console = Console(highlight=False)
TARGETS = {"one": "p50 at most 3 ms", "eight": "at least 200 a second", "up": "at most 8 s"}


def timed(call: Callable[[], object], count: int, pause_s: float = 0.0) -> list[float]:
    """Milliseconds of each call."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1000)
        time.sleep(pause_s)
    return times


def a_second(calls: Sequence[Callable[[], object]], for_s: float) -> float:
    """Calls a second, one thread for each, each as fast as it can."""
    end = time.perf_counter() + for_s

    def loop(call: Callable[[], object]) -> int:
        count = 0
        while time.perf_counter() < end:
            call()
            count += 1
        return count

    start = time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as threads:
        total = sum(threads.map(loop, calls))
    return total / (time.perf_counter() - start)


def open_many(count: int) -> tuple[list[Sandbox], float]:
    start = time.perf_counter()
    with ThreadPoolExecutor(count) as threads:
        boxes = list(threads.map(lambda _: open_sandbox(Spec(memory_mb=256)), range(count)))
    return boxes, time.perf_counter() - start


def close_many(boxes: list[Sandbox]) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda b: b.close(), boxes))
    return time.perf_counter() - start


def exec_of(box: Sandbox) -> Callable[[], Any]:
    """The engine's own way to run a command there."""
    container = engine.client().containers.get(box.id)
    return lambda: container.exec_run(["timeout", "60", "true"], user="1000:1000")


def run_of(box: Sandbox, command: str | list[str]) -> Callable[[], Any]:
    return lambda: box.run(command)


def row(table: Table, name: str, times: list[float], target: str = "") -> None:
    ordered = sorted(times)
    table.add_row(name, f"{statistics.median(times):.2f}", f"{ordered[len(times) // 10]:.2f}",
                  f"{ordered[len(times) * 9 // 10]:.2f}", target)


def one_sandbox(rounds: int) -> Table:
    """Commands one after another; the two ways by turns, so that load hits both."""
    ours: list[float] = []
    shell: list[float] = []
    paced: list[float] = []
    plain: list[float] = []
    with open_sandbox() as box:
        for _ in range(rounds):
            ours += timed(run_of(box, ["true"]), 40)
            shell += timed(run_of(box, "true"), 40)
            paced += timed(run_of(box, "true"), 20, pause_s=0.02)
            plain += timed(exec_of(box), 5)
    table = Table(title="one sandbox, milliseconds a command")
    for name in ("", "p50", "p10", "p90", "target"):
        table.add_column(name, justify="right" if name else "left")
    row(table, "claw, program, back to back", ours, TARGETS["one"])
    row(table, "claw, bash -c, back to back", shell, TARGETS["one"])
    row(table, "claw, bash -c, 20 ms between", paced, TARGETS["one"])
    row(table, "docker exec through the SDK", plain)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate")
    parser.add_argument("--many", type=int, default=32)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    console.print(f"{engine.version()}, {os.cpu_count()} cores, load {load:.1f} before the run")
    console.print(one_sandbox(options.rounds))

    boxes, up_s = open_many(options.many)
    try:
        eight = boxes[:8]
        ours = a_second([run_of(b, ["true"]) for b in eight], options.seconds)
        shell = a_second([run_of(b, "true") for b in eight], options.seconds)
        plain = a_second([exec_of(b) for b in eight], options.seconds)
    finally:
        down_s = close_many(boxes)
    table = Table(title="many sandboxes")
    for name in ("", "found", "target"):
        table.add_column(name, justify="right" if name == "found" else "left")
    table.add_row("claw, program, over 8, a second", f"{ours:.0f}", TARGETS["eight"])
    table.add_row("claw, bash -c, over 8, a second", f"{shell:.0f}", TARGETS["eight"])
    table.add_row("docker exec, over 8, a second", f"{plain:.0f}", "")
    table.add_row(f"{options.many} up, seconds", f"{up_s:.1f}", TARGETS["up"])
    table.add_row(f"{options.many} closed, seconds", f"{down_s:.1f}", "")
    console.print(table)


if __name__ == "__main__":
    main()
