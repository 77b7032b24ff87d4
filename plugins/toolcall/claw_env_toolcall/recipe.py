"""Run settings that learn on the default model; a file or an override outranks them.

Owns: the numbers, and why.
"""

from typing import Any

RECIPE: dict[str, Any] = {
    # at temperature 1 a model of 135M parameters writes about one right call in fifty
    "rollout": {"n": 8, "max_turns": 3, "max_tokens": 48, "temperature": 0.5, "parallel": 16},
    "worker": {"context": 1024},
    "judge": {"kind": "toolcall"},
    "credit": {"kind": "step"},
    "train": {"method": "grpo", "lr": 5e-4, "batch_size": 32, "max_wait_s": 120.0,
              "micro_tokens": 2048},
    "loss": {"truncated": "keep"},
    # sampling outruns training on two cores: without a pace a step learns from the first weights
    "async": {"max_staleness": 2, "stale": "pace"},
}
