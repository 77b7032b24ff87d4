"""`python -m benchmarks.seeds`: the demo once per seed, and the table of docs/recipe.md.

    python -m benchmarks.seeds --seeds 0 1 2 3 4 --person plain
    python -m benchmarks.seeds --collect runs/seed-*        print the table of finished runs
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--person", default="plain")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--collect", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    folders = options.collect or [_play(seed, options) for seed in options.seeds]
    rows = [json.loads((f / "demo.json").read_text(encoding="utf-8")) for f in folders]
    print("\n".join(table(rows)))


def _play(seed: int, options: argparse.Namespace) -> Path:
    name = f"seed-{options.person}-{seed}"
    command = [sys.executable, "-m", "claw_env_personal.demo", "--person", options.person,
               "--seed", str(seed), "--runs", str(options.runs), "--name", name]
    subprocess.run(command, check=True, timeout=3600)
    return options.runs / name


def table(rows: list[dict[str, Any]]) -> list[str]:
    """One line a seed: markdown."""
    lines = [
        "| person | seed | met at conversation | held-out hits | facts right | kept | minutes |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in sorted(rows, key=lambda r: (r["person"], r["seed"])):
        old, new = r["before"], r["after"]
        lines.append(
            f"| {r['person']} | {r['seed']} | {r['met_at'] or 'not'} "
            f"| {old['hit_rate']:.2f} to {new['hit_rate']:.2f} "
            f"| {old['accuracy']:.2f} to {new['accuracy']:.2f} "
            f"| {new['accuracy'] / old['accuracy']:.2f} | {r['seconds'] / 60:.1f} |"
        )
    return lines


if __name__ == "__main__":
    main()
