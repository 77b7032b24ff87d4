"""`python -m benchmarks.wire`: what replies cost on the wire, against the same answers as JSON.

64 replies of 8,192 tokens with their log-probs, versions and top-20: encoded, sent over ipc:// to
another process and decoded there. The other side of the comparison is the JSON that SGLang's HTTP
server answers with for the same numbers, read by a client into the same arrays (over no socket at
all, which favours it).
"""

import argparse
import json
import multiprocessing
import platform
import statistics
import tempfile
import time
from typing import Any

import numpy as np
import zmq
from rich.console import Console
from rich.table import Table

from claw.engine import wire
from claw.engine.wire import Message

console = Console(highlight=False)


def reply(tokens: int, k: int, seed: int) -> dict[str, np.ndarray]:
    """The arrays of one reply."""
    random = np.random.default_rng(seed)
    return {
        "ids": random.integers(0, 49152, tokens, np.int32),
        "logps": -random.random(tokens, np.float32) * 9,
        "topk_ids": random.integers(0, 49152, (tokens, k), np.int32),
        "topk_logps": -random.random((tokens, k), np.float32) * 9,
        "versions": np.zeros(tokens, np.int32),
    }


def pieces(arrays: dict[str, np.ndarray], chunk: int) -> list[Message]:
    total = len(arrays["ids"])
    return [Message("generate.chunk", "turn_0.1", {"start": a},
                    {n: v[a : a + chunk] for n, v in arrays.items()})
            for a in range(0, total, chunk)]


def read_all(address: str, num: int, rounds: int, answers: Any) -> None:
    """The other process: decode everything, and say when it was done."""
    context = zmq.Context()
    socket = wire.open_socket(context, zmq.DEALER, address, bind=False)
    for _ in range(rounds):
        cpu = time.process_time()
        for _ in range(num):
            wire.decode(wire.receive(socket))
        answers.put((time.monotonic(), time.process_time() - cpu))
    context.destroy(0)


def over_the_wire(replies: list[dict[str, np.ndarray]], chunk: int, rounds: int) -> dict[str, Any]:
    """Return {ms, client_ms, megabytes} of the best and the median round."""
    with tempfile.TemporaryDirectory() as folder:
        address, context = f"ipc://{folder}/wire", zmq.Context()
        socket = wire.open_socket(context, zmq.DEALER, address, bind=True)
        messages = [m for arrays in replies for m in pieces(arrays, chunk)]
        answers: Any = multiprocessing.get_context("spawn").Queue()
        child = multiprocessing.get_context("spawn").Process(
            target=read_all, args=(address, len(messages), rounds, answers))
        child.start()
        while not socket.poll(10, zmq.POLLOUT):
            assert child.is_alive(), "the reader died"
        wall, client, num_bytes = [], [], 0
        for _ in range(rounds):
            time.sleep(0.2)
            start, num_bytes = time.monotonic(), 0
            for message in messages:
                frames = wire.encode(message)
                num_bytes += sum(len(f) for f in frames)
                socket.send_multipart(frames, copy=False)
            end, cpu = answers.get(timeout=120)
            wall.append((end - start) * 1000)
            client.append(cpu * 1000)
        child.join(10)
        child.kill()
        context.destroy(0)
    return {"wall": wall, "client": client, "megabytes": num_bytes / 1e6}


def as_json(arrays: dict[str, np.ndarray]) -> bytes:
    """One reply as SGLang's HTTP server answers it."""
    ids, logps = arrays["ids"].tolist(), arrays["logps"].tolist()
    meta: dict[str, Any] = {"output_token_logprobs": [[p, i, None] for p, i in
                                                      zip(logps, ids, strict=True)]}
    if arrays["topk_ids"].shape[1]:
        meta["output_top_logprobs"] = [
            [[p, i, None] for p, i in zip(row_p, row_i, strict=True)]
            for row_p, row_i in zip(arrays["topk_logps"].tolist(), arrays["topk_ids"].tolist(),
                                    strict=True)]
    return json.dumps({"output_ids": ids, "meta_info": meta}, separators=(",", ":")).encode()


def read_json(raw: bytes) -> dict[str, np.ndarray]:
    out = json.loads(raw)
    meta = out["meta_info"]
    top = meta.get("output_top_logprobs", [])
    return {
        "ids": np.array(out["output_ids"], np.int32),
        "logps": np.array([e[0] for e in meta["output_token_logprobs"]], np.float32),
        "topk_ids": np.array([[e[1] for e in row] for row in top], np.int32),
        "topk_logps": np.array([[e[0] for e in row] for row in top], np.float32),
    }


def from_json(replies: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    bodies = [as_json(r) for r in replies]
    start = time.process_time()
    for body in bodies:
        read_json(body)
    return {"client": (time.process_time() - start) * 1000,
            "megabytes": sum(map(len, bodies)) / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=8192, help="tokens of one message")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    table = Table(title=f"{options.turns} replies of {options.tokens} tokens, "
                  f"{options.chunk} a message; {platform.machine()}, Python "
                  f"{platform.python_version()}")
    for name in ("top-k", "wire ms: best", "median", "client CPU ms", "MB", "JSON client CPU ms",
                 "JSON MB", "CPU share", "bytes share"):
        table.add_column(name, justify="right")
    for k in (20, 0):
        replies = [reply(options.tokens, k, seed) for seed in range(options.turns)]
        ours = over_the_wire(replies, options.chunk, options.rounds)
        theirs = from_json(replies)
        cpu = statistics.median(ours["client"])
        table.add_row(
            str(k), f"{min(ours['wall']):.1f}", f"{statistics.median(ours['wall']):.1f}",
            f"{cpu:.1f}", f"{ours['megabytes']:.1f}", f"{theirs['client']:.0f}",
            f"{theirs['megabytes']:.1f}", f"1/{theirs['client'] / max(cpu, 1e-9):.0f}",
            f"1/{theirs['megabytes'] / ours['megabytes']:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
