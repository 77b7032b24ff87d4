"""Full weights: read beside those that serve, and exchanged for them between two tokens.

Owns: reading a full version, the exchange, which tensor did not arrive.
Does not own: when it happens and what running requests do then (held), the canary (canary).

While a version comes in both are in memory, so a refused one is put back without a copy.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from claw.engine.tensors import natural
from claw.engine.versions import Manifest, Shapes, VersionError, check_shapes, tensor_shapes
from claw.engine.worker.model import load_module

PIECE_BYTES = 64 * 1024 * 1024
"""read or compared between two tokens, unless one tensor is larger: some 30 ms"""

Tensors = dict[str, Tensor]


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
        self.tensors: Tensors = {n: t for n, t in state.items() if n not in self.tied}
        self.shapes: Shapes = {n: tuple(t.shape) for n, t in state.items()}

    def check(self, folder: Path, manifest: Manifest) -> None:
        """Refuse weights of another architecture before anything is touched."""
        found: Shapes = {}
        for name in manifest.weight_files:
            found |= tensor_shapes(folder / name)
        check_shapes(found, self.shapes, self.tied)

    def read(self, folder: Path, manifest: Manifest) -> Generator[None, None, Tensors]:
        """Read a version's tensors to where the model's are; a yield after each piece."""
        found: Tensors = {}
        for piece in _pieces(_read(folder, manifest)):
            found |= self._like_held(piece)
            yield
        return found

    def first(self) -> Tensors:
        """The weights of the start, loaded again."""
        dtype = next(iter(self.tensors.values())).dtype
        return self._like_held(load_module(self.folder, dtype).state_dict().items())

    def _like_held(self, pairs: Iterable[tuple[str, Tensor]]) -> Tensors:
        with torch.inference_mode(False), torch.no_grad():
            return {name: torch.empty_like(self.tensors[name]).copy_(tensor)
                    for name, tensor in pairs if name in self.tensors}

    def place(self, new: Tensors) -> Tensors:
        """Have the model compute with these; return those that they replaced."""
        old = {name: self.tensors[name].data for name in new}
        for name, tensor in new.items():
            self.tensors[name].data = tensor
        return old

    @contextmanager
    def placed(self, new: Tensors) -> Iterator[None]:
        """The model computes with these inside."""
        old = self.place(new)
        try:
            yield
        finally:
            self.place(old)

    def check_arrival(
        self, new: Tensors, folder: Path, manifest: Manifest
    ) -> Generator[None, None, None]:
        """Compare what the model holds once `new` is placed with the files, exactly.

        A yield after each piece; VersionError names the first tensor that differs.
        """
        wrong: list[str] = []
        for piece in _pieces(_read(folder, manifest)):
            with self.placed(new):
                wrong += [name for name, tensor in piece
                          if name in self.tensors and not _same(self.tensors[name], tensor)]
            yield
        if wrong:
            raise VersionError(
                "the model does not hold the version's tensors after the swap",
                found=f"{len(wrong)} differ, the first is {min(wrong, key=natural)}")


def _read(folder: Path, manifest: Manifest) -> Iterator[tuple[str, Tensor]]:
    for name in manifest.weight_files:
        with safe_open(folder / name, framework="pt") as file:
            for tensor in file.keys():  # noqa: SIM118
                yield tensor, file.get_tensor(tensor)


def _pieces(pairs: Iterable[tuple[str, Tensor]]) -> Iterator[list[tuple[str, Tensor]]]:
    piece: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in pairs:
        if piece and size + tensor.nbytes > PIECE_BYTES:
            yield piece
            piece, size = [], 0
        piece.append((name, tensor))
        size += tensor.nbytes
    yield piece


def _same(held: Tensor, wanted: Tensor) -> bool:
    wanted = wanted.to(held)
    if torch.equal(held, wanted):
        return True
    is_nan = held.isnan()  # a nan is never equal, though it arrived
    return torch.equal(is_nan, wanted.isnan()) and torch.equal(held[~is_nan], wanted[~is_nan])
