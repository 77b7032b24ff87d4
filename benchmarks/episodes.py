"""Many environments on one machine: `python -m benchmarks.episodes [--parallel 128] [--smoke]`.

Each environment blocks its thread (as one that waits for a sandbox does); the policy answers after
a while, as a model does. Printed: how much longer it takes than the waiting alone, threads, memory,
and how late the event loop was, which every other episode and heartbeat shares.
"""

import argparse
import asyncio
import resource
import sys
import threading
import time
from collections.abc import AsyncIterator

from claw import config
from claw.engine.runner.episodes import Episodes
from claw.engine.runner.result import Result
from claw.records import Message, Signal, Task, new_id
from claw.sdk import Ask, EnvTurn, Event, registry
from claw.sdk.doubles import DoublePlugin, EchoEnv


class Waiting(EchoEnv):
    """Blocks its thread at each reply."""

    def __init__(self, turns: int, seconds: float) -> None:
        super().__init__(turns)
        self.seconds = seconds

    def reply(self, turn: EnvTurn) -> list[Message] | None:
        time.sleep(self.seconds)
        return super().reply(turn)


class Thinking:
    """A policy that answers after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def ask(self, ask: Ask, *, trace_id: str = "") -> AsyncIterator[Event]:
        await asyncio.sleep(self.seconds)
        yield Event("done", new_id("turn"), trace_id, finish_reason="stop",
                    message={"role": "assistant", "content": "words"},
                    usage={"completion_tokens": 1})

    async def open_trace(self, task: Task, group: str) -> str:
        return new_id("trace")

    async def next_state(
        self, turn_id: str, messages: list[Message], signals: list[Signal]
    ) -> None:
        pass

    async def end_trace(self, result: Result) -> None:
        pass


async def measure(parallel: int, rounds: int, turns: int, think_s: float, env_s: float) -> None:
    plugin = DoublePlugin(make_env=lambda task: Waiting(turns, env_s))
    settings = config.load(overrides=(
        f"rollout.parallel={parallel}", "rollout.n=8", "judge.kind=echo",
        f"plugin.double.tasks={parallel * rounds // 8}",
    ))
    episodes = Episodes(Thinking(think_s), registry.from_object("double", plugin), settings)
    late: list[float] = []
    most = [0, 0]

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            late.append(time.perf_counter() - began - 0.01)
            most[0] = max(most[0], threading.active_count())
            most[1] = max(most[1], episodes.num_running)

    watching = asyncio.create_task(watch())
    began, used, memory = time.perf_counter(), time.process_time(), peak_mb()
    ends = await episodes.once("train")
    wall, used = time.perf_counter() - began, time.process_time() - used
    watching.cancel()
    least = rounds * turns * (think_s + env_s)
    late.sort()
    num_turns = ends.total() * turns
    print(f"{parallel:4d} at once  {ends.total():5d} episodes, {num_turns} turns: {wall:.2f} s "
          f"(waiting alone {least:.2f} s), {num_turns / wall:.0f} turns/s, "
          f"{1000 * used / num_turns:.2f} ms of processor time a turn\n"
          f"              most {most[1]} episodes and {most[0]} threads, "
          f"+{peak_mb() - memory:.0f} MB, loop late p50 {1000 * late[len(late) // 2]:.1f} ms, "
          f"p99 {1000 * late[int(0.99 * len(late))]:.1f} ms; ends {dict(ends)}")


def peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parallel", type=int, nargs="+", default=[8, 32, 128, 256])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--think", type=float, default=0.2, help="seconds of a policy's answer")
    parser.add_argument("--env", type=float, default=0.05, help="seconds of an environment's reply")
    parser.add_argument("--smoke", action="store_true")
    a = parser.parse_args()
    if a.smoke:
        a.parallel, a.rounds, a.turns, a.think, a.env = [8], 1, 2, 0.01, 0.01
    for parallel in a.parallel:
        asyncio.run(measure(parallel, a.rounds, a.turns, a.think, a.env))


if __name__ == "__main__":
    main()
