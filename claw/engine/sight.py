"""The forward of a vision-language model over prompts with pictures: embeddings in, states out.

Owns: the class a folder's model is loaded as, a picture's features, where they enter the text.
Does not own: pixels and positions (`pictures.py`), caches (`worker`), gradients (`trainer`).

The language model is called with embeddings rather than the whole model with pixels: so a prompt is
read in pieces like any other, beside rows without pictures, and a token that the policy sampled is
never mistaken for a picture's.
n rows, T tokens of each, M picture tokens, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from claw.engine.pictures import Lens, sees


def auto_class(folder: str | Path) -> Any:
    """Transformers' class that loads the model of a folder, pictures and all."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if sees(Path(folder)) else AutoModelForCausalLM


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """What the vision tower makes of some pictures, in the order of their tokens."""

    embeds: Tensor
    """[M, H] in place of the tokens' embeddings"""
    deep: tuple[Tensor, ...]
    """[M, H] each, added after the first layers"""

    def take(self, places: Tensor) -> "Features":
        return Features(self.embeds[places], tuple(d[places] for d in self.deep))


def join(parts: Sequence[Features]) -> Features:
    """Features one after the other."""
    deep = zip(*(p.deep for p in parts), strict=True)
    return Features(torch.cat([p.embeds for p in parts]), tuple(torch.cat(d) for d in deep))


def look(lm: Any, lens: Lens, pictures: Sequence[np.ndarray]) -> Features:
    """Show pictures to the vision tower."""
    values, sizes = lens.patches(pictures)
    device = lm.get_input_embeddings().weight.device
    seen = lm.model.get_image_features(
        torch.from_numpy(values).to(device), torch.from_numpy(sizes).to(device), return_dict=True
    )
    return Features(
        torch.cat(list(seen.pooler_output)),
        tuple(torch.cat(list(layer)) for layer in seen.deepstack_features),
    )


def hidden(
    lm: Any, ids_nT: Tensor, positions_3nT: Tensor, shown_nT: Tensor, features: Features,
    **more: Any,
) -> Tensor:
    """[n, T, H] final hidden states. `shown_nT` is true where the features enter, in order."""
    embeds = lm.get_input_embeddings()(ids_nT)
    embeds = embeds.masked_scatter(shown_nT[..., None], features.embeds.to(embeds.dtype))
    out = lm.model.language_model(
        inputs_embeds=embeds, position_ids=positions_3nT, visual_pos_masks=shown_nT,
        deepstack_visual_embeds=list(features.deep), **more,
    )
    states: Tensor = out.last_hidden_state
    return states


def whole(
    lm: Any, lens: Lens, ids_nT: Tensor, pictures: Sequence[Sequence[np.ndarray]]
) -> Tensor:
    """[n, T, H] of whole sequences, each with its own pictures; padding is on their right."""
    places, positions = [], []
    for row, own in zip(ids_nT.cpu().numpy(), pictures, strict=True):
        places.append(lens.places(row, own))
        positions.append(lens.positions(places[-1], own))
    device = ids_nT.device
    shown = torch.from_numpy(np.stack(places) >= 0).to(device)
    positions_3nT = torch.from_numpy(np.stack(positions, axis=1)).to(device)
    features = look(lm, lens, [p for own in pictures for p in own])
    return hidden(lm, ids_nT, positions_3nT, shown, features, use_cache=False)
