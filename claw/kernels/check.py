"""Argument checks of the public kernels: one sentence with the name, the found and the allowed.

T tokens, H hidden size, V vocabulary size.
"""

import math
from typing import NoReturn

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def refuse(name: str, found: object, allowed: str) -> NoReturn:
    raise ValueError(f"{name}: found {found}; allowed: {allowed}")


def check_linear(hidden_TH: Tensor, weight_VH: Tensor, chunk_tokens: int | None) -> int:
    """Refuse a pair that cannot be multiplied. -> T."""
    for name, matrix in (("hidden", hidden_TH), ("weight", weight_VH)):
        if matrix.ndim != 2:
            refuse(name, f"shape {list(matrix.shape)}", "a matrix, [tokens, H] or [vocabulary, H]")
        if matrix.dtype not in FLOATS:
            refuse(name, matrix.dtype, "float32, bfloat16 or float16")
    if weight_VH.shape[0] == 0 or weight_VH.shape[1] != hidden_TH.shape[1]:
        allowed = f"[vocabulary, {hidden_TH.shape[1]}], as wide as hidden"
        refuse("weight", f"shape {list(weight_VH.shape)}", allowed)
    if weight_VH.dtype != hidden_TH.dtype:
        refuse("weight", weight_VH.dtype, f"{hidden_TH.dtype}, the dtype of hidden")
    if weight_VH.device != hidden_TH.device:
        refuse("weight", weight_VH.device, f"{hidden_TH.device}, the device of hidden")
    is_whole = isinstance(chunk_tokens, int) and not isinstance(chunk_tokens, bool)
    if chunk_tokens is not None and (not is_whole or chunk_tokens < 1):
        refuse("chunk_tokens", repr(chunk_tokens), "an integer of at least 1, or None to choose")
    return hidden_TH.shape[0]


def check_tensor(
    name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    if not isinstance(value, Tensor):
        refuse(name, type(value).__name__, f"a {dtype} tensor of shape {list(shape)}")
    if tuple(value.shape) != shape:
        refuse(name, f"shape {list(value.shape)}", f"shape {list(shape)}")
    if value.dtype != dtype:
        refuse(name, value.dtype, str(dtype))
    if value.device != device:
        refuse(name, value.device, f"{device}, the device of hidden")


def check_ids(name: str, ids: Tensor, lowest: int, num_vocab: int) -> None:
    """Refuse ids outside [lowest, num_vocab); one pass over the ids, none over the logits."""
    if ids.numel() == 0:
        return
    low, high = (int(value) for value in torch.aminmax(ids))
    if low < lowest or high >= num_vocab:
        padding = ", -1 for padding" if lowest < 0 else ""
        found = f"id {low if low < lowest else high}"
        refuse(name, found, f"0 to {num_vocab - 1}, the vocabulary{padding}")


def temperature_vector(temperature: float | Tensor, hidden_TH: Tensor) -> Tensor:
    """The temperature of every token, [T] float32, not yet checked for its values."""
    num_tokens = hidden_TH.shape[0]
    if not isinstance(temperature, Tensor):
        return torch.full((num_tokens,), float(temperature), device=hidden_TH.device)
    if not temperature.is_floating_point():
        refuse("temperature", temperature.dtype, "a number or a float tensor [tokens]")
    check_tensor("temperature", temperature, (num_tokens,), temperature.dtype, hidden_TH.device)
    return temperature.float()


def check_temperature(temperature: float | Tensor, tau_R: Tensor) -> None:
    """Refuse temperatures (of the tokens in use) that are not positive and finite."""
    if not isinstance(temperature, Tensor):
        good = math.isfinite(temperature) and temperature > 0
    else:
        good = bool(((tau_R > 0) & tau_R.isfinite()).all())
    if not good:
        found = temperature if not isinstance(temperature, Tensor) else float(tau_R.min())
        refuse("temperature", found, "positive and finite; give greedy tokens 1.0 and weight 0")


def check_finite_result(lse_R: Tensor, hidden_TH: Tensor, rows_R: Tensor | slice) -> None:
    """NaN or inf in either matrix reaches the log-sum-exp, so that [R] numbers tell it all."""
    if bool(lse_R.isfinite().all()):
        return
    if not bool(hidden_TH[rows_R].isfinite().all()):
        refuse("hidden", "NaN or inf", "finite numbers")
    refuse("weight", "NaN, inf or values that overflow the logits", "finite numbers")
