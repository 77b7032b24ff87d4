"""Trajectories in the shape that OSWorld's own tools read: traj.jsonl, one PNG a step, result.txt.

Owns: the folder of one episode.
Does not own: what is in the pictures.
"""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .actions import Action

INITIAL = "step_0.png"


class Trajectory:
    """Writes below `folder`; nothing where that is empty."""

    def __init__(self, task: str, name: str, folder: str) -> None:
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", task)[:80]
        self.folder = Path(folder).expanduser() / f"{plain}-{name}" if folder else None
        self._count = 0

    def start(self, instruction: str, picture: bytes) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True)
        (self.folder / "instruction.txt").write_text(instruction, encoding="utf-8")
        (self.folder / INITIAL).write_bytes(picture)

    def step(self, actions: Sequence[Action], kind: str, said: str, picture: bytes) -> None:
        """Add one turn; the picture is of what followed."""
        if self.folder is None or not self.folder.is_dir():
            return
        self._count += 1
        file = f"step_{self._count}.png" if picture else ""
        if picture:
            (self.folder / file).write_bytes(picture)
        line = {
            "step_num": self._count, "action_timestamp": time.strftime("%Y%m%d@%H%M%S"),
            "action": [asdict(action) for action in actions], "reward": 0,
            "done": kind in ("end", "lost"), "info": {"kind": kind, "said": said},
            "screenshot_file": file,
        }
        with (self.folder / "traj.jsonl").open("a", encoding="ascii") as out:
            out.write(json.dumps(line) + "\n")

    def end(self, score: float | None) -> None:
        if self.folder is not None and self.folder.is_dir() and score is not None:
            (self.folder / "result.txt").write_text(f"{score}\n", encoding="ascii")
