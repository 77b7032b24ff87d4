"""`python -m claw.engine.worker --spec FILE.json`.

The spec: {config, actor, versions, weights, model_dir, name}.
"""

import os
import sys

from claw import config
from claw.engine import process
from claw.engine.worker.worker import run


def start(spec: process.Spec) -> None:
    run(config.parse(spec["config"]), actor=spec["actor"], versions=spec["versions"],
        model_dir=spec["model_dir"], name=spec["name"], weights=spec.get("weights", ""))


if __name__ == "__main__":
    code = process.main("worker", start)
    sys.stderr.flush()
    os._exit(code)  # a forward that is still running must not hold up the end
