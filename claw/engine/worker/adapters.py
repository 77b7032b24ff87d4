"""Low-rank adapters beside the base weights: many versions at once, mixed in one batch.

Owns: reading a peft folder, binding it to the model's linear layers, routing rows to adapters.
Does not own: which version a request uses (the backend), training of adapters.

The layers are claw's own and not peft's: peft routes a mixed batch by hooks that it puts on every
layer in each forward, and never says when an adapter bound nothing. The numbers are peft's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from claw.engine.tensors import natural
from claw.engine.versions import VersionError
from claw.engine.worker import adapter_files
from claw.engine.worker.backend import Key


@dataclass(frozen=True, slots=True)
class LowRank:
    """One adapter of one layer: y += scale * (x A^T) B^T. A [r, in], B [out, r]."""

    a: Tensor
    b: Tensor
    scale: float


class Routing:
    """Who uses which adapter in the forward that runs now; shared by all layers."""

    def __init__(self) -> None:
        self.groups: list[tuple[Key, Tensor | None]] = []
        """(adapter, its rows of the batch); None means all rows"""

    def set(self, keys: Sequence[Key | None], device: torch.device) -> None:
        """`keys` names the adapter of each row, None the base weights."""
        distinct = [k for k in dict.fromkeys(keys) if k is not None]
        if distinct and len(set(keys)) == 1:
            self.groups = [(distinct[0], None)]
            return
        self.groups = [
            (key, torch.tensor([i for i, k in enumerate(keys) if k == key], device=device))
            for key in distinct
        ]


class LoraLinear(nn.Module):
    """A linear layer that adds the adapters of the rows that have one."""

    def __init__(self, base: nn.Module, routing: Routing) -> None:
        super().__init__()
        self.base = base
        self.routing = routing
        self.held: dict[Key, LowRank] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)  # models look at .weight, .bias

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        for key, rows in self.routing.groups:
            if (low := self.held.get(key)) is None:
                continue
            if rows is None:
                y = y + _delta(low, x).to(y.dtype)
            else:
                y = y.index_add(0, rows, _delta(low, x[rows]).to(y.dtype))
        return y


def _delta(low: LowRank, x: Tensor) -> Tensor:
    # in the adapter's own dtype, as the trainer computes it
    return (x.to(low.a.dtype) @ low.a.T @ low.b.T) * low.scale


class Adapters:
    """All adapters that the model holds."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.routing = Routing()
        self.layers: dict[str, LoraLinear] = {}
        self.keys: dict[Key, list[str]] = {}
        """adapter -> names of the layers that it is bound to"""

    def load(self, key: Key, folder: Path, names: Sequence[str]) -> None:
        """Bind the adapter; VersionError, and nothing changed, when it does not fit."""
        pieces = _read(folder, names)
        device = next(self.model.parameters()).device
        for name, low in pieces.items():
            self._check(name, low)
        for name, low in pieces.items():
            low = LowRank(low.a.to(device), low.b.to(device), low.scale)
            self._layer(name).held[key] = low
        self.keys[key] = list(pieces)

    def check_binding(self, key: Key, folder: Path, names: Sequence[str]) -> None:
        """Compare what the model's layers hold with the files; VersionError names the first.

        A layer counts only where a forward meets it, in the model's own tree.
        """
        for name, wanted in sorted(_read(folder, names).items(), key=lambda p: natural(p[0])):
            module = self.model.get_submodule(name)
            low = module.held.get(key) if isinstance(module, LoraLinear) else None
            if low is None:
                raise VersionError("the adapter is not bound to a layer that it names", found=name)
            for letter, mine, theirs in (("A", low.a, wanted.a), ("B", low.b, wanted.b)):
                if not torch.equal(mine, theirs.to(mine)):
                    raise VersionError("a layer does not hold the adapter's tensor",
                                       found=f"{name}.lora_{letter}")

    def unload(self, key: Key) -> None:
        for name in self.keys.pop(key, []):
            self.layers[name].held.pop(key, None)

    def _check(self, name: str, low: LowRank) -> None:
        module = self.layers.get(name)
        if module is None:
            try:
                module = self.model.get_submodule(name)
            except AttributeError:
                raise adapter_files.no_such_layer(name) from None
        sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
        if None in sizes:
            raise VersionError(
                "the adapter does not fit: not a linear layer",
                found=f"{name}: {type(module).__name__}",
            )
        adapter_files.check_fit(name, tuple(low.a.shape), tuple(low.b.shape), sizes)

    def _layer(self, name: str) -> LoraLinear:
        if name not in self.layers:
            parent, _, last = name.rpartition(".")
            module = LoraLinear(self.model.get_submodule(name), self.routing)
            setattr(self.model.get_submodule(parent), last, module)
            self.layers[name] = module
        return self.layers[name]


def _read(folder: Path, names: Sequence[str]) -> dict[str, LowRank]:
    """Return layer name -> its low-rank pair, scaled as peft scales it."""
    config = adapter_files.read_config(folder)
    parts: dict[str, dict[str, Tensor]] = {}
    for file in names:
        for name, tensor in load_file(folder / file).items():
            layer, letter = adapter_files.split_name(name)
            parts.setdefault(layer, {})[letter] = tensor
    adapter_files.check_pairs(parts, list(names))
    return {
        layer: LowRank(pair["A"], pair["B"],
                       adapter_files.scale(config, layer, pair["A"].shape[0]))
        for layer, pair in parts.items()
    }
