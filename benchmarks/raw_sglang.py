"""Tokens per second of `Engine.async_generate` itself; benchmarks.engines runs it.

In SGLang's python. The same engine arguments, requests and answers as through a worker.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import numpy as np

from claw import config as settings
from claw.engine.worker.sglang import SglangEngine

AT_ONCE = (1, 4, 16)
PROMPT, NEW, ROUNDS = 32, 32, 2


async def one(engine: SglangEngine, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(3, 290, PROMPT).tolist()
    answers = await engine._engine.async_generate(
        input_ids=ids, sampling_params={"max_new_tokens": NEW, "ignore_eos": True},
        return_logprob=True, top_logprobs_num=4, stream=True)
    async for _ in answers:
        pass


async def speeds(engine: SglangEngine) -> list[float]:
    found = []
    for num in AT_ONCE:
        best = 0.0
        for r in range(ROUNDS):
            start = time.monotonic()
            await asyncio.gather(*(one(engine, 1000 * r + 100 * num + i) for i in range(num)))
            best = max(best, num * NEW / (time.monotonic() - start))
        found.append(best)
    return found


def main() -> None:
    config = settings.parse({"worker": {"kind": "sglang", "slots": 16, "context": 512},
                             "lora": {"rank": 8}, "rollout": {"max_tokens": 64}})
    engine = SglangEngine(config, Path(sys.argv[1]))
    print(json.dumps(asyncio.run(speeds(engine))), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
