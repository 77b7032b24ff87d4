"""What a peft folder holds, read without torch: its configuration and the layers it names.

Owns: the kinds of adapters that are served, the names of tensors, the scale.
Does not own: tensors (adapters), engines.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from claw.engine.versions import Shapes, VersionError

PREFIX = "base_model.model."
_TENSOR = re.compile(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])(?:\.default)?\.weight")
_UNSUPPORTED = ("use_dora", "modules_to_save", "fan_in_fan_out", "layer_replication",
                "trainable_token_indices", "target_parameters", "alora_invocation_tokens",
                "lora_bias", "use_qalora", "use_bdlora", "arrow_config", "velora_config")


def read_config(folder: Path) -> dict[str, Any]:
    """Return adapter_config.json; an adapter of a kind that is not served is refused by name."""
    try:
        config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise VersionError("adapter_config.json is not readable", found=str(error)) from error
    if config.get("peft_type") != "LORA":
        raise VersionError("not a LoRA adapter", found=str(config.get("peft_type")))
    for name in _UNSUPPORTED:
        if config.get(name):
            raise VersionError(
                "the adapter uses what this worker does not serve", found=f"{name} = {config[name]}"
            )
    if config.get("bias", "none") != "none":
        raise VersionError("an adapter with biases is not served", found=f"bias {config['bias']}")
    return config


def split_name(name: str) -> tuple[str, str]:
    """Return (layer, "A" or "B") of a tensor's name."""
    found = _TENSOR.fullmatch(name)
    if found is None:
        raise VersionError("the adapter holds a tensor of no known kind", found=name)
    return found[1], found[2]


def check_pairs(parts: dict[str, Any], files: list[str]) -> None:
    """`parts`: layer -> what there is of A and B. Both, and at least one layer."""
    if not parts:
        raise VersionError("the adapter binds no layer of the model", found=", ".join(files))
    for layer, pair in parts.items():
        if set(pair) != {"A", "B"}:
            raise VersionError("the adapter is incomplete: A or B is missing", found=layer)


def check_fit(layer: str, a: tuple[int, ...], b: tuple[int, ...], size: tuple[int, ...]) -> None:
    """A [r, in] and B [out, r] for a linear layer of `size` (in, out)."""
    if len(a) != 2 or len(b) != 2 or (a[1], b[0]) != size or a[0] != b[1]:
        raise VersionError(
            f"the adapter does not fit: {layer} has another shape",
            found=f"A {list(a)}, B {list(b)}", allowed=f"A [r, {size[0]}], B [{size[1]}, r]",
        )


def no_such_layer(layer: str) -> VersionError:
    return VersionError("the adapter does not fit: the model has no such layer", found=layer)


def scale(config: dict[str, Any], layer: str, rank: int) -> float:
    """The factor of B A x, as peft scales it."""
    alpha = config.get("lora_alpha", rank)
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", layer):
            alpha = value
            break
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def check_shapes(found: Shapes, files: list[str], model: Shapes) -> int:
    """Check an adapter by the shapes of its tensors and of the model's; return its rank."""
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in found.items():
        layer, letter = split_name(name)
        parts.setdefault(layer, {})[letter] = shape
    check_pairs(parts, files)
    for layer, pair in parts.items():
        if (weight := model.get(f"{layer}.weight")) is None:
            raise no_such_layer(layer)
        if len(weight) != 2:
            raise VersionError("the adapter does not fit: not a linear layer", found=layer)
        check_fit(layer, pair["A"], pair["B"], (weight[1], weight[0]))
    return max(pair["A"][0] for pair in parts.values())
