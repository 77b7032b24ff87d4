"""The door of every process of a run: read the spec, log, turn a ClawError into an exit code."""

import argparse
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claw import __version__
from claw.engine import parent, pulse
from claw.errors import ClawError

Spec = dict[str, Any]
# waiting OpenMP threads must sleep: spinning ones of one process starve the others
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false",
               "PYTHONUNBUFFERED": "1"}
"""of every process below"""


def version() -> str:
    """This claw's version: the processes of a run may live in several environments."""
    return __version__


def main(name: str, run: Callable[[Spec], None], argv: list[str] | None = None) -> int:
    """Run one process from `--spec FILE.json`; return its exit code.

    A mistake that a person can fix is told without a traceback.
    """
    parser = argparse.ArgumentParser(prog=f"python -m claw.engine.{name}")
    parser.add_argument("--spec", required=True, type=Path, help="JSON file of the launcher")
    spec = json.loads(parser.parse_args(argv).spec.read_text(encoding="utf-8"))
    parent.note(spec)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format=f"%(asctime)s {spec.get('name', name)} %(levelname)s %(name)s: %(message)s",
    )
    pulse.begin(spec.get("config") or {})
    try:
        run(spec)
    except ClawError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
