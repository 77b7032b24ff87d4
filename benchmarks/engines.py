"""`python -m benchmarks.engines`: kinds of workers on one machine, and what a swap costs them.

Tokens per second at 1, 4 and 16 requests at once (32 prompt + 32 new tokens, top-4) through a
worker process of each kind, and through SGLang's own `Engine.async_generate` (`raw`); then the
longest gap between two chunks (at most four tokens) of a running request during swaps of adapters
and of full weights, against the ordinary gap. Name SGLang's python with --sglang.
"""

import argparse
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zmq
from safetensors.numpy import save_file

from claw.engine import models, process, versions, wire
from claw.engine.wire import Message
from claw.engine.worker.shelf import folder_shapes
from claw.records import Sampling, Version

AT_ONCE = (1, 4, 16)
PROMPT, NEW, ROUNDS = 32, 32, 2
BEFORE_S, AFTER_S = 3.0, 1.5
"""of a swap's watch"""


class Client:
    """One worker process and the socket it talks to."""

    def __init__(self, folder: Path, kind: str, model: Path, python: str) -> None:
        self.context = zmq.Context()
        address = f"ipc://{folder}/actor"
        self.socket = wire.open_socket(self.context, zmq.ROUTER, address, bind=True)
        kind, _, way = kind.partition("-")
        config = {"worker": {"kind": kind, "slots": 16, "context": 512}, "lora": {"rank": 8},
                  "rollout": {"max_tokens": 64}}
        if kind == "sglang":
            config["sglang"] = {"python": python, "weights": way or "folder"}
            config["lora"] = {"rank": 0 if way else 8}  # tensors are full weights
        spec = folder / "spec.json"
        spec.write_text(json.dumps({"config": config, "model_dir": str(model), "name": "w",
                                    "actor": address, "versions": ""}))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "claw.engine.worker", "--spec", str(spec)],
            stderr=(folder / "log").open("wb"))
        self.worker = b"w"
        self.until("worker.hello", patience_s=600)

    def receive(self, patience_s: float = 60.0) -> Message:
        if not self.socket.poll(patience_s * 1000):
            raise SystemExit("the worker says nothing")
        _, *frames = self.socket.recv_multipart()
        return wire.decode(frames)

    def until(self, type: str, patience_s: float = 60.0) -> Message:
        end = time.monotonic() + patience_s
        while True:
            message = self.receive(max(0.0, end - time.monotonic()))
            if message.type == type:
                return message

    def send(self, message: Message) -> None:
        self.socket.send_multipart([self.worker, *wire.encode(message)])

    def generate(self, id: str, seed: int, tokens: int = NEW) -> None:
        sampling, _ = wire.pack(Sampling(max_tokens=tokens, ignore_eos=True, logprobs_k=4))
        ids = np.random.default_rng(seed).integers(3, 290, PROMPT).astype(np.int32)
        self.send(Message("generate", id, {"sampling": sampling}, {"prompt_ids": ids}))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.socket.close(0)
        self.context.term()


@contextmanager
def client(kind: str, model: Path, python: str) -> Iterator[Client]:
    folder = Path(tempfile.mkdtemp(prefix="claw-bench-"))
    made = Client(folder, kind, model, python)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def speeds(worker: Client) -> list[float]:
    """Best tokens per second of the rounds, at each number of requests."""
    found = []
    for num in AT_ONCE:
        best = 0.0
        for r in range(ROUNDS):
            start = time.monotonic()
            for i in range(num):
                worker.generate(f"{num}.{r}.{i}", seed=1000 * r + 100 * num + i)
            for _ in range(num):
                worker.until("generate.done")
            best = max(best, num * NEW / (time.monotonic() - start))
        found.append(best)
    return found


def raw_speeds(model: Path, python: str) -> list[float]:
    env = os.environ | process.ENVIRONMENT | {"OMP_NUM_THREADS": "1"}  # as the worker starts it
    done = subprocess.run([python, "-m", "benchmarks.raw_sglang", str(model)], check=True, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=900)
    return [float(v) for v in json.loads(done.stdout.splitlines()[-1])]


# --- swaps -----------------------------------------------------------------------------------


def canary(worker: Client, folder: Path) -> None:
    """The worker's own scores: every version here has the first weights' numbers."""
    ids = np.random.default_rng(5).integers(3, 290, (4, 32)).astype(np.int32)
    logps = []
    for i, row in enumerate(ids):
        worker.send(Message("score", f"canary {folder} {i}", {}, {"ids": row}))
        logps.append(worker.until("score.done").arrays["logps"])
    versions.write_canary(folder, ids, np.stack(logps))


def adapter(folder: Path, model: Path) -> None:
    shapes = folder_shapes(model)[0]
    tensors = {}
    for name, shape in shapes.items():
        if name.endswith(("q_proj.weight", "v_proj.weight")):
            base = f"base_model.model.{name.removesuffix('.weight')}.lora_"
            tensors[f"{base}A.weight"] = np.ones((8, shape[1]), np.float32)
            tensors[f"{base}B.weight"] = np.zeros((shape[0], 8), np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}))


