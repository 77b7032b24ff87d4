"""Words of the settings -> torch's devices and dtypes: one rule for all who load a model."""

import torch


def pick_device(name: str) -> torch.device:
    """auto: a GPU where torch can use one, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: float32 on a CPU, bfloat16 elsewhere."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype: torch.dtype = getattr(torch, name)
    return dtype
