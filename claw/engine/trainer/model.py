"""The policy under training: a Hugging Face causal LM from a local folder.

Owns: loading, LoRA or full weights, hidden states, whose weights answer (current, base, ema).
Does not own: log-probs (kernels), the optimiser's copies, files of versions, shards (sharded).

B sequences, L positions, H hidden size, V vocabulary size.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from claw.config import LoraConfig, RunConfig
from claw.engine import quantize, sight, wire
from claw.engine.devices import pick_device, pick_dtype
from claw.engine.pictures import Lens, lens_of
from claw.engine.trainer import attention, batch, heap, sharded
from claw.engine.trainer.loss import asks_teacher
from claw.engine.trainer.ranks import Ranks
from claw.engine.trainer.sharded import Whole
from claw.errors import UsageError
from claw.kernels import backend

Pictures = Sequence[Sequence[np.ndarray]]
"""of each sequence, uint8 [H, W, 3] each"""


class Policy:
    """A causal LM, its trainable parameters, and the other weights that the loss may ask."""

    def __init__(
        self, lm: Any, peft: Any | None, first: Any | None, ema_decay: float | None,
        lens: Lens | None = None, ranks: Ranks | None = None, whole: Whole | None = None,
        first_whole: Whole | None = None, packs: bool = False,
    ):
        """`whole`: `lm` in shards over `ranks`; None where one process has all of it.

        `packs`: the sequences of a micro-batch lie in one row.
        """
        self.lm, self.peft, self.first, self.lens, self.packs = lm, peft, first, lens, packs
        self.ranks, self.whole, self._first_whole = ranks or Ranks(), whole, first_whole
        self.ema_decay = ema_decay
        self.parameters: dict[str, nn.Parameter] = {
            name: p for name, p in lm.named_parameters() if p.requires_grad
        }
        self.ema: dict[str, Tensor] = {}
        if ema_decay is not None:
            self.ema = {name: p.detach().clone() for name, p in self.parameters.items()}

    @property
    def device(self) -> torch.device:
        return self._head.device

    @property
    def head(self) -> Tensor:
        """[V, H] of the current weights (the embedding itself where they are tied).

        In shards it is whole from here to the end of the next backward pass, or `settle`.
        """
        if self.whole is not None and isinstance(self._head, DTensor):
            self.ranks.tell("gather_head")
            self.whole.gather()
        return self._head

    @property
    def _head(self) -> Tensor:
        return self.lm.get_output_embeddings().weight

    @property
    def vocab_size(self) -> int:
        return int(self._head.shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights in files: what the model computes in."""
        return self._head.dtype if self.whole is None else self.whole.dtype

    @property
    def context(self) -> int:
        """Longest sequence in tokens that the model has positions for."""
        config = self.lm.config.get_text_config()
        return int(getattr(config, "max_position_embeddings", 0) or 1 << 30)

    @property
    def kind(self) -> str:
        return "full" if self.peft is None else "lora"

    def lay(self, pairs: Sequence[batch.Pair]) -> batch.MicroBatch:
        """A micro-batch as this policy reads it."""
        return batch.lay(pairs, self.device, packed=self.packs)

    def hidden(
        self, ids_BL: Tensor, pictures: Pictures = (), bounds: Tensor | None = None
    ) -> Tensor:
        """[B, L] -> final hidden states [B, L, H], after the last norm; no logits are made.

        `pictures` are those of each sequence. `bounds` int32 [n + 1]: the one row holds n
        sequences, none of which sees another.
        """
        if self.lens is not None and any(pictures):
            return sight.whole(self.lm, self.lens, ids_BL, pictures)
        if self.whole is None:
            return _last_hidden(self.lm, ids_BL, bounds)
        given = {"ids": ids_BL} | ({} if bounds is None else {"bounds": bounds})
        arrays = {name: t.cpu().numpy() for name, t in given.items()}
        self.ranks.tell_all_of(wire.Message("hidden", "", {}, arrays))
        return self.whole(ids_BL, bounds)

    def student(
        self, ids_BL: Tensor, pictures: Pictures = (), bounds: Tensor | None = None
    ) -> Tensor:
        """`hidden` with gradients (and with the dropout of adapters and checkpointing, if set)."""
        self.lm.train()
        try:
            return self.hidden(ids_BL, pictures, bounds)
        finally:
            self.lm.eval()

    @contextmanager
    def weights_of(self, who: str) -> Iterator["Policy"]:
        """Answer `hidden` and `head` with the weights of `who`: current, base or ema.

        Without gradients. "base" is the model before any training: the adapter off, or the frozen
        copy that full fine-tuning keeps when the loss asks for it.
        """
        with torch.no_grad():
            if who == "current":
                yield self
            elif who == "ema":
                with self._swapped():
                    yield self
            elif self.peft is not None:
                with self.peft.disable_adapter():
                    yield self
            elif self.first is not None:
                yield Policy(self.first, None, None, None, self.lens, self.ranks,
                             self._first_whole, packs=self.packs)
            else:
                raise ValueError(f"weights of {who!r} are not kept in this run")

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        """The ema in place of the current weights; pointers move, no number is copied.

        Shards are copied: FSDP has pointers of its own to them.
        """
        def swap() -> None:
            for name, p in self.parameters.items():
                if self.whole is None:
                    p.data, self.ema[name] = self.ema[name], p.data
                else:
                    kept = p.detach().clone()
                    p.copy_(self.ema[name])
                    self.ema[name].copy_(kept)
            self.settle()
        self.settle()
        swap()
        try:
            yield
        finally:
            swap()

    @torch.no_grad()
    def update_ema(self) -> None:
        """ema <- d ema + (1 - d) current, after each optimiser step."""
        for name, average in self.ema.items():
            average.lerp_(self.parameters[name].detach(), 1.0 - (self.ema_decay or 0.0))

    # --- whole weights ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Give up whole weights that shards were gathered into: the shards may change now."""
        if self.whole is not None:
            self.whole.settle()

    def named(self) -> dict[str, Tensor]:
        """The tensors of a version's files, as they lie in this process, under their names there.

        A parameter with two names is there twice, and the same object.
        """
        if self.peft is None:
            return self.lm.state_dict(keep_vars=True)
        import peft

        return peft.get_peft_model_state_dict(self.peft)

    def state(self) -> dict[str, Tensor]:
        """`named`, but whole where they are in shards: on the first rank; the others have none."""
        if self.whole is None:
            return self.named()
        self.ranks.tell("state")
        self.settle()
        found = sharded.fulls(self.named(), keep=self.ranks.is_first)
        if self.peft is None:  # trained in float32
            found = {name: t.to(self.dtype) if t.is_floating_point() else t
                     for name, t in found.items()}
        return found

    def fill(self, stored: Mapping[str, Tensor] | None) -> None:
        """Put whole tensors into shards; the first rank has them, the others None."""
        self.ranks.tell("fill")
        self.settle()
        sharded.fill(self.named(), stored)
        self.restart_ema()

    def restart_ema(self) -> None:
        with torch.no_grad():
            for name in self.ema:
                self.ema[name].copy_(self.parameters[name])


