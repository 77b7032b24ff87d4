"""Several ranks without torchrun: processes forked from one which has loaded torch already.

The group, the trainer of the first rank and the others' `follow` are the real ones; what is left
out is the agent that starts them, and the actor.
"""

import json
import multiprocessing
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from claw.records import Loss, Sample, Update

START_S = 240.0


def run(
    model: Path, run_dir: Path, given: list[list[Sample]], settings: dict[str, Any], size: int,
    resume: bool = False,
) -> list[Update]:
    """Train the batches on `size` ranks."""
    run_dir.mkdir(exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers.models.llama.modeling_llama", "peft",
                                    "claw.engine.trainer.process"])
    told = (str(model), str(run_dir), given, settings, size, resume)
    ranks = [context.Process(target=_rank, args=(rank, *told)) for rank in range(size)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(START_S)
    codes = [one.exitcode for one in ranks]
    for one in ranks:
        one.kill()
    assert codes == [0] * size, codes
    lines = (run_dir / "updates.jsonl").read_text().splitlines()
    return [Update(**row | {"loss": Loss(**row["loss"])}) for row in map(json.loads, lines)]


def _rank(
    rank: int, model: str, run_dir: str, given: list[list[Sample]], settings: dict[str, Any],
    size: int, resume: bool,
) -> None:
    from bench import QuietLink, config, lease

    from claw.engine.monitor import Monitor
    from claw.engine.trainer import follow
    from claw.engine.trainer.ranks import open_ranks
    from claw.engine.trainer.trainer import Trainer, in_hand

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                   "GLOO_SOCKET_IFNAME": "lo"}
    folder = Path(run_dir)
    ranks = open_ranks(str(folder / f"meeting-{size}"), "cpu")
    c = config(**settings)
    if rank:
        follow.follow(*in_hand(Path(model), c, ranks), c)
        return
    t = Trainer(c, Path(model), folder, QuietLink(), Monitor(folder, c.track, {}), ranks)
    t.begin(resume=resume)
    with (folder / "updates.jsonl").open("w") as out:
        for samples in given:
            update, _, _ = t.train(lease(samples, f"lease_{samples[0].id}"))
            print(json.dumps(asdict(update)), file=out)
    ranks.tell(follow.END)
