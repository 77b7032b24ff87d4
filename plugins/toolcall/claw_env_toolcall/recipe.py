"""Run settings that learn on the default model; a file or an override outranks them.

Owns: the numbers, and why.
"""

from typing import Any

RECIPE: dict[str, Any] = {
    "rollout": {"n": 8, "max_turns": 4, "max_tokens": 64, "temperature": 1.0, "parallel": 16},
    "worker": {"context": 1024},
    "judge": {"kind": "toolcall"},
    "credit": {"kind": "step"},
    "train": {"method": "grpo"},
}