def load(model_dir: str | Path, config: RunConfig, ranks: Ranks | None = None) -> Policy:
    """Load the folder as the run says, in shards over `ranks` where there are several.

    UsageError: what cannot be honoured, in words.
    """
    ranks = ranks or Ranks()
    device = pick_device(config.train.device)
    dtype = pick_dtype(config.train.dtype, device)
    lens = lens_of(Path(model_dir))
    _check_kernels(device)
    if lens is not None and (ranks.size > 1 or config.train.packing):
        raise UsageError("a model that sees trains on one rank, and padded", found=str(model_dir),
                         do="set train.ranks = 1 and train.packing = false")
    # in shards the trained weights are float32 and computed with in `dtype`
    is_kept_exact = ranks.size > 1 and not config.lora.rank
    kept_as = torch.float32 if is_kept_exact else dtype
    bits = quantize.loading(config.lora.quantize, device, dtype)
    lm = _read(model_dir, device, kept_as, config.train.packing, bits)
    quantize.settle(lm)
    _check_head(lm)
    if config.train.packing:
        _check_packing(lm)
    peft = first = None
    if config.lora.rank:
        torch.manual_seed(config.seed)  # the adapter's first weights
        peft = adapt(lm, config.lora)
    elif keeps_first(config):
        first = _read(model_dir, device, dtype, config.train.packing).requires_grad_(False)
    if config.train.gradient_checkpointing:
        _checkpoint(lm)
        if device.type == "cpu":
            heap.give_back()
    whole, first_whole = (
        _shard(model, device, dtype) if model is not None and ranks.size > 1 else None
        for model in (lm, first))
    ema_decay = config.loss.ema_decay if keeps_ema(config) else None
    return Policy(lm.eval(), peft, first, ema_decay, lens, ranks, whole, first_whole,
                  config.train.packing)


def keeps_first(config: RunConfig) -> bool:
    """Whether the loss asks the first weights, of which full training needs a copy."""
    return config.loss.kl_coef > 0 or (asks_teacher(config) and config.loss.teacher == "base")


def keeps_ema(config: RunConfig) -> bool:
    """Whether an average of the weights teaches."""
    return asks_teacher(config) and config.loss.teacher == "ema"


def _shard(lm: Any, device: torch.device, dtype: torch.dtype) -> Whole:
    def forward(ids_BL: Tensor, bounds: Tensor | None) -> Tensor:
        return _last_hidden(lm, ids_BL, bounds)

    return sharded.shard(lm, forward, device, dtype)


