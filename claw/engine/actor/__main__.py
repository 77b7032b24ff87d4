"""`python -m claw.engine.actor --spec FILE.json`: {config, sockets, model_dir, run_dir, resume}."""

import sys

from claw import config
from claw.engine import process


def start(spec: process.Spec) -> None:
    from claw.engine.actor.actor import run

    run(config.parse(spec["config"]), sockets=spec["sockets"], model_dir=spec["model_dir"],
        run_dir=spec["run_dir"], resume=bool(spec.get("resume")))


if __name__ == "__main__":
    sys.exit(process.main("actor", start))
