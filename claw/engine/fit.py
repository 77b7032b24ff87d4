"""`claw doctor --fit MODEL`: what a model needs to be served and trained, before anything starts.

Owns: the estimate of each process' memory, part by part, and whether a card has room for it.
Does not own: the presets, and what really happens (`python -m benchmarks.fit` compares the two).

Weights are counted on a model without storage (torch's meta device), and what the backward pass
keeps is what autograd asks to keep in a forward pass of that model: no formula of one architecture.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from claw.config import RunConfig
from claw.engine import models, sight
from claw.engine.devices import pick_device, pick_dtype
from claw.engine.trainer.model import adapt, keeps_ema, keeps_first
from claw.engine.worker.held import MAX_HELD
from claw.engine.worker.prefix import MAX_BYTES
from claw.errors import UsageError
from claw.kernels.chunk import CPU_ROWS, gpu_rows

NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""of a weight: 4 bits, and of each block of 64 a scale of 8 bits, of 256 blocks one of 32"""
ADAM_BYTES = 4 + 4 + 4 + 4
"""of a trained float32 weight: itself, its gradient, two moments"""
CONTEXT_BYTES = 5 << 27
"""of a process on a GPU before its first tensor: CUDA's context and torch's code; an assumption"""
PROCESS_BYTES = 5 << 27
"""of a process on a CPU: Python, torch, transformers; 0.5 GB were seen with torch 2.13"""


@dataclass(frozen=True, slots=True)
class Part:
    """What one process keeps for one purpose."""

    process: str
    what: str
    num_bytes: float


def estimate(model: str, config: RunConfig) -> list[Part]:
    """Everything that the trainer and one worker keep at their fullest, on one device."""
    if config.train.ranks > 1:
        raise UsageError("the estimate is of one trainer that holds all weights",
                         found=f"train.ranks = {config.train.ranks}", allowed="1")
    lm = skeleton(model, pick_dtype(config.train.dtype, pick_device(config.train.device)))
    return [*_trainer(lm, config), *_worker(lm, config)]


def on_gpu(config: RunConfig) -> RunConfig:
    """The run as it would be on a GPU, wherever this is asked."""
    devices = {"train": config.train.model_copy(update={"device": "cuda"}),
               "worker": config.worker.model_copy(update={"device": "cuda"})}
    return config.model_copy(update=devices)


def total(parts: list[Part], process: str = "") -> float:
    """Bytes of one process, or of all."""
    return sum(p.num_bytes for p in parts if process in ("", p.process))


# --- the trainer ------------------------------------------------------------------------------


def _trainer(lm: nn.Module, config: RunConfig) -> Iterator[Part]:
    device = pick_device(config.train.device)
    width = pick_dtype(config.train.dtype, device).itemsize
    base = _base_bytes(lm, config.lora.quantize, width)
    head = _head(lm).numel() * width
    yield Part("trainer", "weights", base)
    if config.lora.rank:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft's, of transformers' names
            lm = adapt(lm, config.lora).base_model.model
        trained = sum(p.numel() for p in lm.parameters() if p.requires_grad)
        yield Part("trainer", "adapter and its optimiser", ADAM_BYTES * trained)
    else:
        trained = sum(p.numel() for p in lm.parameters())
        # float32 weights are their own masters
        yield Part("trainer", "optimiser and gradients",
                   trained * (ADAM_BYTES - (4 if width == 4 else 0)))
        if keeps_first(config):
            yield Part("trainer", "first weights, for the loss", base)
        if config.gate.enabled and config.gate.max_step_drift:
            yield Part("trainer", "output heads, for drift", 2 * head)
    if keeps_ema(config):
        yield Part("trainer", "averaged weights", trained * (4 if config.lora.rank else width))
    kept = saved_bytes(lm, config.train.micro_tokens)
    layer = kept / _num_layers(lm)
    if config.train.gradient_checkpointing:
        hidden = config.train.micro_tokens * _text(lm).hidden_size * width
        yield Part("trainer", "activations, checkpointed", hidden * _num_layers(lm) + layer)
    else:
        yield Part("trainer", "activations", kept)
    yield Part("trainer", "gradients of one layer's", layer)
    yield Part("trainer", "logits of one chunk", _chunk_bytes(lm, config, device, width))
    yield _process("trainer", device)


