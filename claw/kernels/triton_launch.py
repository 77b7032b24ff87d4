"""What every launch of a Triton kernel checks and decides."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from claw.kernels.backend import interpreted
from claw.kernels.check import FLOATS, refuse

WIDE = 65536 if interpreted() else 4096
"""columns of a turn: the interpreter pays for each operation, a GPU for each register"""


def check_logits(logits_CV: Tensor) -> tuple[int, int]:
    """Refuse what a kernel would read in the wrong place. -> (rows, columns)."""
    if logits_CV.ndim != 2 or logits_CV.dtype not in FLOATS:
        found = f"{logits_CV.dtype} of shape {list(logits_CV.shape)}"
        refuse("logits", found, "[rows, vocabulary] in float32, bfloat16 or float16")
    rows, columns = logits_CV.shape
    if logits_CV.stride(1) != 1 or (rows > 1 and logits_CV.stride(0) < columns):
        refuse("logits", f"strides {list(logits_CV.stride())}", "whole rows, columns side by side")
    return rows, columns


def vector(values: Tensor) -> Tensor:
    """float32 numbers side by side; copies an expanded or strided tensor, nothing else."""
    if values.dtype != torch.float32:
        refuse("per-row values", values.dtype, "torch.float32")
    return values.contiguous()


def power_of_2(number: int) -> int:
    """The next power of two, at least 1."""
    return 1 << max(number - 1, 0).bit_length()


def on(tensor: Tensor) -> AbstractContextManager[None]:
    """Launch on the tensor's own GPU, whichever is the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def options(warps: int) -> dict[str, int | bool]:
    """How to compile. Multiply-add fusion is stated, as its default changes between versions."""
    return {} if interpreted() else {"num_warps": warps, "enable_fp_fusion": True}
