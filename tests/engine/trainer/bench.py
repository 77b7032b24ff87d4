"""A policy, an optimiser that remembers gradients, and one step: what the trainer's tests share."""

import copy
import queue
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from claw import config as settings
from claw.config import RunConfig
from claw.engine import wire
from claw.engine.monitor import Monitor
from claw.engine.trainer import model, score, step
from claw.engine.trainer.model import Policy
from claw.engine.trainer.optim import Optimiser
from claw.engine.trainer.trainer import Lease, Trainer
from claw.records import Sample, Version

VERSION = Version("default", "default", 0, None, "")


class Recorder(Optimiser):
    """An optimiser that keeps the gradients it was given, and changes nothing."""

    def clip(self) -> float:
        self.seen = {
            n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
            for n, p in self.masters.items()
        }
        return float(torch.cat([g.flatten() for g in self.seen.values()]).norm())

    def step(self) -> float:
        self.zero_grad()
        return self.lr


def config(**sections: Any) -> RunConfig:
    values: dict[str, Any] = {"lora": {"rank": 0}}
    return settings.parse(values | sections)


def policy(folder: Path, c: RunConfig, shift: float = 0.05) -> Policy:
    """The model some way into training: its weights, and their ema, moved off the first ones."""
    found = model.load(folder, c)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in found.parameters.items():
            p.add_(shift * torch.randn(p.shape, generator=generator))
            if name in found.ema:
                found.ema[name].add_(shift * torch.randn(p.shape, generator=generator))
    return found


def one(
    p: Policy, samples: list[Sample], c: RunConfig, optim: Optimiser | None = None, **more: Any
) -> tuple[step.Done, Any]:
    """Run a step; by default nothing changes and the gradients are in `.seen`."""
    optim = optim or Recorder(p.parameters, c.train)
    return step.run(p, optim, samples, c, version=VERSION, **more), optim


def as_float64(p: Policy, who: str) -> Any:
    """A float64 copy of the whole model with the weights of `who`."""
    if who == "base" and p.peft is None:
        return copy.deepcopy(p.first).double()
    if who == "base":
        with p.peft.disable_adapter():
            return copy.deepcopy(p.lm).double()
    if who == "ema":
        with p.weights_of("ema"):
            return copy.deepcopy(p.lm).double()
    return copy.deepcopy(p.lm).double()


class QuietLink:
    """A link to nobody: remembers what is sent."""

    def __init__(self) -> None:
        self.stopping, self.requests = threading.Event(), queue.Queue()
        self.sent: list[wire.Message] = []
        self.announced: list[Version] = []
        self.held: dict[str, str] = {}

    def state(self, name: str, step: int) -> None: ...

    def send(self, message: wire.Message) -> None:
        self.sent.append(message)

    def ask(self, message: wire.Message) -> None:
        self.sent.append(message)

    def announce(self, version: Version) -> None:
        self.announced.append(version)


def trainer(folder: Path, run_dir: Path, c: RunConfig, *, resume: bool = False) -> Trainer:
    """A trainer in this process, ready for leases."""
    monitor = Monitor(run_dir, c.track, {})
    found = Trainer(c, folder, run_dir, QuietLink(), monitor)
    found.begin(resume=resume)
    return found


def lease(samples: list[Sample], id: str = "lease_1") -> Lease:
    return Lease(id, samples, {})


def near(p: Policy, samples: list[Sample], scale: float = 0.3) -> list[Sample]:
    """The samples with behaviour log-probs near the policy's own: ratios inside and outside."""
    pairs = [(s.prompt_ids, s.reply_ids, *s.pictures) for s in samples]
    found = score.logps(p, pairs, 4096, [s.temperature or 1.0 for s in samples])
    rng = np.random.default_rng(3)
    return [
        replace(s, logps=np.minimum(x + scale * rng.standard_normal(len(x)), 0).astype(np.float32))
        for s, x in zip(samples, found, strict=True)
    ]
