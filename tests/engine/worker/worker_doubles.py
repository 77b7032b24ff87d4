"""Tiny random models, a driver of backends, and plain transformers as the judge of numbers."""

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from claw import config as settings
from claw.engine import versions
from claw.engine.worker.backend import (
    Chunk,
    Done,
    Failed,
    Generate,
    Score,
    Scored,
    load_at_once,
)
from claw.engine.worker.transformers import make
from claw.records import Sampling, Version

VOCAB = 300
EOS = 2
_ids = itertools.count()


def make_model(folder: Path, kind: str = "llama", seed: int = 0, layers: int = 2) -> Path:
    """Save a random model whose log-probs differ well from token to token."""
    common = dict(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512,
        eos_token_id=EOS, bos_token_id=1, pad_token_id=0, initializer_range=0.3,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**common))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**common))
    model.generation_config.eos_token_id = EOS
    model.save_pretrained(folder)
    return folder


def backend_of(folder: Path, **worker: object):
    torch.set_num_threads(1)
    worker = {"slots": 4, "queue": 64, "context": 256, "device": "cpu", "dtype": "float32"} | worker
    values = {"worker": worker, "rollout": {"max_tokens": 8}}
    return make(settings.parse(values), folder)


def plain(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def plain_logps(model, ids: Sequence[int], temperature: float = 1.0) -> np.ndarray:
    """Log-probs [L-1, V] by one forward, without any cache."""
    with torch.no_grad():
        logits = model(torch.tensor([list(ids)])).logits[0].float()
    return torch.log_softmax(logits / (temperature or 1.0), -1)[:-1].numpy()


def request(prompt: Sequence[int], *, id: str = "", session: str = "", stop_ids=(),
            seconds: float = 600.0, **sampling: object) -> Generate:
    sampling = {"max_tokens": 12, "ignore_eos": True, "seed": 7} | sampling
    return Generate(id or f"r{next(_ids)}", np.array(prompt, np.int32), Sampling(**sampling),
                    tuple(stop_ids), session, "default", "default", time.monotonic() + seconds)


def score_request(ids: Sequence[int], temperature: float = 1.0, topk: int = 3) -> Score:
    return Score(f"s{next(_ids)}", np.array(ids, np.int32), "default", "default", temperature,
                 topk, time.monotonic() + 600)


@dataclass
class Got:
    """All that came for one request."""

    arrays: dict[str, list[np.ndarray]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    end: object = None

    def __getattr__(self, name: str) -> np.ndarray:
        return np.concatenate(self.arrays[name]) if name in self.arrays else np.array([])


class Driver:
    """Steps a backend and sorts its events by request."""

    def __init__(self, backend) -> None:
        self.backend = backend
        self.got: dict[str, Got] = {}

    def submit(self, *requests) -> None:
        for r in requests:
            self.got[r.id] = Got()
            self.backend.submit(r)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            for event in self.backend.step():
                got = self.got[event.id]
                if isinstance(event, Chunk):
                    assert event.start == sum(len(a) for a in got.arrays.get("ids", []))
                    got.starts.append(event.start)
                    for name, a in event.arrays.items():
                        got.arrays.setdefault(name, []).append(a)
                else:
                    assert got.end is None, "a request ends once"
                    got.end = event

    def finish(self, limit: int = 2000) -> None:
        while any(g.end is None for g in self.got.values()):
            self.step()
            limit -= 1
            assert limit, "the requests do not end"

    def run(self, *requests) -> list[Got]:
        self.submit(*requests)
        self.finish()
        return [self.got[r.id] for r in requests]


def full_version(folder: Path, number: int, source: Path, canary: tuple | None = None) -> Version:
    """Write the weights of the model in `source` as a full version."""
    folder.mkdir(parents=True)
    state = {n: t.contiguous() for n, t in plain(source).state_dict().items()
             if n != "lm_head.weight"}
    save_file(state, folder / "model.safetensors")
    return publish(folder, number, "full", canary)


def publish(folder: Path, number: int, kind: str, canary: tuple | None = None,
            checksums: dict[str, str] | None = None) -> Version:
    if canary is not None:
        versions.write_canary(folder, *canary)
    checksum = versions.write_manifest(
        folder, owner="default", adapter="default", number=number, parent=number - 1, kind=kind,
        step=number, checksums=checksums,
    )
    return Version("default", "default", number, number - 1, checksum, kind=kind, path=str(folder))


def lora_version(
    folder: Path, number: int, model_dir: Path, canary: bool = True, length: int = 12,
    **options: object
) -> Version:
    """Write a random peft adapter as a version, with a canary that peft itself scored."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(100 + number)
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"],
               "init_lora_weights": False} | options
    model = get_peft_model(plain(model_dir), LoraConfig(**options)).eval()
    model.save_pretrained(folder)
    return publish(folder, number, "lora", canary_of(model, length) if canary else None)


def plain_lora(model_dir: Path, version: Version):
    from peft import PeftModel

    return PeftModel.from_pretrained(plain(model_dir), version.path).eval()


def canary_of(model, length: int = 12) -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(5).integers(3, VOCAB, (2, length)).astype(np.int32)
    logps = [np.take_along_axis(plain_logps(model, row), row[1:, None], 1)[:, 0] for row in ids]
    return ids, np.stack(logps).astype(np.float32)


def other_weights_of(folder: Path, to: Path):
    """A model of the same architecture with other weights; saved in `to`."""
    model = plain(folder)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("mlp.down_proj.weight"):
                weight.mul_(1.3)
    model.save_pretrained(to)
    return model


def load(backend, version: Version):
    """What the worker does with an announced version."""
    from claw.engine.worker.loader import check

    return load_at_once(backend, version, check(version))


def rewrite(path: Path, change) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


__all__ = [
    "EOS", "VOCAB", "Done", "Driver", "Failed", "Got", "Scored", "backend_of", "canary_of",
    "full_version", "load", "lora_version", "make_model", "other_weights_of", "plain",
    "plain_logps", "plain_lora", "publish", "request", "rewrite", "score_request",
]
