"""Full weights: copied into the running model in place, and put back when the canary disagrees.

Owns: reading a full version, the swap, the comparison with the trainer's log-probs.
Does not own: when a swap happens and what running requests do then (the backend).
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from claw.engine.versions import (
    Canary,
    Manifest,
    Shapes,
    canary_verdict,
    check_canary_ids,
    check_shapes,
    tensor_shapes,
)
from claw.engine.worker.model import Model, load_module
from claw.engine.worker.sampler import score_rows


class FullWeights:
    """The model's parameters under their HF names; taken before adapters rename layers."""

    def __init__(self, module: nn.Module, folder: Path) -> None:
        self.folder = folder
        """the weights of the start: version 0"""
        state = module.state_dict(keep_vars=True)
        seen: dict[int, str] = {}
        self.tied: set[str] = set()
        for name, tensor in state.items():
            if seen.setdefault(id(tensor), name) != name:
                self.tied.add(name)
        self.tensors: dict[str, Tensor] = {n: t for n, t in state.items() if n not in self.tied}
        self.shapes: Shapes = {n: tuple(t.shape) for n, t in state.items()}

    def check(self, folder: Path, manifest: Manifest) -> None:
        """Refuse weights of another architecture before anything is touched."""
        found: Shapes = {}
        for name in manifest.weight_files:
            found |= tensor_shapes(folder / name)
        check_shapes(found, self.shapes, self.tied)

    def stash(self) -> dict[str, Tensor]:
        """A copy on the host, so that a refused version costs no device memory."""
        return {n: t.detach().to("cpu", copy=True) for n, t in self.tensors.items()}

    def restore(self, stash: dict[str, Tensor]) -> None:
        self._copy(stash.items())

    def copy_version(self, folder: Path, manifest: Manifest) -> None:
        for name in manifest.weight_files:
            with safe_open(folder / name, framework="pt") as file:
                self._copy((n, file.get_tensor(n)) for n in file.keys())  # noqa: SIM118

    def copy_first(self) -> None:
        """The weights of the start, loaded again."""
        dtype = next(iter(self.tensors.values())).dtype
        self._copy(load_module(self.folder, dtype).state_dict().items())

    def _copy(self, pairs: Iterable[tuple[str, Tensor]]) -> None:
        with torch.no_grad():
            for name, tensor in pairs:
                if name in self.tensors:
                    self.tensors[name].copy_(tensor)


def compare(model: Model, canary: Canary | None, tolerance: float) -> tuple[float, float]:
    """Score the canary with the weights that are in the model now.

    Returns the largest and the mean difference in nats; VersionError beyond the tolerance.
    """
    if canary is None or not canary.logps.size:
        return 0.0, 0.0
    check_canary_ids(canary, model.vocab_size)
    gaps = np.stack([_gap(model, ids, logps)
                     for ids, logps in zip(canary.ids, canary.logps, strict=True)])
    return canary_verdict(gaps, tolerance)


def _gap(model: Model, ids: np.ndarray, logps: np.ndarray) -> np.ndarray:
    found, _, _ = score_rows(model.logits(ids)[:-1], ids[1:], 1.0, 0)
    return np.abs(found.astype(np.float64) - logps)
