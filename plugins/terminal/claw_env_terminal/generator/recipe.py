"""From a seed to a task folder that exists in memory only.

Owns: seeds, splits, levels, and putting a made task into Harbor's shape.
Does not own: what the families ask (`families`), the checker (`check`, which runs in the sandbox).
"""

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from claw.sdk.formats.folder import FormatError, TaskFolder

from . import families
from .families import HOME, Made

CHECKER = Path(__file__).with_name("check.py")
TEST = b"#!/bin/bash\nexec python3 -I -S /tests/check.py /tests/checks.json\n"
USER = "1000:1000"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a generated task is made from."""

    seed: int
    split: str
    index: int
    families: tuple[str, ...] = ()
    level: int = 3

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"families": list(self.families)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Recipe":
        return cls(**{**values, "families": tuple(values["families"])})


def check(names: tuple[str, ...]) -> None:
    """Raise FormatError for a family that does not exist."""
    wrong = [name for name in names if name not in families.TABLE]
    if wrong:
        raise FormatError("no such family of tasks", found=", ".join(wrong),
                          allowed=", ".join(families.TABLE))


def make(recipe: Recipe, image: str) -> TaskFolder:
    """Return the task of a recipe: the same recipe, the same task."""
    names = [n for n, f in families.TABLE.items()
             if f.level <= recipe.level and (not recipe.families or n in recipe.families)]
    if not names:
        raise FormatError("no family of tasks is left", found=f"level {recipe.level}, families "
                          f"{', '.join(recipe.families)}", do="raise plugin.terminal.level")
    name = names[recipe.index % len(names)]
    made = _made(name, recipe)
    return TaskFolder(
        format="generated", path=CHECKER.parent,
        name=f"{recipe.split}-{recipe.seed}-{recipe.index:04d}-{name}",
        instruction=made.instruction, tests=tests(made), image=image,
        solution={"solve.sh": f"#!/bin/bash\nset -e\ncd {HOME}\n{made.solution}\n".encode()},
        solution_command=("bash", "/solution/solve.sh"),
        files={f"{HOME}/{path}": text.encode() for path, text in made.files.items()},
        workdir=HOME, network="none", agent_user=USER, verifier_user="root",
        verifier_timeout_s=60.0, agent_timeout_s=600.0,
        metadata={"family": name, "level": families.TABLE[name].level},
    )


def _made(name: str, recipe: Recipe) -> Made:
    """Draw until the task belongs to the split: a quarter of all that can be drawn is for eval."""
    rng = random.Random(f"{recipe.seed}/{recipe.split}/{recipe.index}")
    while True:
        made = families.TABLE[name].make(rng)
        drawn = json.dumps([made.instruction, made.checks], sort_keys=True)
        is_eval = hashlib.sha256(drawn.encode()).digest()[0] % 4 == 0
        if is_eval == (recipe.split == "eval"):
            return made


def tests(made: Made) -> dict[str, bytes]:
    """Return what goes to /tests."""
    return {"test.sh": TEST, "check.py": CHECKER.read_bytes(),
            "checks.json": json.dumps(made.checks).encode()}
