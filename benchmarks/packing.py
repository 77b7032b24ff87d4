"""`python -m benchmarks.packing RUN`: padded and packed steps over what a run has trained.

    python -m benchmarks.packing runs/RUN               as the settings of the run say
    python -m benchmarks.packing runs/RUN --steps 0     count only, without a step

Owns: the table. Does not own: the step (engine.trainer).
Samples come from the run's journal, the oldest first, so the lengths are real ones; the weights are
the first ones of the run's model.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import machine
from claw import config as settings
from claw.config import RunConfig
from claw.engine.actor.journal import Journal
from claw.engine.models import resolve
from claw.engine.rundir import RunDir
from claw.engine.trainer import batch, model, step
from claw.engine.trainer.optim import Optimiser
from claw.records import Sample, Version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=3, help="timed, after one that is not")
    parser.add_argument("--micro-tokens", type=int, default=0, help="0: as the run says")
    options = parser.parse_args()
    _, config = RunDir.open(options.run)
    batches = read(options.run, config.train.batch_size)
    print(machine.describe())
    print("| rows | forward passes | positions | of them padding | seconds a step |")
    print("|---|---|---|---|---|")
    for packing in (False, True):
        values = settings.resolved(config)
        values["train"] |= {"packing": packing, "ranks": 1}
        values["train"]["micro_tokens"] = options.micro_tokens or config.train.micro_tokens
        print(line(settings.parse(values), batches, options.steps))


def read(run: Path, size: int) -> list[list[Sample]]:
    """The trained samples in whole batches, as if sampled by the first weights."""
    journal = Journal(run, read_only=True)
    found = [replace(s, versions=np.zeros_like(s.versions))
             for s, _, _ in journal.samples("trained")]
    journal.close()
    return [found[i : i + size] for i in range(0, len(found) - size + 1, size)]


def line(config: RunConfig, batches: Sequence[Sequence[Sample]], steps: int) -> str:
    """One row of the table: counts over all batches, seconds over the first `steps` of them."""
    train, passes, positions, tokens = config.train, 0, 0, 0
    for samples in batches:
        pairs = [(s.prompt_ids, s.reply_ids) for s in samples]
        lengths = [s.num_tokens for s in samples]
        groups = batch.group(lengths, train.micro_tokens, packed=train.packing)
        passes += len(groups)
        tokens += sum(lengths)
        positions += sum(batch.lay([pairs[i] for i in g], packed=train.packing).ids_BL.numel()
                         for g in groups)
    name = "packed" if train.packing else "padded"
    seconds = f"{statistics.median(times(config, batches[: steps + 1])):.1f}" if steps else "-"
    return (f"| {name} | {passes} | {positions:,} | {1 - tokens / positions:.1%} | {seconds} |")


def times(config: RunConfig, batches: Sequence[Sequence[Sample]]) -> list[float]:
    policy = model.load(resolve(config.model), config)
    optim = Optimiser(policy.parameters, config.train)
    first = batches[0][0]
    version = Version(first.owner, first.adapter, 0, None, "")
    done = [step.run(policy, optim, samples, config, version=version) for samples in batches]
    return [one.seconds for one in done[1:]]


if __name__ == "__main__":
    main()
