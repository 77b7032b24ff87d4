"""`python -m benchmarks.endpoint`: what the endpoint costs over the bare worker.

The same prompts go to a worker over its socket and, in the same run, to a second worker behind the
actor and the HTTP endpoint. The worker is scripted and says a token every `--pace-ms`, so that what
is measured is what stands around it. The two take turns, round by round, so that what else the
machine does counts for both; the table shows the medians of the rounds.

    one      whole time of one streamed answer after the other, and to its first token
    streams  tokens a second with so many answers at once
    cpu      processor time of the actor and of the endpoint's process for each of these tokens
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import zmq
import zmq.asyncio
from claw_env_personal.demo import run as runs
from rich.console import Console
from rich.table import Table

from benchmarks.machine import cpu_s, describe
from claw import config as settings
from claw.engine import wire
from claw.engine.actor.chat import Chat
from claw.engine.actor.policy import new_call
from claw.engine.models import resolve
from claw.records import Sampling

console = Console(highlight=False)
Timed = tuple[float, float, int]
"""seconds to the first token, seconds in all, tokens"""
BETWEEN = ("actor", "runner")
Ask = Callable[[int], Awaitable[Timed]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer and template")
    parser.add_argument("--pace-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=10, help="of a round, one after the other")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a round, for the streams")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="claw-bench-") as folder:
        asyncio.run(_compare(Path(folder), options))


async def _compare(folder: Path, options: argparse.Namespace) -> None:
    model = _scripted(folder / "model", options)
    words = ["worker.kind=scripted", f"worker.slots={options.streams}", "judge.kind=none"]
    alone, served = [], []
    run = runs.start(folder / "run", _empty(folder), words, str(model))
    try:
        while run.status()["trainer"].get("state") != "waiting":
            await asyncio.sleep(0.5)  # what loads its weights is not the endpoint
            run.check()
        async with bare(folder, model, words, options) as ask:
            for number in range(options.rounds):
                alone.append(await _measure(ask, number, options))
                served.append(await _measure(over_http(run, options), number, options,
                                             processes_of(run)))
    finally:
        run.stop()
    _show(alone, served, options)


def _scripted(folder: Path, options: argparse.Namespace) -> Path:
    """The model's own folder, and a script that says as many tokens as are asked for."""
    folder.mkdir()
    for file in resolve(options.model).iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "script.json").write_text(json.dumps({"rule": "count",
                                                    "pace_s": options.pace_ms / 1000}))
    return folder


def _empty(folder: Path) -> Path:
    path = folder / "settings.toml"
    path.write_text("")
    return path


def messages(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Question {number}: " + "how do plants grow? " * 20}]


# --- the two ways ----------------------------------------------------------------------------


@asynccontextmanager
async def bare(
    folder: Path, model: Path, words: list[str], options: argparse.Namespace
) -> AsyncIterator[Ask]:
    """A worker process, asked over its socket."""
    config = settings.load(None, (*words, 'plugin_name="personal"', f"model='{model}'"))
    address = f"ipc://{folder}/workers"
    context = zmq.asyncio.Context()
    socket = wire.open_socket(context, zmq.ROUTER, address, bind=True)
    spec = folder / "worker.json"
    spec.write_text(json.dumps({
        "config": settings.resolved(config), "actor": address, "name": "bare",
        "versions": f"ipc://{folder}/versions", "model_dir": str(model), "run_dir": str(folder),
        "launcher": os.getpid(),
    }))
    worker = subprocess.Popen([sys.executable, "-m", "claw.engine.worker", "--spec", str(spec)])
    heard: dict[str, asyncio.Queue[wire.Message]] = {}
    peer, hello = b"", asyncio.Event()

    async def listen() -> None:
        nonlocal peer
        while True:
            peer, *frames = await socket.recv_multipart()
            message = wire.decode(frames)
            hello.set()
            if message.id in heard:
                heard[message.id].put_nowait(message)

    chat = Chat(model)
    listening = asyncio.create_task(listen())

    async def ask(number: int) -> Timed:
        began, first, count = time.perf_counter(), 0.0, 0
        prompt = chat.prompt(messages(number))
        sampling = Sampling(max_tokens=options.tokens)
        call = new_call(f"bare-{number}", prompt.ids, sampling, session="", owner="default",
                        adapter="default", deadline_s=120)
        heard[call.wire_id] = asyncio.Queue()
        await socket.send_multipart([peer, *wire.encode(call.message(chat.stop_ids, 120))])
        while (message := await heard[call.wire_id].get()).type != "generate.done":
            first = first or time.perf_counter() - began
            count += len(message.arrays["ids"])
        del heard[call.wire_id]
        return first, time.perf_counter() - began, count

    try:
        await asyncio.wait_for(hello.wait(), 60)
        yield ask
    finally:
        worker.terminate()
        worker.wait(30)
        listening.cancel()
        socket.close(0)
        context.term()


def over_http(run: runs.Run, options: argparse.Namespace) -> Ask:
    """Streamed answers over a plain socket: a client library's own time is not the endpoint's."""
    address = urlsplit(str(run.client.base_url))

    async def ask(number: int) -> Timed:
        began, first, count = time.perf_counter(), 0.0, 0
        body = json.dumps({"model": run.model, "messages": messages(number), "stream": True,
                           "max_tokens": options.tokens}).encode()
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\n"
                     b"content-type: application/json\r\nauthorization: Bearer "
                     + run.client.api_key.encode() + b"\r\nconnection: close\r\ncontent-length: "
                     + str(len(body)).encode() + b"\r\n\r\n" + body)
        while (line := await reader.readline()) and not line.startswith(b"data: [DONE]"):
            if b'"delta":{"content":' in line:
                first = first or time.perf_counter() - began
                count += 1
        took = time.perf_counter() - began
        writer.close()
        assert line, "the stream broke off"
        return first, took, count

    return ask