def version(worker: Client, scratch: Path, model: Path, number: int, kind: str) -> Version:
    folder = scratch / f"{kind}{number}"
    folder.mkdir()
    if kind == "lora":
        adapter(folder, model)
    else:
        for file in model.glob("*.safetensors"):
            shutil.copy(file, folder)
    canary(worker, folder)
    checksum = versions.write_manifest(folder, owner="default", adapter="default", number=number,
                                       parent=None, kind=kind, step=number)
    return Version("default", "default", number, None, checksum, kind=kind, path=str(folder))


@dataclass
class Watch:
    """Gaps between the chunks of running requests, before, during and after one swap."""

    ordinary: list[float] = field(default_factory=list)
    longest: float = 0.0
    told: float = 0.0
    """when the version was announced; 0 before"""
    loaded: float = 0.0
    last: dict[str, float] = field(default_factory=dict)

    def chunk(self, id: str, now: float) -> None:
        gap = now - self.last.get(id, now)
        self.last[id] = now
        if not self.told:
            self.ordinary += [gap] if gap else []
        elif not self.loaded or now - self.loaded < AFTER_S:
            self.longest = max(self.longest, gap)


def one_swap(worker: Client, name: str, version: Version) -> tuple[Watch, float]:
    """Four requests run, a version comes in; return what was seen and the load's seconds."""
    ids = [f"{name}.{i}" for i in range(4)]
    for i, id in enumerate(ids):
        worker.generate(id, seed=i, tokens=400)
    watch, num_ended, start, seconds, is_over = Watch(), 0, time.monotonic(), 0.0, False
    while num_ended < 4:
        message, now = worker.receive(), time.monotonic()
        if message.type in ("version.refused", "generate.error"):
            raise SystemExit(f"{message.type}: {message.fields}")
        if message.type == "generate.chunk":
            watch.chunk(message.id, now)
        elif message.type == "generate.done":
            num_ended += 1
        elif message.type == "version.loaded":
            watch.loaded, seconds = now, message["seconds"]
        if not watch.told and now - start > BEFORE_S:
            watch.told = now
            worker.send(wire.record_message("version.load", version))
        if watch.loaded and not is_over and now - watch.loaded > AFTER_S:
            is_over = True
            for id in ids:
                worker.send(Message("cancel", id))
    return watch, seconds


def gaps(worker: Client, scratch: Path, model: Path, kind: str, swaps: int) -> list[float]:
    """[median ordinary gap, median and largest of each swap's longest gap, load] in seconds."""
    made = [version(worker, scratch, model, n, kind) for n in (1, 2)]
    seen = [one_swap(worker, f"{kind}.{i}", made[i % 2]) for i in range(swaps)]
    first = Version("default", "default", 0, None, "", kind=kind)
    worker.send(wire.record_message("version.load", first))
    worker.until("version.loaded")
    longest = [w.longest for w, _ in seen]
    ordinary = [g for w, _ in seen for g in w.ordinary]
    return [float(np.median(ordinary)), float(np.median(longest)), max(longest),
            float(np.median([s for _, s in seen]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--kinds", default="transformers,sglang,raw",
                        help="also sglang-tensors: full weights come in shared memory")
    parser.add_argument("--what", default="speed,lora,full", help="speed, swaps of lora, of full")
    parser.add_argument("--sglang", default=".venv-sglang/bin/python")
    parser.add_argument("--swaps", type=int, default=20, help="of each kind")
    options = parser.parse_args()
    model, what = models.resolve(options.model), options.what.split(",")
    say = functools.partial(print, flush=True)  # row by row: one that is cut short has said some
    say(f"{options.model}, {platform.machine()}, {os.cpu_count()} cores")
    for kind in options.kinds.split(","):
        if kind == "raw":
            say(f"{kind:<14}", speed_row(raw_speeds(model, options.sglang)))
            continue
        with client(kind, model, options.sglang) as worker:
            if "speed" in what:
                say(f"{kind:<14}", speed_row(speeds(worker)))
            scratch = Path(tempfile.mkdtemp(prefix="claw-bench-versions-"))
            for swap in (w for w in ("lora", "full") if w in what):
                found = gaps(worker, scratch, model, swap, options.swaps)
                say(f"{kind:<14} {swap}: ordinary gap p50 {1000 * found[0]:.0f} ms; longest gap at "
                    f"a swap p50 {1000 * found[1]:.0f}, max {1000 * found[2]:.0f}; load "
                    f"{1000 * found[3]:.0f}; {options.swaps} swaps, no request refused")
            shutil.rmtree(scratch)


def speed_row(found: list[float]) -> str:
    return "  ".join(f"{v:.1f} tok/s at {n}" for n, v in zip(AT_ONCE, found, strict=True))


if __name__ == "__main__":
    main()
