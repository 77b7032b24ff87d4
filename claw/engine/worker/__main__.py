"""`python -m claw.engine.worker --spec FILE.json`: {config, actor, versions, model_dir, name}."""

import argparse
import json
import logging
import os
import sys
from pathlib import Path

from claw import config as settings
from claw.engine.worker.worker import run
from claw.errors import ClawError


def main() -> int:
    """Run one worker from its spec; 0 after a stop, the error's exit code otherwise."""
    parser = argparse.ArgumentParser(prog="python -m claw.engine.worker")
    parser.add_argument("--spec", required=True, type=Path, help="JSON file")
    spec = json.loads(parser.parse_args().spec.read_text(encoding="utf-8"))
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format=f"%(asctime)s {spec['name']} %(levelname)s %(message)s",
    )
    try:
        run(settings.parse(spec["config"]), actor=spec["actor"], versions=spec["versions"],
            model_dir=spec["model_dir"], name=spec["name"])
    except ClawError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # a forward that is still running must not hold up the end
