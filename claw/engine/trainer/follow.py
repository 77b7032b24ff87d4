"""What ranks other than the first do: whatever the first one tells.

Owns: words -> calls. Does not own: the calls, each in the room of what it does; who tells (the
same calls, on rank 0).
"""

import contextlib
from pathlib import Path

import torch

from claw.config import RunConfig
from claw.engine import wire
from claw.engine.trainer import checkpoint, step
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser
from claw.errors import WireError
from claw.records import Version

END = "end"
HERE = "here"
"""said while nothing is to be done, as who waits for words has a limit to its patience"""


def follow(policy: Policy, optim: Optimiser, config: RunConfig) -> None:
    """Do what rank 0 tells until it says END. An error that it does not share ends the process."""
    while (told := policy.ranks.hear()).type != END:
        _do(told, policy, optim, config)


def _do(told: wire.Message, policy: Policy, optim: Optimiser, config: RunConfig) -> None:
    match told.type:
        case "hidden":
            with torch.no_grad():
                given = {name: torch.from_numpy(a).to(policy.device)
                         for name, a in told.arrays.items()}
                policy.hidden(given["ids"], bounds=given.get("bounds"))
        case "gather_head":
            _ = policy.head
        case "step":
            with contextlib.suppress(step.Abandoned):
                step.run(policy, optim, wire.read_samples(told), config, seed=told["seed"],
                         version=wire.unpack(Version, told["version"], {}))
        case "state":
            policy.state()
        case "fill":
            policy.fill(None)
        case "adopt":
            optim.adopt()
        case "begin_again":
            optim.begin_again()
        case "save":
            checkpoint.save_tensors(Path(told["path"]), policy, optim)
        case "load":
            checkpoint.load(Path(told["path"]), policy, optim, with_random=told["with_random"])
        case unknown if unknown != HERE:
            raise WireError(f"the first rank told {unknown!r}, which this one does not know")
