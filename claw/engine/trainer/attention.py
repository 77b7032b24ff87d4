"""Which attention transformers runs: flash-attn where it is installed and can run, else SDPA."""

import importlib.util

import torch

FLASH = "flash_attention_2"
CAPABILITY = (8, 0)
"""of an NVIDIA GPU, the first that flash-attn 2 supports"""


def choose(device: torch.device, dtype: torch.dtype) -> tuple[str, str]:
    """-> (transformers' name of the implementation, why this one)."""
    if device.type != "cuda":
        return "sdpa", "flash-attn needs a GPU"
    if importlib.util.find_spec("flash_attn") is None:
        return "sdpa", "flash-attn is not installed"
    if dtype not in (torch.bfloat16, torch.float16):
        return "sdpa", f"flash-attn has no {dtype}"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < CAPABILITY:
        return "sdpa", "flash-attn needs compute capability 8.0"
    return FLASH, "flash-attn is installed"
