"""The pictures of running requests: where they enter a step's tokens, and at which positions.

Owns: a request's features while its prompt is read, M-RoPE positions of its tokens.
Does not own: the vision tower and the language model's call (sight), rows of the cache (slots).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from claw.engine import sight
from claw.engine.pictures import Lens


@dataclass(eq=False)
class Seen:
    """The pictures of one request. P prompt tokens."""

    pictures: tuple[np.ndarray, ...]
    places_P: np.ndarray
    """the number of the picture token at each position, -1 for text"""
    positions_3P: np.ndarray
    names_M: np.ndarray
    starts: np.ndarray
    """number of the first token of each picture"""
    features: dict[int, sight.Features] = field(default_factory=dict)
    """by picture: made when a step needs them, dropped when the prompt is read or weights change"""

    @classmethod
    def of(cls, lens: Lens, ids: np.ndarray, pictures: tuple[np.ndarray, ...]) -> "Seen":
        places = lens.places(ids, pictures)
        sizes = [lens.num_tokens(p) for p in pictures]
        return cls(pictures, places, lens.positions(places, pictures), lens.names(pictures),
                   np.cumsum([0, *sizes[:-1]]))

    def places(self, start: int, stop: int) -> np.ndarray:
        found = np.full(stop - start, -1, np.int64)
        known = self.places_P[start:stop]
        found[: len(known)] = known
        return found

    def positions(self, start: int, stop: int) -> np.ndarray:
        """[3, stop - start]: after the prompt they go on by one in all three."""
        read, last = len(self.places_P), int(self.positions_3P.max())
        rest = np.arange(max(start, read), max(stop, read)) - read + last + 1
        return np.concatenate([self.positions_3P[:, start:stop], np.tile(rest, (3, 1))], axis=1)

    def marked(self, ids: np.ndarray) -> np.ndarray:
        """int64 ids with each picture's name in place of its tokens.

        So a kept prefix is never found again under other pictures.
        """
        marks = np.asarray(ids, np.int64).copy()
        places = self.places(0, len(marks))
        marks[places >= 0] = self.names_M[places[places >= 0]]
        return marks


class Eyes:
    """What a model with pictures needs at each step beside ids."""

    def __init__(self, module: nn.Module, lens: Lens, device: torch.device) -> None:
        self._module, self._lens, self._device = module, lens, device

    def positions(
        self, positions_nT: Tensor, tokens: Sequence[Sequence[int]], filled: Sequence[int],
        seen: Sequence[Seen | None],
    ) -> Tensor:
        """[3, n, T]; rows are aligned right, rows without pictures count as text does."""
        found = positions_nT[None].repeat(3, 1, 1)
        for i, (row, start, own) in enumerate(zip(tokens, filled, seen, strict=True)):
            if own is not None:
                at = own.positions(start, start + len(row))
                found[:, i, found.shape[2] - len(row):] = torch.from_numpy(at).to(found.device)
        return found

    def shown(
        self, num_new: int, tokens: Sequence[Sequence[int]], filled: Sequence[int],
        seen: Sequence[Seen | None],
    ) -> tuple[Tensor, sight.Features] | None:
        """Where picture tokens are among the new ones, and what is seen there; None for nowhere."""
        mask, parts = np.zeros((len(tokens), num_new), bool), []
        for i, (row, start, own) in enumerate(zip(tokens, filled, seen, strict=True)):
            if own is None:
                continue
            places = own.places(start, start + len(row))
            if (places >= 0).any():
                mask[i, num_new - len(row):] = places >= 0
                parts.append(self._features(own, places[places >= 0]))
        if not parts:
            return None
        return torch.from_numpy(mask).to(self._device), sight.join(parts)

    def _features(self, own: Seen, places: np.ndarray) -> sight.Features:
        """Of these picture tokens; a picture whose tokens a kept prefix holds is not looked at."""
        of = np.searchsorted(own.starts, places, side="right") - 1
        parts = []
        for i in range(int(of[0]), int(of[-1]) + 1):
            if i not in own.features:
                own.features[i] = sight.look(self._module, self._lens, [own.pictures[i]])
            at = torch.from_numpy(places[of == i] - own.starts[i]).to(self._device)
            parts.append(own.features[i].take(at))
        return sight.join(parts)
