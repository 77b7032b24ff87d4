"""`python -m benchmarks.swe`: many gradings at once, and what an attempt takes besides its tests.

Grades the gold patches of the shipped instances, repeated, all at once: every one must resolve, and
no container may be left. One after another they show what an attempt takes besides the tests: a
sandbox for the agent, and the grading in a second one.
"""

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

from claw_env_swe import grade, machine, tasks, work
from claw_env_swe.instance import Instance
from claw_env_swe.settings import SweConfig
from rich.console import Console
from rich.table import Table

from claw.sdk.sandbox import engine, owner

console = Console(highlight=False)
TARGET = "at most 2.5"


def attempt(instance: Instance, config: SweConfig) -> tuple[float, grade.Grade]:
    """Seconds that an attempt takes besides its agent and its tests, and its grade."""
    start = time.perf_counter()
    with machine.opened(instance, config) as box:
        user = machine.user_of(instance)
        base = work.base_of(box, instance.workdir, user)
        words = ["git", "apply", "--whitespace=nowarn", "-"]
        ran = box.run(words, stdin=instance.gold.encode(), user=user, cwd=instance.workdir)
        assert ran.exit_code == 0, ran.text
        made = grade.grade(work.of_box(box, instance.workdir, base, user), instance, config)
    return time.perf_counter() - start - made.test_s, made


def containers() -> int:
    """How many containers this process owns."""
    found = engine.api().containers(all=True, filters={"label": owner.OWNER})
    return sum(str(os.getpid()) in c["Labels"][owner.OWNER].split() for c in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=50, help="gradings at once")
    parser.add_argument("--rounds", type=int, default=2, help="attempts at each, one at a time")
    options = parser.parse_args()
    config = SweConfig(memory_mb=1024, eval_share=0.0)
    instances = [tasks.instance_of(t) for t in tasks.of_split(config, "train")]
    for instance in instances:
        machine.prepared(instance, config)
    console.print(f"{engine.version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} "
                  f"before the run, {len(instances)} instances prepared")
    alone = [attempt(i, config) for _ in range(options.rounds) for i in instances]

    def graded(instance: Instance) -> grade.Grade:
        return grade.grade(work.Work(instance.gold.encode()), instance, config)

    start = time.perf_counter()
    with ThreadPoolExecutor(options.many) as threads:
        many = list(threads.map(graded, islice(cycle(instances), options.many)))
    took = time.perf_counter() - start
    table = Table(title="seconds")
    for name in ("", "found", "target"):
        table.add_column(name, justify="right" if name == "found" else "left")
    besides = [seconds for seconds, _ in alone]
    table.add_row("an attempt besides its tests, median", f"{statistics.median(besides):.2f}",
                  TARGET)
    table.add_row("an attempt besides its tests, worst", f"{max(besides):.2f}", "")
    table.add_row("tests of one grading, median",
                  f"{statistics.median(g.test_s for _, g in alone):.2f}", "")
    table.add_row(f"{options.many} gradings at once, all", f"{took:.1f}", "")
    table.add_row("of them resolved", f"{sum(g.is_solved for g in many)}", f"{options.many}")
    table.add_row("containers left", f"{containers()}", "0")
    console.print(table)


if __name__ == "__main__":
    main()
