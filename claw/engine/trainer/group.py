"""`python -m claw.engine.trainer.group --spec FILE.json`: the trainer on several ranks.

Owns: torchrun's agent, which starts the ranks, and all of them again when one has died.
Does not own: what a rank does (process).

The ranks meet through files in a folder of their own, so the agent and the ranks open no port but
those of gloo or NCCL between them, on the loopback interface.
"""

import json
import logging
import os
import signal
import sys

from claw import config as settings
from claw.engine import process
from claw.engine.scratch import Scratch
from claw.errors import ClawError

log = logging.getLogger(__name__)

RESTARTS = 3
"""of all ranks by the agent; then the launcher starts the agent again, or gives up"""
GRACE_S = 25
"""for the ranks to end, shorter than what the launcher grants; then they are killed"""


def start(spec: process.Spec) -> None:
    """Run the ranks until they have ended. ClawError: they keep dying."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = settings.parse(spec["config"])
    scratch = Scratch("claw-ranks-")
    file = scratch.path / "spec.json"
    # a rank ends when the agent is gone, as the agent does when the launcher is
    file.write_text(json.dumps(spec | {
        "launcher": os.getpid(), "meeting": str(scratch.path / "meeting")}), encoding="utf-8")
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(GRACE_S)
    agent = elastic_launch(LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=config.train.ranks, run_id="claw",
        rdzv_backend="c10d", rdzv_endpoint=str(scratch.path / "agent"),
        rdzv_configs={"store_type": "file"}, local_addr="127.0.0.1", max_restarts=RESTARTS,
    ), sys.executable)
    try:
        agent("-m", "claw.engine.trainer", "--spec", str(file))
    except SignalException as stopped:
        log.info("stopped by signal %s", signal.Signals(stopped.sigval).name)
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        raise ClawError("a rank keeps dying", found=f"rank {rank}, exit code {failure.exitcode}",
                        do="see the lines above") from failed
    finally:
        scratch.close()


if __name__ == "__main__":
    sys.exit(process.main("trainer-ranks", start))
