"""The toolcall plugin with advantages drawn by lot: a control that learns from no outcome.

Owns: the plugin `control`: every hook of toolcall, and the credit `random`.
Does not own: when it is used (`benchmarks.toolcall`).

The lots are as large as real advantages (+1 or -1, where `step` would give one), so that a run with
them changes the weights as much: what rises then does not come from the judge.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from claw_env_toolcall import (
    claw_config,
    claw_defaults,
    claw_env,
    claw_judges,
    claw_tasks,
)

from claw.sdk import hookimpl

__all__ = ["claw_config", "claw_credit", "claw_defaults", "claw_env", "claw_judges", "claw_tasks"]


@hookimpl
def claw_credit(register: Callable[[str, Callable[..., Any]], None]) -> None:
    """Add `random`."""
    register("random", lots)


def lots(group: Sequence[Any], *, alpha: float, baseline: float) -> list[list[float]]:
    """Return +1 or -1 for each turn, from a hash of the group: the same again for a run resumed."""
    seed = repr(group).encode()
    return [
        [1.0 if hashlib.sha256(seed + bytes(f"{i},{j}", "ascii")).digest()[0] % 2 else -1.0
         for j in range(len(trace.process))]
        for i, trace in enumerate(group)
    ]


@contextmanager
def installed(folder: Path, name: str = "control") -> Iterator[str]:
    """Yield a PYTHONPATH on which `benchmarks.NAME` is the plugin NAME."""
    with TemporaryDirectory(dir=folder) as path:
        about = Path(path) / f"claw_{name}-0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: claw-{name}\nVersion: 0\n")
        (about / "entry_points.txt").write_text(f"[claw]\n{name} = benchmarks.{name}\n")
        yield f"{path}:{Path(__file__).parent.parent}"
