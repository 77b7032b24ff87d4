"""Full weights: copied into the running model in place, and put back when the canary disagrees.

Owns: reading a full version, the swap, which tensor did not arrive.
Does not own: when a swap happens and what running requests do then (held), the canary (canary).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from claw.engine.tensors import natural
from claw.engine.versions import Manifest, Shapes, VersionError, check_shapes, tensor_shapes
from claw.engine.worker.model import load_module


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
        self._copy(_read(folder, manifest))

    def check_arrival(self, folder: Path, manifest: Manifest) -> None:
        """Compare what is in the model with the files, exactly; VersionError names the first."""
        wrong = [name for name, tensor in _read(folder, manifest)
                 if name in self.tensors and not _same(self.tensors[name], tensor)]
        if wrong:
            raise VersionError(
                "the model does not hold the version's tensors after the swap",
                found=f"{len(wrong)} differ, the first is {min(wrong, key=natural)}")

    def copy_first(self) -> None:
        """The weights of the start, loaded again."""
        dtype = next(iter(self.tensors.values())).dtype
        self._copy(load_module(self.folder, dtype).state_dict().items())

    def _copy(self, pairs: Iterable[tuple[str, Tensor]]) -> None:
        with torch.no_grad():
            for name, tensor in pairs:
                if name in self.tensors:
                    self.tensors[name].copy_(tensor)


def _read(folder: Path, manifest: Manifest) -> Iterator[tuple[str, Tensor]]:
    for name in manifest.weight_files:
        with safe_open(folder / name, framework="pt") as file:
            for tensor in file.keys():  # noqa: SIM118
                yield tensor, file.get_tensor(tensor)


def _same(held: Tensor, wanted: Tensor) -> bool:
    wanted = wanted.to(held)
    if torch.equal(held, wanted):
        return True
    is_nan = held.isnan()  # a nan is never equal, though it arrived
    return torch.equal(is_nan, wanted.isnan()) and torch.equal(held[~is_nan], wanted[~is_nan])
