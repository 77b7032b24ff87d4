"""An engine of a few lines in a process of its own, whose log-probs tell which weights made them.

Each set of weights is one number w: every token has log-prob -w - its id / 1000. A reply counts up
from the last id. `fake.json` in the model folder says how it misbehaves.
"""

import asyncio
import json
import os
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from claw.engine import tensors
from claw.engine.versions import VersionError
from claw.engine.worker import host_process
from claw.engine.worker.engine import EngineError, Part, Scores

VOCAB = 300


def write_weights(folder: Path, w: float, **other) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"w": np.array([w], np.float32), **other}, folder / "model.safetensors")
    return folder


def make_fake(folder: Path, w: float = 1.0, **ways) -> Path:
    """A model folder for this engine."""
    write_weights(folder, w, **{f"{LAYER}.weight": np.zeros((6, 5), np.float32)})
    (folder / "config.json").write_text("{}")
    (folder / "fake.json").write_text(json.dumps({"pace_s": 0.002} | ways))
    return folder


LAYER = "model.layers.0.self_attn.q_proj"


def write_adapter(folder: Path, w: float, rank: int = 2, layer: str = LAYER, **config) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    a, b = np.full((rank, 5), w, np.float32), np.ones((6, rank), np.float32)
    name = f"base_model.model.{layer}.lora"
    save_file({f"{name}_A.weight": a, f"{name}_B.weight": b}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank} | config))
    return folder


class FakeEngine:
    vocab_size, context, has_adapters, dtype, device = VOCAB, 256, True, "float32", "cpu"

    def __init__(self, folder: Path) -> None:
        self.ways = json.loads((folder / "fake.json").read_text())
        if words := self.ways.get("dies_at_start"):
            print(f"Traceback ...\nRuntimeError: {words}", flush=True)
            os._exit(7)
        time.sleep(self.ways.get("starts_in_s", 0))
        self.w = float(load_file(folder / "model.safetensors")["w"][0])
        self.adapters: dict[str, float] = {}
        self.aborted: set[str] = set()
        self.running: set[str] = set()
        self.num = 0

    async def _token(self) -> None:
        await asyncio.sleep(self.ways["pace_s"])
        self.num += 1
        if self.num == self.ways.get("dies_after"):
            print("RuntimeError: out of memory in the scheduler", flush=True)
            os._exit(9)
        if self.num == self.ways.get("freezes_after"):
            time.sleep(1000)
        while self.num >= self.ways.get("hangs_after", 1 << 60):
            await asyncio.sleep(0.05)

    def _logp(self, ids, adapter):
        w = self.w if adapter is None else self.adapters[adapter]
        return (-w - np.asarray(ids) / 1000).astype(np.float32)

    async def generate(self, ask):
        self.running.add(ask.rid)
        for i in range(ask.max_tokens):
            await self._token()
            if ask.rid in self.aborted:
                self.running.discard(ask.rid)
                yield Part({"ids": np.empty(0, np.int32)}, "abort", 0)
                return
            id = (ask.ids[-1] + 1) % VOCAB
            if id == self.ways.get("gives_up_at"):
                raise EngineError("an answer of the engine is not usable", found="nan")
            is_stop = id in ask.stop_ids and not ask.sampling.ignore_eos
            finish = "stop" if is_stop else "length" if i + 1 == ask.max_tokens else ""
            k = ask.sampling.logprobs_k
            if finish:
                self.running.discard(ask.rid)
            ids = np.array([id], np.int32)
            yield Part({"ids": ids, "logps": self._logp(ids, ask.adapter),
                        "topk_ids": np.zeros((1, k), np.int32),
                        "topk_logps": np.zeros((1, k), np.float32)}, finish, 0)
            if finish:
                return

    async def score(self, rid, ids, topk, adapter, start=0):
        ids = ids[start:]
        for _ in range(self.ways.get("score_tokens", 1)):
            await self._token()
            if rid in self.aborted:
                raise EngineError("given up")
        return Scores(self._logp(ids[1:], adapter), np.zeros((len(ids) - 1, topk), np.int32),
                      np.zeros((len(ids) - 1, topk), np.float32))

    def abort(self, rid):
        self.aborted.add(rid)

    async def load_adapter(self, name, folder):
        await asyncio.sleep(self.ways.get("load_s", 0))
        assert len(self.adapters) < self.ways.get("most_adapters", 99), list(self.adapters)
        assert sorted(p.name for p in folder.iterdir()) == [
            "adapter_config.json", "adapter_model.safetensors"]
        tensors = load_file(folder / "adapter_model.safetensors")
        self.adapters[name] = float(next(t for n, t in tensors.items() if "_A" in n)[0, 0])

    async def unload_adapter(self, name):
        del self.adapters[name]

    async def read(self, files):
        return files[0].parent if self.ways.get("reads") else None

    async def place(self, read):
        await self.load_weights(read)

    async def load_weights(self, folder):
        assert not self.running, "weights change while nothing runs"
        await asyncio.sleep(self.ways.get("load_s", 0))
        found = float(load_file(folder / "model.safetensors")["w"][0])
        if found == self.ways.get("refuses"):
            raise VersionError("the engine does not take the weights", found="its own words")
        self.w = found + self.ways.get("off_by", {}).get(str(found), 0)

    async def checksums(self):
        held = {"w": tensors.checksum(np.array([self.w], np.float32).tobytes())}
        return held if self.ways.get("tells") else {}

    def close(self):
        pass


if __name__ == "__main__":
    host_process.main(lambda config, folder: FakeEngine(folder))
