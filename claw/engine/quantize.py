"""Base weights in 4 bits (QLoRA), the same in the trainer and in claw's own workers.

Owns: how a base is loaded when `lora.quantize` says so, and what that cannot do.
Does not own: the arithmetic (bitsandbytes), adapters, the files of versions.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from claw.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import nn


def check(quantize: str) -> None:
    """UsageError: bitsandbytes is missing. Without torch, for the start of a run."""
    if quantize != "none" and find_spec("bitsandbytes") is None:
        raise UsageError("lora.quantize needs the package bitsandbytes", found="not installed",
                         do="pip install 'claw-rl[qlora]', or leave lora.quantize out")


def loading(quantize: str, device: "torch.device", dtype: "torch.dtype") -> dict[str, Any]:
    """What transformers' `from_pretrained` is told beside the dtype; empty for "none".

    nf4: 4-bit NormalFloat in blocks of 64, their scales quantised again (Dettmers et al., 2023,
    QLoRA); linear layers only, so embeddings, norms and the output head keep `dtype`.
    UsageError: bitsandbytes is missing, or cannot run on the device.
    """
    if quantize == "none":
        return {}
    check(quantize)
    if device.type not in ("cuda", "cpu"):
        raise UsageError("lora.quantize cannot run on this device", found=str(device),
                         allowed="cuda, cpu")
    from transformers import BitsAndBytesConfig

    bits = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": bits, "device_map": {"": device}}


def settle(module: "nn.Module") -> None:
    """Have every layer of 4 bits compute in one way, with gradients and without.

    On CPUs with AVX-512 bfloat16 bitsandbytes packs a layer anew and computes in bfloat16 wherever
    no gradient is asked: a worker would sample by other log-probs than the trainer computes, and
    layers whose sides are no multiples of 32 and 64 fail.
    """
    for layer in module.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
