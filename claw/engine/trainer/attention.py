"""Which attention transformers runs, and attention within the sequences of a packed row.

flash-attn where it is installed and can run, else SDPA. In a packed row flash-attn takes the
boundaries itself; SDPA is called for each sequence, so nothing is computed between two of them.
Where layers have a window, which SDPA knows only as a mask, transformers makes the mask of the
whole row from the positions.
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor

FLASH = "flash_attention_2"
PACKED = "claw_packed"
CAPABILITY = (8, 0)
"""of an NVIDIA GPU, the first that flash-attn 2 supports"""


def choose(
    device: torch.device, dtype: torch.dtype, packs: Any | None = None
) -> tuple[str, str]:
    """-> (transformers' name of the implementation, why this one).

    `packs`: the model's settings, where its rows are packed.
    """
    why = _why_no_flash(device, dtype)
    if not why:
        return FLASH, "flash-attn is installed"
    if packs is not None and not _has_windows(packs):
        _register()
        return PACKED, why
    return "sdpa", why


def _why_no_flash(device: torch.device, dtype: torch.dtype) -> str:
    if device.type != "cuda":
        return "flash-attn needs a GPU"
    if importlib.util.find_spec("flash_attn") is None:
        return "flash-attn is not installed"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"flash-attn has no {dtype}"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < CAPABILITY:
        return "flash-attn needs compute capability 8.0"
    return ""


def _has_windows(settings: Any) -> bool:
    text = settings.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        return getattr(text, "sliding_window", None) is not None
    return any(kind != "full_attention" for kind in kinds)


def packed_arguments(bounds: Tensor) -> dict[str, Any]:
    """What a model is told of a row with sequences from bounds[i] to bounds[i + 1]."""
    lengths = bounds.diff().long()
    starts = bounds[:-1].long().repeat_interleave(lengths)
    positions = torch.arange(len(starts), device=bounds.device) - starts
    longest = int(lengths.max())
    return {
        "position_ids": positions[None], "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds,
        "max_length_q": longest, "max_length_k": longest,
    }


def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED, _within_sequences)


def _within_sequences(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None = None, **more: Any,
) -> tuple[Tensor, None]:
    """SDPA of each sequence of the row [1, heads, L, size] -> [1, L, heads, size]."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if cu_seq_lens_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **more)
    lengths = cu_seq_lens_q.diff().tolist()
    parts = zip(*(x.split(lengths, dim=2) for x in (query, key, value)), strict=True)
    found = [sdpa_attention_forward(module, *part, None, **more)[0] for part in parts]
    return torch.cat(found, dim=1), None