def _checkpoint(lm: Any) -> None:
    """Keep no activations but those between layers; they are computed again on the way back."""
    settings = {"use_reentrant": False}
    if hasattr(lm, "activation_checkpointing_enable"):  # transformers renamed it within version 5
        lm.activation_checkpointing_enable(activation_checkpointing_kwargs=settings)
    else:
        lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def _read(
    model_dir: str | Path, device: torch.device, dtype: torch.dtype, packs: bool,
    more: dict[str, Any] | None = None,
) -> Any:
    from transformers import AutoConfig

    try:
        settings = AutoConfig.from_pretrained(str(model_dir), local_files_only=True)
        _without_dropout(settings)
        lm = sight.auto_class(model_dir).from_pretrained(
            str(model_dir), config=settings, dtype=dtype, local_files_only=True,
            attn_implementation=attention.choose(device, dtype, settings if packs else None)[0],
            **(more or {}),
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            "the model cannot be loaded", found=f"{model_dir}: {error}",
            allowed="a folder with config.json and safetensors of a causal language model",
        ) from error
    return lm.to(device).eval()


def _without_dropout(settings: Any) -> None:
    """Dropout of the base would make the scoring and the training pass disagree."""
    for part in (settings, *(getattr(settings, n, None) for n in settings.sub_configs)):
        for name in vars(part) if part is not None else ():
            if name.endswith(("dropout", "pdrop")) and isinstance(getattr(part, name), float):
                setattr(part, name, 0.0)


def _check_kernels(device: torch.device) -> None:
    """Say at the start, not in the first step, that the kernels cannot run here."""
    try:
        backend.choose(device.type)
    except (RuntimeError, ValueError) as error:
        raise UsageError("the training kernels cannot run", found=str(error)) from error


def _decoder(lm: Any) -> Any:
    return getattr(lm, lm.base_model_prefix)


def _last_hidden(lm: Any, ids_BL: Tensor, bounds: Tensor | None = None) -> Tensor:
    packed = {} if bounds is None else attention.packed_arguments(bounds)
    return _decoder(lm)(input_ids=ids_BL, use_cache=False, **packed).last_hidden_state


@torch.no_grad()
def _check_head(lm: Any) -> None:
    """Refuse models whose logits are more than hidden x head (a bias, a soft cap, a scale)."""
    head = lm.get_output_embeddings()
    if head is None or not hasattr(lm, lm.base_model_prefix):
        raise UsageError("not a causal language model with a linear head", found=type(lm).__name__)
    ids = torch.arange(8, device=head.weight.device)[None] % head.weight.shape[0]
    hidden = _decoder(lm)(input_ids=ids, use_cache=False).last_hidden_state
    wanted, found = hidden @ head.weight.T, lm(input_ids=ids, use_cache=False).logits
    if not torch.allclose(wanted.float(), found.float(), rtol=1e-3, atol=1e-2):
        raise UsageError(
            "the model's logits are not its hidden states times the head", found=type(lm).__name__,
            allowed="models without a bias, soft cap or scale on their logits",
        )


@torch.no_grad()
def _check_packing(lm: Any) -> None:
    """Refuse models that carry something from one sequence of a row into the next.

    The second of two sequences is read behind two different ones, and alone.
    """
    ids = torch.arange(12, device=lm.device)[None] % lm.get_output_embeddings().weight.shape[0]
    bounds = torch.tensor([0, 7, 12], dtype=torch.int32, device=lm.device)
    behind, behind_other = (
        _last_hidden(lm, torch.cat([first, ids[:, 7:]], dim=1), bounds)[:, 7:].float()
        for first in (ids[:, :7], ids[:, :7].flip(1)))
    alone = _last_hidden(lm, ids[:, 7:]).float()
    rounding = 8 * torch.finfo(lm.dtype).eps * float(alone.abs().max())
    if (behind - behind_other).abs().max() > rounding or not torch.allclose(
            behind, alone, rtol=1e-3, atol=1e-2):
        raise UsageError(
            "the model cannot read several sequences in one row", found=type(lm).__name__,
            allowed="models whose layers are attention", do="set train.packing = false",
        )


def adapt(lm: Any, lora: LoraConfig) -> Any:
    """Put a LoRA adapter on the linear layers named in `lora.targets`, each of which must exist."""
    import peft

    # what sees a picture stays as it is: an adapter is on the language model's layers
    language = getattr(_decoder(lm), "language_model", lm)
    linear = [n for n, m in language.named_modules() if isinstance(m, nn.Linear)]
    head = next(n for n, m in lm.named_modules() if m is lm.get_output_embeddings())
    targets = list(lora.targets)
    lost = [t for t in targets if not any(n == t or n.endswith("." + t) for n in linear)]
    if lost or not targets:
        known = sorted({n.rsplit(".", 1)[-1] for n in linear if n != head})
        raise UsageError(
            "lora.targets name layers that the model does not have",
            found=", ".join(map(repr, lost)) or "an empty list", allowed=", ".join(known),
        )
    if any(head == t or head.endswith("." + t) for t in targets):
        raise UsageError("the output head cannot have an adapter", found=f"lora.targets: {head}")
    return peft.get_peft_model(lm, peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets,
        bias="none", task_type="CAUSAL_LM",
    ))