def _chunk_bytes(
    lm: nn.Module, config: RunConfig, device: torch.device, width: int
) -> float:
    """On a CPU logits, their gradient and a float32 copy; Triton's gradient takes their place."""
    num_vocab, most = _head(lm).shape[0], config.train.micro_tokens
    if device.type == "cpu":
        return 3.0 * min(CPU_ROWS, most) * num_vocab * 4
    return float(min(gpu_rows(num_vocab * width), most) * num_vocab * width)


# --- a worker ---------------------------------------------------------------------------------


def _worker(lm: nn.Module, config: RunConfig) -> Iterator[Part]:
    w, text = config.worker, _text(lm)
    device = pick_device(w.device)
    width = pick_dtype(w.dtype, device).itemsize
    base = _base_bytes(lm, config.lora.quantize, width)
    yield Part("worker", "weights", base)
    context = min(w.context, getattr(text, "max_position_embeddings", w.context) or w.context)
    entry = 2 * text.num_hidden_layers * _kv_width(text) * width
    yield Part("worker", f"keys and values of {w.slots} x {context} tokens",
               w.slots * (context + 1) * entry)
    yield Part("worker", "kept prefixes", MAX_BYTES)
    if config.lora.rank:
        trained = sum(p.numel() for p in lm.parameters() if p.requires_grad)
        yield Part("worker", f"{MAX_HELD} versions of one adapter", 4 * MAX_HELD * trained)
    else:
        yield Part("worker", "the version that comes in", base)
    yield Part("worker", "logits", 4.0 * w.slots * _head(lm).shape[0] * 4)
    yield _process("worker", device)


def _kv_width(text: Any) -> int:
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(heads * size)


# --- what both need ---------------------------------------------------------------------------


def skeleton(model: str, dtype: torch.dtype) -> nn.Module:
    """The model without storage. A hub name costs its config.json, not its weights."""
    from transformers import AutoConfig

    models.check_name(model)
    source = str(models.resolve(model)) if model in models.KNOWN else model
    try:
        settings = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise UsageError(
            "the model's config.json cannot be read",
            found=f"{model}: {str(error).splitlines()[0][:300]}",
            do="check the name and the network, or name a folder that has it",
        ) from error
    _register()
    with torch.device("meta"):
        made: nn.Module = sight.auto_class(Path(source)).from_config(
            settings, dtype=dtype, attn_implementation="claw_fit")
    return made.requires_grad_(True)


def saved_bytes(lm: nn.Module, num_tokens: int) -> float:
    """What autograd keeps for the backward pass of one row of tokens, weights not counted."""
    decoder = getattr(lm, str(lm.base_model_prefix))
    ids = torch.zeros(1, num_tokens, dtype=torch.int64, device="meta")
    weights = {p.untyped_storage()._cdata for p in lm.parameters()}
    found: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in weights:
            found[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        out = decoder(input_ids=ids, use_cache=False).last_hidden_state
    del out
    return float(sum(t.untyped_storage().nbytes() for t in found.values()))


class _Attended(torch.autograd.Function):
    """What an attention without a stored score matrix keeps: queries, keys, values, output."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError("a model without storage has no gradients")


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, None]:
    """[B, heads, L, D] -> [B, L, heads, D], as transformers' attention functions do."""
    return _Attended.apply(query, key, value).transpose(1, 2), None


def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register("claw_fit", _attend)


def _base_bytes(lm: nn.Module, quantize: str, width: int) -> float:
    """Of the weights without adapters; tied ones count once."""
    total = sum(p.numel() for n, p in lm.named_parameters() if "lora_" not in n) * width
    if quantize == "none":
        return float(total)
    head = _head(lm)
    small = sum(m.weight.numel() for n, m in lm.named_modules() if isinstance(m, nn.Linear)
                and m.weight is not head and "lora_" not in n)
    return total - small * (width - NF4_BYTES)


def _head(lm: nn.Module) -> Tensor:
    found: Tensor = lm.get_output_embeddings().weight  # type: ignore[operator]
    return found


def _text(lm: nn.Module) -> Any:
    return lm.config.get_text_config()  # type: ignore[operator,union-attr]


def _num_layers(lm: nn.Module) -> int:
    return int(_text(lm).num_hidden_layers)


def _process(name: str, device: torch.device) -> Part:
    on_cpu = device.type == "cpu"
    return Part(name, "the process itself" if on_cpu else "CUDA's context",
                PROCESS_BYTES if on_cpu else CONTEXT_BYTES)
