"""`python -m claw.engine.actor --spec FILE.json`: the launcher starts the actor so."""

import argparse
import json
import logging
import sys
from pathlib import Path

from claw import config as settings
from claw.errors import ClawError


def main() -> int:
    parser = argparse.ArgumentParser(prog="claw.engine.actor")
    parser.add_argument("--spec", required=True, type=Path)
    spec = json.loads(parser.parse_args().spec.read_text(encoding="utf-8"))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s actor %(levelname)s %(name)s: %(message)s"
    )
    from claw.engine.actor.actor import run

    try:
        run(settings.parse(spec["config"]), sockets=spec["sockets"], model_dir=spec["model_dir"],
            run_dir=spec["run_dir"], resume=bool(spec.get("resume")))
    except ClawError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
