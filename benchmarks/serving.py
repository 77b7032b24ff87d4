"""`python -m benchmarks.serving`: streams while nothing trains, while a step trains, during swaps.

Starts a real run, lets clients chat and correct for a while, and sorts the time to the first token
and every gap between two chunks by what the run did at that moment.
"""

import argparse
import platform
import statistics
import tempfile
import time
from bisect import bisect
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from claw_env_personal.demo import run as runs
from claw_env_personal.people import person
from rich.console import Console
from rich.table import Table

console = Console(highlight=False)
LOOK_S = 0.25


@dataclass
class Clock:
    """What the run did when: (time, state, served version), looked at four times a second."""

    times: list[float] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def look(self, run: runs.Run) -> None:
        status = run.status()
        self.times.append(time.monotonic())
        self.states.append("training" if status["trainer"]["state"] == "training" else "idle")
        self.versions.append(int(status["served_version"]))

    def at(self, start: float, end: float) -> str:
        """`swap` when the served version changed in [start - look, end + look], else the state."""
        a, b = bisect(self.times, start - LOOK_S) - 1, bisect(self.times, end + LOOK_S)
        versions = set(self.versions[max(a, 0):b + 1])
        state = self.states[min(max(bisect(self.times, end) - 1, 0), len(self.states) - 1)]
        return "swap" if len(versions) > 1 else state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--max-tokens", type=int, default=64)
    options = parser.parse_args()
    recipe = Path(runs.__file__).parent / "recipe.toml"
    with tempfile.TemporaryDirectory(prefix="claw-bench-") as folder:
        run = runs.start(Path(folder) / "run", recipe, ["train.max_wait_s=5"], options.model)
        try:
            found, clock = _measure(run, options)
        finally:
            run.stop()
    _show(found, clock, options)


Seen = dict[str, list[tuple[float, float]]]


def _measure(run: runs.Run, options: argparse.Namespace) -> tuple[Seen, Clock]:
    clock, seen = Clock(), defaultdict(list)
    until = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.clients) as pool:
        clients = [pool.submit(_chat, run, seed, until, options.max_tokens, seen)
                   for seed in range(options.clients)]
        while not all(c.done() for c in clients):
            clock.look(run)
            time.sleep(LOOK_S)
        for client in clients:
            client.result()  # a refused request ends the benchmark here
    return seen, clock


def _chat(run: runs.Run, seed: int, until: float, max_tokens: int, seen: Seen) -> None:
    who, number = person("plain", seed), 0
    while time.monotonic() < until:
        question = who.ask(number)
        messages = [{"role": "user", "content": question.text}]
        reply = _stream(run, messages, max_tokens, seen)
        said = who.react(question, reply)
        if said:
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": said}]
            _stream(run, messages, max_tokens, seen)
        number += 1


def _stream(run: runs.Run, messages: list[dict], max_tokens: int, seen: Seen) -> str:
    start = last = time.monotonic()
    text = ""
    for chunk in run.client.chat.completions.create(
        model=run.model, messages=messages, stream=True, max_tokens=max_tokens
    ):
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            now = time.monotonic()
            seen["gap" if text else "first"].append((last if text else start, now))
            text, last = text + piece, now
    seen["requests"].append((start, time.monotonic()))
    return text


def _show(seen: Seen, clock: Clock, options: argparse.Namespace) -> None:
    table = Table(title=f"{options.model}, {options.clients} clients, {options.seconds:g} s, "
                        f"{platform.processor() or platform.machine()}, versions "
                        f"{clock.versions[0]} to {clock.versions[-1]}", title_justify="left")
    for column in ("", "while", "count", "p50 ms", "p95 ms", "max ms"):
        table.add_column(column, justify="right")
    for name, label in (("first", "first token"), ("gap", "gap in a stream")):
        by_state: dict[str, list[float]] = defaultdict(list)
        for start, end in seen[name]:
            by_state[clock.at(start, end)].append((end - start) * 1000)
        for state in ("idle", "training", "swap"):
            if ms := sorted(by_state[state]):
                p95 = ms[min(len(ms) - 1, int(len(ms) * 0.95))]
                table.add_row(label, state, str(len(ms)), f"{statistics.median(ms):.0f}",
                              f"{p95:.0f}", f"{ms[-1]:.0f}")
    console.print(table)
    console.print(f"requests answered: {len(seen['requests'])}; none was refused")


if __name__ == "__main__":
    main()
