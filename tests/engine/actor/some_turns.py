"""Turns and samples with made-up numbers."""

from dataclasses import replace

import numpy as np

from claw.records import (
    Completion,
    FinishReason,
    Sample,
    Sampling,
    Turn,
    TurnKind,
    TurnState,
    new_id,
)


def completion(ids=(40, 41, 3), *, version=0, k=4, finish=FinishReason.STOP):
    n = len(ids)
    return Completion(
        np.array(ids, np.int32), np.linspace(-2, -0.1, n).astype(np.float32),
        np.arange(n * k, dtype=np.int32).reshape(n, k), np.full((n, k), -1.5, np.float32),
        np.full(n, version, np.int32), finish,
    )


def turn(id="", *, state=TurnState.WAITING, reply="It is Paris.", **changes):
    made = Turn(
        id or new_id("turn"), "trace_1", 0, "default", "default", TurnKind.MAIN,
        ({"role": "user", "content": "capital?"},), (), np.array([10, 11], np.int32),
        Sampling(), completion(), {"role": "assistant", "content": reply}, state=state,
        created=1.0,
    )
    return replace(made, **changes)


def sample(id="", *, version=0, reply=(40, 41, 3), prompt=(10, 11), **changes):
    n = len(reply)
    made = Sample(
        id or new_id("sample"), new_id("turn"), "trace_1", "default", "default",
        np.array(prompt, np.int32), np.array(reply, np.int32), np.full(n, -0.5, np.float32),
        np.ones(n, bool), np.ones(n, np.float32), np.full(n, version, np.int32), 1.0, True,
    )
    return replace(made, **changes)
