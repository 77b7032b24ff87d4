"""`python -m benchmarks.fit`: the memory that `claw doctor --fit` expects, beside what is taken.

Each row is a process of its own on the CPU: the trainer's makes two steps whose samples fill
`train.micro_tokens`, the worker's fills its slots to their context. Taken is the highest resident
memory of that process. Rows with `lora.quantize` need bitsandbytes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from claw import config as settings
from claw.config import RunConfig
from claw.engine import fit
from claw.engine.models import resolve
from claw.records import Sample, Sampling, Version

CASES = (
    ("trainer", "lora.rank=16", "train.micro_tokens=1024"),
    ("trainer", "lora.rank=16", "train.micro_tokens=4096"),
    ("trainer", "lora.rank=16", "train.micro_tokens=4096", "train.gradient_checkpointing=true"),
    ("trainer", "lora.rank=0", "train.micro_tokens=1024"),
    ("trainer", "lora.rank=16", "lora.quantize=nf4", "train.micro_tokens=1024"),
    ("worker", "worker.slots=8", "worker.context=1024"),
    ("worker", "worker.slots=16", "worker.context=2048"),
    ("worker", "worker.slots=8", "worker.context=1024", "lora.quantize=nf4"),
)
console = Console(highlight=False, width=120)


def step(config: RunConfig) -> None:
    """Two steps of one sample each that fills a forward pass."""
    from claw.engine.trainer import model
    from claw.engine.trainer import step as steps
    from claw.engine.trainer.optim import Optimiser

    policy = model.load(resolve(config.model), config)
    optim = Optimiser(policy.parameters, config.train)
    rng, prompt, reply = np.random.default_rng(config.seed), 64, config.train.micro_tokens - 64
    for i in range(2):
        ids = rng.integers(100, 40_000, prompt + reply).astype(np.int32)
        sample = Sample(
            f"sample_{i}", "turn", "trace", "default", "default", ids[:prompt], ids[prompt:],
            logps=np.full(reply, -9, np.float32), mask=np.ones(reply, bool),
            advantages=np.ones(reply, np.float32), versions=np.zeros(reply, np.int32),
            temperature=1.0, has_advantage=True,
        )
        done = steps.run(policy, optim, [sample], config,
                         version=Version("default", "default", 0, None, ""))
        assert not done.skipped, done.skipped


def fill(config: RunConfig) -> None:
    """Requests in every slot, up to the end of the context."""
    from claw.engine.worker.backend import Done, Generate
    from claw.engine.worker.transformers import make

    backend = make(config, resolve(config.model))
    length = config.worker.context - 8
    for i in range(config.worker.slots):
        prompt = np.random.default_rng(i).integers(100, 40_000, length).astype(np.int32)
        backend.submit(Generate(
            f"ask{i}", prompt, Sampling(1.0, 1.0, 0, 8, seed=i), (), f"session{i}", "default",
            "default", time.monotonic() + 3600,
        ))
    ended = 0
    while ended < config.worker.slots:
        ended += sum(isinstance(e, Done) for e in backend.step())


def taken(process: str, words: list[str]) -> float:
    """Bytes, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.fit", "--one", process, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="settings of all rows, a.b=c")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--one", choices=("trainer", "worker"), help="only take the memory")
    o = parser.parse_intermixed_args()
    base = [f"model='{o.model}'", "rollout.max_tokens=8", *o.words]
    if o.one:
        config = settings.load(None, tuple(base))
        (step if o.one == "trainer" else fill)(config)
        print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
        return
    console.print(describe())
    table = Table("process", "settings", "expected, GB", "taken, GB", "expected / taken")
    for process, *words in CASES:
        if "lora.quantize=nf4" in words and find_spec("bitsandbytes") is None:
            console.print(f"left out, as bitsandbytes is not installed: {process} {words}")
            continue
        config = settings.load(None, (*base, *words))
        expected = fit.total(fit.estimate(o.model, config), process)
        found = taken(process, [*o.words, *words, f"model='{o.model}'"])
        table.add_row(process, " ".join(words), f"{expected / 1e9:.2f}", f"{found / 1e9:.2f}",
                      f"{expected / found:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
