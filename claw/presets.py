"""Settings for a graphics card that serves and trains at once: `--preset 24gb`.

Owns: what each preset sets, as layers below the settings file and the command line.
Does not own: whether a model fits (`claw doctor --fit`), the settings themselves (config).
"""

from dataclasses import dataclass
from typing import Any

from claw.errors import UsageError, nearest


@dataclass(frozen=True, slots=True)
class Preset:
    gigabytes: int
    """of the card, as it is sold"""
    note: str
    values: dict[str, Any]
    """as in a settings file"""


def _values(
    quantize: str, micro_tokens: int, slots: int, context: int, rank: int = 16
) -> dict[str, Any]:
    return {
        "lora": {"rank": rank, "alpha": 2.0 * rank, "quantize": quantize},
        "train": {"dtype": "bfloat16", "micro_tokens": micro_tokens,
                  "gradient_checkpointing": True},
        "worker": {"dtype": "bfloat16", "slots": slots, "context": context},
    }


PRESETS = {
    "8gb": Preset(8, "QLoRA: the base in 4 bits, once in the trainer and once in the worker",
                  _values("nf4", 1024, 4, 2048)),
    "16gb": Preset(16, "QLoRA, twice the requests and their length", _values("nf4", 2048, 8, 4096)),
    "24gb": Preset(24, "QLoRA, longer still", _values("nf4", 4096, 8, 8192)),
    "80gb": Preset(80, "LoRA of rank 32 on a bfloat16 base", _values("none", 8192, 16, 8192, 32)),
}


def values(name: str) -> dict[str, Any]:
    """The settings of a preset; empty for no name. UsageError: no such preset."""
    if not name:
        return {}
    if name not in PRESETS:
        raise UsageError("no such preset", found=repr(name), allowed=", ".join(PRESETS),
                         do=nearest(name, list(PRESETS)))
    return PRESETS[name].values
