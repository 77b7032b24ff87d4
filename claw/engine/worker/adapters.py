"""Low-rank adapters beside the base weights: many versions at once, mixed in one batch.

Owns: reading a peft folder, binding it to the model's linear layers, routing rows to adapters.
Does not own: which version a request uses (the backend), training of adapters.

The layers are claw's own and not peft's: peft routes a mixed batch by hooks that it puts on every
layer in each forward, and never says when an adapter bound nothing. The numbers are peft's.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from claw.engine.versions import VersionError
from claw.engine.worker.backend import Key

PREFIX = "base_model.model."
_TENSOR = re.compile(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])(?:\.default)?\.weight")
_UNSUPPORTED = ("use_dora", "modules_to_save", "fan_in_fan_out", "layer_replication",
                "trainable_token_indices", "target_parameters", "alora_invocation_tokens",
                "lora_bias", "use_qalora", "use_bdlora", "arrow_config", "velora_config")


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

    def unload(self, key: Key) -> None:
        for name in self.keys.pop(key, []):
            self.layers[name].held.pop(key, None)

    def _check(self, name: str, low: LowRank) -> None:
        module = self.layers.get(name)
        if module is None:
            try:
                module = self.model.get_submodule(name)
            except AttributeError:
                raise VersionError(
                    "the adapter does not fit: the model has no such layer", found=name
                ) from None
        sizes = (getattr(module, "in_features", None), getattr(module, "out_features", None))
        if None in sizes:
            raise VersionError(
                "the adapter does not fit: not a linear layer",
                found=f"{name}: {type(module).__name__}",
            )
        if (low.a.shape[1], low.b.shape[0]) != sizes or low.a.shape[0] != low.b.shape[1]:
            raise VersionError(
                f"the adapter does not fit: {name} has another shape",
                found=f"A {list(low.a.shape)}, B {list(low.b.shape)}",
                allowed=f"A [r, {sizes[0]}], B [{sizes[1]}, r]",
            )

    def _layer(self, name: str) -> LoraLinear:
        if name not in self.layers:
            parent, _, last = name.rpartition(".")
            module = LoraLinear(self.model.get_submodule(name), self.routing)
            setattr(self.model.get_submodule(parent), last, module)
            self.layers[name] = module
        return self.layers[name]


def _read(folder: Path, names: Sequence[str]) -> dict[str, LowRank]:
    """Return layer name -> its low-rank pair, scaled as peft scales it."""
    config = _config(folder)
    parts: dict[str, dict[str, Tensor]] = {}
    for file in names:
        for name, tensor in load_file(folder / file).items():
            found = _TENSOR.fullmatch(name)
            if found is None:
                raise VersionError("the adapter holds a tensor of no known kind", found=name)
            parts.setdefault(found[1], {})[found[2]] = tensor
    if not parts:
        raise VersionError("the adapter binds no layer of the model", found=", ".join(names))
    pieces = {}
    for name, pair in parts.items():
        if set(pair) != {"A", "B"}:
            raise VersionError("the adapter is incomplete: A or B is missing", found=name)
        pieces[name] = LowRank(pair["A"], pair["B"], _scale(config, name, pair["A"].shape[0]))
    return pieces


def _config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise VersionError("adapter_config.json is not readable", found=str(error)) from error
    if config.get("peft_type") != "LORA":
        raise VersionError("not a LoRA adapter", found=str(config.get("peft_type")))
    for name in _UNSUPPORTED:
        if config.get(name):
            raise VersionError(
                "the adapter uses what this worker does not serve", found=f"{name} = {config[name]}"
            )
    if config.get("bias", "none") != "none":
        raise VersionError("an adapter with biases is not served", found=f"bias {config['bias']}")
    return config


def _scale(config: dict[str, Any], name: str, rank: int) -> float:
    alpha = config.get("lora_alpha", rank)
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", name):
            alpha = value
            break
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))
