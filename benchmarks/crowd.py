"""`python -m benchmarks.crowd`: one actor with up to 1,024 rollout workers, over real sockets.

The actor is the real one, a process of its own with its journal; so are the socket, the messages
and the heartbeats of each worker. Only the generation is faked: a process holds all workers'
sockets and answers a request at once, `--tokens` tokens in chunks of `--chunk`, with log-probs and
top-k. Another process asks as a runner does, `--at-once` questions at a time, each of a
conversation of its own. Reported per number of workers: replies and tokens a second, how long one
took, the actor's processor time per reply and at rest (heartbeats alone), its memory, what it
wrote to the journal, and the bytes on the workers' sockets.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from claw import config as settings
from claw.engine import wire
from claw.engine.models import resolve
from claw.engine.runner.engine import WireEngine
from claw.engine.wire import Message
from claw.sdk import Ask, EngineError

console = Console(highlight=False, width=130)
TICKS = os.sysconf("SC_CLK_TCK")


# --- the workers ------------------------------------------------------------------------------


def crowd(address: str, num: int, o: argparse.Namespace, said: Any) -> None:
    """Every worker's socket in one process; `said` counts bytes out and in, messages, replies."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4 * num + 64)
    poller, sockets = zmq.Poller(), []
    for i in range(num):
        socket = wire.open_socket(context, zmq.DEALER, address, bind=False,
                                  identity=f"worker-{i}".encode())
        poller.register(socket, zmq.POLLIN)
        sockets.append(socket)
    for socket in sockets:
        _send(socket, _hello(o), said)
    reply = _reply(o)
    beat_at = time.monotonic()
    while True:
        for socket, _ in poller.poll(50):
            while socket.poll(0):
                frames = socket.recv_multipart()
                said[1] += sum(len(f) for f in frames)
                message = wire.decode(frames)
                if message.type == "generate":
                    _answer(socket, message.id, reply, o, said)
                elif message.type == "worker.who":
                    _send(socket, _hello(o), said)
                elif message.type == "stop":
                    return
        if time.monotonic() - beat_at >= o.heartbeat_s:
            beat_at = time.monotonic()
            for socket in sockets:
                _send(socket, Message("worker.beat", "", {
                    "running": 0, "waiting": 0, "versions": [["default", "default", 0]],
                    "tokens_per_s": 0.0}), said)


def _hello(o: argparse.Namespace) -> Message:
    return Message("worker.hello", "", {
        "kind": "transformers", "model": o.model, "vocab_size": 49152, "context": 8192,
        "slots": 64, "queue": 64, "pid": os.getpid(), "versions": [["default", "default", 0]],
    })


def _reply(o: argparse.Namespace) -> dict[str, np.ndarray]:
    """Arrays of one reply of random words, k as a run has it."""
    random = np.random.default_rng(o.seed)
    ids = random.integers(1000, 40_000, o.tokens).astype(np.int32)
    logps = -np.abs(random.standard_normal((o.tokens, o.k))).astype(np.float32) - 0.1
    logps = np.sort(logps, axis=1)[:, ::-1]
    topk = np.stack([ids + 1 + j for j in range(o.k)], axis=1).astype(np.int32)
    topk[:, 0] = ids
    return {"ids": ids, "logps": np.ascontiguousarray(logps[:, 0]), "topk_ids": topk,
            "topk_logps": np.ascontiguousarray(logps), "versions": np.zeros(o.tokens, np.int32)}


def _answer(
    socket: zmq.Socket, id: str, reply: dict[str, np.ndarray], o: argparse.Namespace, said: Any
) -> None:
    for start in range(0, o.tokens, o.chunk):
        part = {n: a[start : start + o.chunk] for n, a in reply.items()}
        _send(socket, Message("generate.chunk", id, {"start": start}, part), said)
    _send(socket, Message("generate.done", id, {"finish_reason": "length", "cached_tokens": 0}),
          said)
    said[3] += 1


def _send(socket: zmq.Socket, message: Message, said: Any) -> None:
    frames = wire.encode(message)
    said[0] += sum(len(f) for f in frames)
    said[2] += 1
    socket.send_multipart(frames)


# --- the askers -------------------------------------------------------------------------------


async def asked(address: str, o: argparse.Namespace) -> dict[str, Any]:
    """Ask for `--seconds`, `--at-once` at a time; -> seconds of each answer, refusals."""
    engine = WireEngine(address, plugin="personal", heartbeat_s=o.heartbeat_s)
    await engine.open()
    took: list[float] = []
    refused, number = 0, 0
    until = time.monotonic() + o.seconds

    async def person(me: int) -> None:
        nonlocal refused, number
        while time.monotonic() < until:
            number += 1
            words = f"Question {number} of person {me}: " + "how do plants grow? " * o.words
            ask = Ask([{"role": "user", "content": words}], sampling={"max_tokens": o.tokens},
                      session=f"s{number}")
            began = time.perf_counter()
            try:
                async for _ in engine.ask(ask):
                    pass
                took.append(time.perf_counter() - began)
            except EngineError as error:
                refused += 1
                await asyncio.sleep(error.retry_after_s or 0.1)

    try:
        await asyncio.gather(*(person(i) for i in range(o.at_once)))
    finally:
        await engine.close()
    return {"took": took, "refused": refused}


