"""Random samples for the trainer's tests."""

from typing import Any

import numpy as np

from claw.records import Sample


def ids(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(4, 260, n).astype(np.int32)


def sample(
    seed: int, *, prompt: int = 9, reply: int = 6, hints: int | tuple[np.ndarray, ...] = 2,
    **changes: Any,
) -> Sample:
    """A sample whose numbers follow from its seed; `changes` replace fields."""
    rng = np.random.default_rng(seed)
    prompt_ids = ids(rng, prompt)
    values: dict[str, Any] = {
        "id": f"sample_{seed}", "turn_id": f"turn_{seed}", "trace_id": "trace_0",
        "owner": "default", "adapter": "default", "prompt_ids": prompt_ids,
        "reply_ids": ids(rng, reply),
        "logps": -rng.uniform(2.0, 7.0, reply).astype(np.float32),
        "mask": np.ones(reply, dtype=bool),
        "advantages": np.full(reply, rng.choice([-1.0, 1.0]), np.float32),
        "versions": np.zeros(reply, np.int32), "temperature": 0.8, "has_advantage": True,
        "hints": hints,
    }
    if isinstance(hints, int):
        made = (np.concatenate([prompt_ids, ids(rng, 3 + n)]) for n in range(hints))
        values["hints"] = tuple(made)
    return Sample(**(values | changes))


def batch(n: int = 4, seed: int = 100, **changes: Any) -> list[Sample]:
    """`n` samples of different lengths."""
    return [
        sample(seed + i, prompt=5 + 3 * i, reply=4 + 2 * i, hints=i % 3 + 1, **changes)
        for i in range(n)
    ]
