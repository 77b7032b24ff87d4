"""`python -m benchmarks.imports`: what a plugin author waits for, in milliseconds over bare Python.

Each import runs in a fresh process, `--rounds` times, alternating with bare Python; the table has the
median and the smallest difference. The budget of `import claw.sdk` is 150 ms.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

console = Console(highlight=False)
IMPORTS = (
    "claw.sdk", "claw.sdk.testing.pytest_plugin", "claw.sdk.registry", "claw.sdk.doubles",
    "claw.sdk.testing.kit", "claw.cli",
)
BUDGET_MS = 150.0


def seconds(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def measured(module: str, rounds: int) -> list[float]:
    """Milliseconds over bare Python, one of each round; the first pair warms the disk's cache."""
    pairs = [(seconds("pass"), seconds(f"import {module}")) for _ in range(rounds + 1)]
    return [1000 * (loaded - bare) for bare, loaded in pairs[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    table = Table("import", "median ms", "least ms", box=None)
    for module in IMPORTS:
        found = measured(module, rounds)
        table.add_row(module, f"{statistics.median(found):.0f}", f"{min(found):.0f}")
    console.print(f"{platform.machine()}, Python {platform.python_version()}, {rounds} rounds; "
                  f"budget of claw.sdk {BUDGET_MS:g} ms")
    console.print(table)


if __name__ == "__main__":
    main()