# --- measuring -------------------------------------------------------------------------------


def processes_of(run: runs.Run) -> dict[str, int]:
    """The processes between a client and the worker."""
    pids = json.loads((run.folder / "run.json").read_text())["processes"]
    return {name: pids[name] for name in BETWEEN}


async def _measure(
    ask: Ask, number: int, options: argparse.Namespace, processes: dict[str, int] | None = None
) -> dict[str, float]:
    numbers = iter(range(1_000_000 * number, 1_000_000 * (number + 1)))
    for _ in range(3):
        await ask(next(numbers))
    one = [await ask(next(numbers)) for _ in range(options.requests)]
    until = time.perf_counter() + options.seconds

    async def stream() -> int:
        done = 0
        while time.perf_counter() < until:
            done += 1 if (await ask(next(numbers)))[1] else 0
        return done

    began = time.perf_counter()
    spent = {name: -cpu_s(pid) for name, pid in (processes or {}).items()}
    answers = sum(await asyncio.gather(*(stream() for _ in range(options.streams))))
    took = time.perf_counter() - began
    tokens = answers * options.tokens
    return {
        "first": 1000 * statistics.median(t[0] for t in one),
        "one": 1000 * statistics.median(t[1] for t in one),
        "tokens_per_s": tokens / took,
    } | {name: 1e6 * (spent[name] + cpu_s(pid)) / tokens
         for name, pid in (processes or {}).items()}


Rounds = list[dict[str, float]]


def _show(alone: Rounds, served: Rounds, options: argparse.Namespace) -> None:
    table = Table(title=f"{options.tokens} tokens at {options.pace_ms:g} ms, {options.rounds} "
                  f"rounds, load {os.getloadavg()[0]:.1f}, {describe()}", title_justify="left")
    for column in ("", "bare worker", "endpoint", "difference"):
        table.add_column(column, justify="right")
    for name, label, unit in (("first", "to the first token", "ms"), ("one", "one answer", "ms"),
                              ("tokens_per_s", f"{options.streams} streams", "tokens/s")):
        pairs = [(a[name], b[name]) for a, b in zip(alone, served, strict=True)]
        a, b = (statistics.median(values) for values in zip(*pairs, strict=True))
        more = statistics.median(y - x if unit == "ms" else 100 * (y - x) / x for x, y in pairs)
        table.add_row(label, f"{a:.1f} {unit}", f"{b:.1f} {unit}",
                      f"{more:+.1f} {unit if unit == 'ms' else '%'}")
    for name in BETWEEN:
        spent = statistics.median(b[name] for b in served)
        table.add_row(f"cpu of the {name}", "", f"{spent:.0f} us", "a token")
    console.print(table)


if __name__ == "__main__":
    main()