# --- one run ----------------------------------------------------------------------------------


def measure(num: int, o: argparse.Namespace) -> dict[str, Any]:
    """A fresh actor with `num` workers."""
    with tempfile.TemporaryDirectory(prefix="claw-crowd-") as name:
        folder = Path(name)
        words = (f"model='{o.model}'", 'plugin_name="personal"', "judge.kind=none",
                 f"wire.heartbeat_s={o.heartbeat_s}", f"rollout.logprobs_k={o.k}",
                 "guard.flood=0")
        sockets = {n: f"ipc://{folder}/{n}" for n in ("workers", "runners", "trainer")}
        spec = folder / "actor.json"
        spec.write_text(json.dumps({
            "config": settings.resolved(settings.load(None, words)), "sockets": sockets,
            "model_dir": str(resolve(o.model)), "run_dir": str(folder / "run"),
            "launcher": os.getpid(),
        }))
        (folder / "run").mkdir()
        said = multiprocessing.Array("q", 4, lock=False)
        with (folder / "log").open("wb") as log:
            actor = subprocess.Popen(
                [sys.executable, "-m", "claw.engine.actor", "--spec", str(spec)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            workers = multiprocessing.Process(
                target=crowd, args=(sockets["workers"], num, o, said), daemon=True)
            workers.start()
            try:
                return asyncio.run(_measured(num, actor, sockets["runners"], folder, o, said))
            finally:
                workers.terminate()
                workers.join(30)
                actor.terminate()
                actor.wait(60)


async def _measured(
    num: int, actor: subprocess.Popen[bytes], runners: str, folder: Path, o: argparse.Namespace,
    said: Any,
) -> dict[str, Any]:
    began = time.monotonic()
    engine = WireEngine(runners, heartbeat_s=o.heartbeat_s)
    await engine.open()
    while len((await engine.status())["workers"]) < num:
        if actor.poll() is not None or time.monotonic() - began > 300:
            raise SystemExit((folder / "log").read_text()[-2000:])
        await asyncio.sleep(0.2)
    up_s = time.monotonic() - began
    await engine.close()
    await asyncio.sleep(o.heartbeat_s)
    rest = cpu_s(actor.pid)
    await asyncio.sleep(o.rest_s)
    rest = (cpu_s(actor.pid) - rest) / o.rest_s
    before, sent, wrote = cpu_s(actor.pid), list(said), written(actor.pid)
    found = await asked(runners, o)
    cpu = cpu_s(actor.pid) - before
    out, back, messages, replies = (b - a for a, b in zip(sent, said, strict=True))
    took = sorted(found["took"])
    if not took:
        raise SystemExit((folder / "log").read_text()[-2000:])
    return {
        "workers": num, "up_s": up_s, "replies": len(took), "refused": found["refused"],
        "replies_per_s": len(took) / o.seconds, "tokens_per_s": len(took) * o.tokens / o.seconds,
        "median_s": statistics.median(took), "p99_s": took[int(0.99 * (len(took) - 1))],
        "cpu_ms_per_reply": 1000 * cpu / len(took), "cpu_share": cpu / o.seconds,
        "cpu_share_at_rest": rest, "memory_mb": memory_mb(actor.pid),
        "written_per_reply": (written(actor.pid) - wrote) / len(took),
        "wire_bytes_per_reply": (out + back) / max(replies, 1),
        "messages_per_reply": messages / max(replies, 1),
    }


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def written(pid: int) -> int:
    """Bytes that it has given to the disk."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 8, 128, 1024])
    parser.add_argument("--at-once", type=int, default=128, help="questions at a time")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rest-s", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=128, help="of a reply")
    parser.add_argument("--chunk", type=int, default=16, help="tokens of a message")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--words", type=int, default=20, help="repeats of a sentence in a question")
    parser.add_argument("--heartbeat-s", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer and template")
    o = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a socket takes a few files
    console.print(f"{describe()}, load {os.getloadavg()[0]:.1f} before the run")
    table = Table("workers", "replies/s", "tokens/s", "median, s", "p99, s", "actor ms/reply",
                  "at rest, % of a core", "memory, MB", "KB written", "KB on the wire", "messages",
                  "refused")
    for num in o.workers:
        row = measure(num, o)
        console.print_json(json.dumps(row))
        table.add_row(
            str(num), f"{row['replies_per_s']:.0f}", f"{row['tokens_per_s']:.0f}",
            f"{row['median_s']:.3f}", f"{row['p99_s']:.3f}", f"{row['cpu_ms_per_reply']:.2f}",
            f"{100 * row['cpu_share_at_rest']:.1f}", f"{row['memory_mb']:.0f}",
            f"{row['written_per_reply'] / 1e3:.1f}", f"{row['wire_bytes_per_reply'] / 1e3:.1f}",
            f"{row['messages_per_reply']:.1f}", str(row["refused"]))
    console.print(table)


if __name__ == "__main__":
    main()
