"""`claw bench NAME`: the benchmarks of a checkout, each a program of its own.

Owns: which there are, what each says of itself, running one.
Does not own: what they measure (`benchmarks/`, which installed packages do not carry).
"""

import subprocess
import sys
from pathlib import Path

import claw
from claw.errors import UsageError, nearest

ROOT = Path(claw.__file__).parents[1]
MARK = "`python -m benchmarks."
"""how the docstring of a program begins; modules without it are parts of others"""


def programs(root: Path = ROOT) -> dict[str, str]:
    """Return what each benchmark measures, by name."""
    found = {}
    for path in sorted((root / "benchmarks").glob("*.py")):
        first = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix('"""')
        if first.startswith(MARK):
            found[path.stem] = first.partition("`: ")[2]
    if not found:
        raise UsageError(
            "the benchmarks are not installed with the package", found=str(root),
            do="clone the repository and run claw from there: pip install -e .[train,dev]",
        )
    return found


def run(name: str, arguments: list[str], root: Path = ROOT) -> int:
    """Run one and return its exit code."""
    known = programs(root)
    if name not in known:
        raise UsageError(f"no benchmark {name!r}", found=nearest(name, known),
                         allowed=", ".join(known))  # fmt: skip
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    return subprocess.run(command, cwd=root, check=False).returncode
