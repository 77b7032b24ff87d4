"""AdamW with a schedule, clipping, and float32 copies of weights kept in fewer bits.

Owns: moments, learning rate, the float32 truth of each trained weight.
Does not own: gradients (the step), the weights' names and files.
"""

import math

import torch
from torch import Tensor, nn

from claw.config import TrainConfig
from claw.engine.trainer import sharded
from claw.engine.trainer.ranks import Ranks


class Optimiser:
    """One AdamW over named parameters.

    A bfloat16 weight would lose steps smaller than its last bit, and sums of micro-batches: it has
    a float32 copy that takes the gradients and the step, and is rounded back into the weight.
    Shards are float32 themselves (sharded), and each rank has the moments of its own.
    """

    def __init__(
        self, parameters: dict[str, nn.Parameter], train: TrainConfig, ranks: Ranks | None = None
    ) -> None:
        self.train, self.parameters, self.ranks = train, parameters, ranks or Ranks()
        self.masters = {name: self._master(p) for name, p in parameters.items()}
        values = list(self.masters.values())
        groups = [
            {"params": [p for p in values if p.ndim >= 2], "weight_decay": train.weight_decay},
            {"params": [p for p in values if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(
            [g for g in groups if g["params"]], lr=train.lr, betas=train.betas
        )
        self.num_steps = 0
        """updates done; the schedule counts from here"""

    def _master(self, p: nn.Parameter) -> nn.Parameter:
        if p.dtype == torch.float32:
            return p
        master = nn.Parameter(p.detach().float())

        def move(param: Tensor) -> None:
            grad = param.grad.float()
            master.grad = grad if master.grad is None else master.grad.add_(grad)
            param.grad = None

        p.register_post_accumulate_grad_hook(move)
        return master

    @property
    def lr(self) -> float:
        """Of the next update: linear rise over warmup_steps, linear fall over decay_steps.

        lr * min(1, (n + 1) / warmup) * max(floor, 1 - n / decay), n updates done.
        """
        t, n = self.train, self.num_steps
        rise = min(1.0, (n + 1) / t.warmup_steps) if t.warmup_steps else 1.0
        fall = max(t.lr_floor, 1.0 - n / t.decay_steps) if t.decay_steps else 1.0
        return t.lr * rise * fall

    def zero_grad(self) -> None:
        for p in (*self.masters.values(), *self.parameters.values()):
            p.grad = None

    def clip(self) -> float:
        """Scale the gradients to a norm of at most train.max_grad_norm; return the norm before."""
        norm = torch.nn.utils.clip_grad_norm_(self.masters.values(), self.train.max_grad_norm)
        return float(sharded.full(norm))

    def step(self) -> float:
        """Update the weights from their gradients; return the learning rate that was used."""
        lr = self.lr
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        self._round()
        self.zero_grad()
        self.num_steps += 1
        return lr

    @torch.no_grad()
    def _round(self) -> None:
        for name, p in self.parameters.items():
            if self.masters[name] is not p:
                p.copy_(self.masters[name])

    def adopt(self) -> None:
        """Take the parameters' present values as the truth and forget the moments."""
        self.ranks.tell("adopt")
        self._adopt()

    @torch.no_grad()
    def _adopt(self) -> None:
        for name, p in self.parameters.items():
            if self.masters[name] is not p:
                self.masters[name].copy_(p)
        self.adam.state.clear()

    def begin_again(self) -> None:
        """As after a start with the parameters' present values."""
        self.ranks.tell("begin_again")
        self._adopt()
        self.num_steps = 0

    def tensors(self) -> dict[str, Tensor]:
        """What a resumed run needs, by name: weight.*, exp_avg.*, exp_avg_sq.*, step.*"""
        found = {f"weight.{name}": p.detach() for name, p in self.masters.items()}
        for name, p in self.masters.items():
            for key, value in self.adam.state.get(p, {}).items():
                found[f"{key}.{name}"] = torch.as_tensor(value)
        return found

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], num_steps: int) -> None:
        """Put back what `tensors` returned. ValueError: another model's, or another shape."""
        wanted = {f"weight.{name}": p.shape for name, p in self.masters.items()}
        found = {n: t.shape for n, t in tensors.items() if n.startswith("weight.")}
        if wanted != found:
            odd = sorted(set(wanted.items()) ^ set(found.items()))[0][0]
            raise ValueError(f"{odd}: the stored weights are not those of this model")
        self.adam.state.clear()
        for name, p in self.masters.items():
            p.copy_(tensors[f"weight.{name}"])
            state = {
                key: tensors[f"{key}.{name}"].clone().to("cpu" if key == "step" else p.device)
                for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in tensors
            }
            if state:
                self.adam.state[p] = state
        self._round()
        self.num_steps = num_steps


def is_finite(*values: float) -> bool:
    return all(math.isfinite(v) for v in values)
