"""One policy call of an episode, with patience while the engine is full or away.

Owns: how long to wait and how often to ask again.
Does not own: the deadline of the episode, which bounds all of it (`episode`).
"""

import asyncio
import random
from contextlib import aclosing
from typing import Any

from claw.engine.runner.result import Policy
from claw.sdk import Ask, EngineError, Event

MAX_AWAY = 6
"""tries of one ask while the engine is away; a full one is asked until the episode's deadline"""
MAX_WAIT_S = 30.0


async def answer(policy: Policy, ask: Ask, trace_id: str) -> Event:
    """Return the event that ends the answer; raise EngineError when there is none."""
    num_full = num_away = 0
    while True:
        try:
            return await _answer(policy, ask, trace_id)
        except EngineError as error:
            if error.status == 429:
                num_full += 1
            elif error.status == 503 and num_away + 1 < MAX_AWAY:
                num_away += 1
            else:
                raise
            pause_s = error.retry_after_s or 2.0 ** min(num_full + num_away - 1, 5)
        # spread, so that all episodes do not come back at once
        await asyncio.sleep(min(pause_s, MAX_WAIT_S) * random.uniform(1.0, 1.5))


async def _answer(policy: Policy, ask: Ask, trace_id: str) -> Event:
    done = None
    stream: Any = policy.ask(ask, trace_id=trace_id)
    async with aclosing(stream) as events:
        async for event in events:
            done = event if event.type == "done" else None
    if done is None:
        raise EngineError(500, "the answer has no end", type="server_error")
    return done
