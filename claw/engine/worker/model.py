"""The model of the transformers backend: rows of tokens in, logits out.

Owns: loading, the one forward over rows of the slot cache, scoring of short sequences.
Does not own: the cache's rows (slots, batch), adapters, sampling.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from claw.config import RunConfig
from claw.engine import quantize, sight
from claw.engine.devices import pick_device, pick_dtype
from claw.engine.pictures import Lens, lens_of
from claw.engine.worker.eyes import Eyes, Seen
from claw.engine.worker.slots import SlotCache, Window, attention_mask
from claw.errors import UsageError

_LAYERS = {"full_attention", "sliding_attention"}


class Model:
    """A causal language model on one device."""

    def __init__(
        self, module: nn.Module, device: torch.device, context: int, lens: Lens | None = None
    ) -> None:
        self.module = module.to(device).eval().requires_grad_(False)
        self.device = device
        config: Any = module.config
        text = config.get_text_config()
        self.vocab_size = int(module.get_input_embeddings().num_embeddings)  # type: ignore
        self.context = min(context, getattr(text, "max_position_embeddings", context) or context)
        self.eos_ids = _eos_ids(module)
        self._layer_types = set(getattr(text, "layer_types", None) or [])
        if unknown := self._layer_types - _LAYERS:
            raise UsageError(
                "the transformers backend cannot serve this model's layers",
                found=", ".join(sorted(unknown)), allowed=", ".join(sorted(_LAYERS)),
            )
        self._sliding = getattr(text, "sliding_window", None)
        accepted = inspect.signature(module.forward).parameters
        self._cache_word = "cache" if "cache" in accepted else "past_key_values"
        self.lens = lens
        self.eyes = Eyes(module, lens, device) if lens is not None else None

    def _mask(self, positions_nT: Tensor, width: int) -> Any:
        full = attention_mask(positions_nT, width)
        if "sliding_attention" in self._layer_types:
            return {"full_attention": full,
                    "sliding_attention": attention_mask(positions_nT, width, self._sliding)}
        if self._sliding and not self._layer_types:
            return attention_mask(positions_nT, width, self._sliding)
        return full

    def forward(
        self, cache: SlotCache, start: int, tokens: Sequence[Sequence[int]],
        filled: Sequence[int], *, keep_all: bool = False, seen: Sequence[Seen | None] = (),
    ) -> Tensor:
        """Append tokens to rows start, start+1, ... that hold `filled` columns each.

        `seen` are the pictures of each row.

        Returns the logits after each row's last token [n, V]; with `keep_all` of all tokens,
        aligned right [n, T, V].
        """
        n, num_new = len(tokens), max(len(t) for t in tokens)
        width = max(f + len(t) for f, t in zip(filled, tokens, strict=True))
        cache.reserve(width)
        if num_new == 1:
            ids_nT = torch.tensor([t[0] for t in tokens])[:, None]
            positions_nT = torch.tensor(filled)[:, None]
            columns_nT = positions_nT
        else:
            ids_nT, positions_nT, columns_nT = _align(tokens, filled, num_new, cache.width - 1)
        positions_nT = positions_nT.to(self.device)
        rows_n1 = torch.arange(n, device=self.device)[:, None]
        cache.window = Window(start, start + n, rows_n1, columns_nT.to(self.device), width)
        more = {"attention_mask": self._mask(positions_nT, width), "use_cache": True,
                self._cache_word: cache}
        ids_nT = ids_nT.to(self.device)
        if self.eyes is not None and any(seen):
            logits = self._look(self.eyes, ids_nT, positions_nT, tokens, filled, seen,
                                keep_all=keep_all, **more)
        else:
            logits = self.module(input_ids=ids_nT, position_ids=positions_nT,
                                 logits_to_keep=0 if keep_all else 1, **more).logits
        return logits if keep_all else logits[:, -1]

    def _look(
        self, eyes: Eyes, ids_nT: Tensor, positions_nT: Tensor, tokens: Sequence[Sequence[int]],
        filled: Sequence[int], seen: Sequence[Seen | None], *, keep_all: bool, **more: Any,
    ) -> Tensor:
        """The same for rows of which some have pictures, in these tokens or before them."""
        module: Any = self.module
        positions_3nT = eyes.positions(positions_nT, tokens, filled, seen)
        shown = eyes.shown(ids_nT.shape[1], tokens, filled, seen)
        if shown is None:
            made: Tensor = module(input_ids=ids_nT, position_ids=positions_3nT,
                                  logits_to_keep=0 if keep_all else 1, **more).logits
            return made
        states = sight.hidden(module, ids_nT, positions_3nT, *shown, **more)
        made = module.lm_head(states if keep_all else states[:, -1:])
        return made

    def logits(self, ids: np.ndarray) -> Tensor:
        """Logits of one short sequence [L], without a cache: [L, V]."""
        row = torch.as_tensor(ids, dtype=torch.int64, device=self.device)[None]
        out: Tensor = self.module(input_ids=row, use_cache=False).logits
        return out[0]


def _align(
    tokens: Sequence[Sequence[int]], filled: Sequence[int], num_new: int, padding_column: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows aligned right: (ids, positions, columns), int64 [n, T] each."""
    ids = np.zeros((len(tokens), num_new), np.int64)
    positions = np.zeros_like(ids)
    columns = np.full_like(ids, padding_column)
    for i, (row, f) in enumerate(zip(tokens, filled, strict=True)):
        pad = num_new - len(row)
        ids[i, pad:] = row
        positions[i, pad:] = columns[i, pad:] = np.arange(f, f + len(row))
    return torch.from_numpy(ids), torch.from_numpy(positions), torch.from_numpy(columns)


def load_model(folder: Path, config: RunConfig) -> Model:
    """Load the weights of `folder` onto the device of `config`."""
    w = config.worker
    device = pick_device(w.device)
    dtype = pick_dtype(w.dtype, device)
    module = load_module(folder, dtype, quantize.loading(config.lora.quantize, device, dtype))
    quantize.settle(module)
    model = Model(module, device, w.context, lens_of(folder))
    model.logits(np.zeros(2, np.int32))  # a model that cannot run must say so at the start
    return model


def load_module(
    folder: Path, dtype: torch.dtype, more: dict[str, Any] | None = None
) -> nn.Module:
    # sdpa: the slot cache brings its own mask, which flash attention would ignore
    module: nn.Module = sight.auto_class(folder).from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True, **(more or {})
    )
    return module


def _eos_ids(module: nn.Module) -> frozenset[int]:
    config: Any = getattr(module, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else found)
