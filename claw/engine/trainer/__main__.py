"""`python -m claw.engine.trainer --spec FILE.json`: {config, actor, versions, model_dir, run_dir,
resume}; with `meeting` as one of several ranks.
"""

import sys

from claw import config
from claw.engine import process


def start(spec: process.Spec) -> None:
    from claw.engine.trainer.process import run

    run(config.parse(spec["config"]), actor=spec["actor"], versions=spec["versions"],
        model_dir=spec["model_dir"], run_dir=spec["run_dir"], resume=bool(spec.get("resume")),
        weights=spec.get("weights", ""), meeting=spec.get("meeting", ""))


if __name__ == "__main__":
    sys.exit(process.main("trainer", start))
