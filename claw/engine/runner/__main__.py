"""`python -m claw.engine.runner --spec FILE.json`: what the launcher starts.

The spec is {config, actor, run_dir, api_key_file, ready}. The key is read from a file that only
its owner can read, never from the command line.
"""

import argparse
import json
import logging
import stat
import sys
from pathlib import Path

from claw import config
from claw.engine.runner.host import run
from claw.errors import ClawError, UsageError


def main(arguments: list[str] | None = None) -> int:
    """Run the process; a mistake that a person can fix is told without a traceback."""
    parser = argparse.ArgumentParser(prog="claw.engine.runner")
    parser.add_argument("--spec", type=Path, required=True, help="JSON file of the launcher")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        spec = json.loads(parser.parse_args(arguments).spec.read_text(encoding="utf-8"))
        run(
            config.parse(spec["config"]), actor=spec["actor"], run_dir=Path(spec["run_dir"]),
            api_key=_key(spec.get("api_key_file")),
            ready=Path(spec["ready"]) if spec.get("ready") else None,
        )
    except ClawError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _key(name: str | None) -> str:
    if not name:
        return ""
    path = Path(name)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError("the key file is readable by others", found=name, do=f"chmod 600 {name}")
    return path.read_text(encoding="utf-8").strip()


if __name__ == "__main__":
    sys.exit(main())
