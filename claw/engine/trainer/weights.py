"""Versions out of the trainer: publish, load back, prune.

Owns: the files of version n under versions/<owner>/<adapter>/<n>/ and their order.
Does not own: the manifest's layout and checks (engine.versions), when to publish (trainer).
"""

import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from claw.engine import faults, sight, tensors, versions
from claw.engine.trainer import durable, score
from claw.engine.trainer.model import Policy
from claw.errors import UsageError
from claw.records import DEFAULT_OWNER, Version, VersionStatus

FULL = "model.safetensors"
ADAPTER = "adapter_model.safetensors"


@dataclass(frozen=True)
class Shelf:
    """The folder of one owner's adapter."""

    run_dir: Path
    owner: str = DEFAULT_OWNER
    adapter: str = DEFAULT_OWNER

    def __post_init__(self) -> None:
        for name in (self.owner, self.adapter):
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}", name):
                raise UsageError(
                    "not a name of an owner or adapter", found=repr(name),
                    allowed="letters, digits, and _ . @ - inside",
                )

    @property
    def folder(self) -> Path:
        return self.run_dir.resolve() / "versions" / self.owner / self.adapter

    def path(self, number: int) -> Path:
        return self.folder / str(number)


@faults.around("trainer.publish")
def publish(
    policy: Policy, shelf: Shelf, *, number: int, parent: int | None, step: int,
    canary_ids: np.ndarray | None, status: VersionStatus = VersionStatus.PUBLISHED, note: str = "",
) -> Version:
    """Write the current weights as version `number`; a reader sees all of it or no manifest.

    The files are made in a hidden folder beside it, which takes the number's name once they are
    on the disk; the manifest comes last. canary_ids int32 [n, L] are scored with the published
    weights at temperature 1; None leaves the canary out.
    """
    part, folder = shelf.folder / f".{number}.part", shelf.path(number)
    for leftover in (part, folder):  # of a step that did not become durable
        shutil.rmtree(leftover, ignore_errors=True)
    part.mkdir(parents=True)
    checksums = _write_weights(policy, part)
    if canary_ids is not None:
        versions.write_canary(part, canary_ids, canary_logps(policy, canary_ids))
    for file in part.iterdir():
        durable.sync(file)
    durable.sync(part)
    os.replace(part, folder)
    durable.sync(shelf.folder)
    checksum = versions.write_manifest(
        folder, owner=shelf.owner, adapter=shelf.adapter, number=number, parent=parent,
        kind=policy.kind, step=step, checksums=checksums,
    )
    return Version(
        shelf.owner, shelf.adapter, number, parent, checksum, status, policy.kind, str(folder),
        note, time.time(),
    )


@faults.around("trainer.weights")
def _write_weights(policy: Policy, folder: Path) -> tensors.Checksums:
    """Write them; return the checksums of what is in memory, under the names in the files."""
    state = policy.state()
    if policy.peft is None:
        # one file, whatever the size
        given = {} if policy.whole is None else {"state_dict": state}
        policy.lm.save_pretrained(folder, max_shard_size="1000GB", **given)
        if policy.whole is not None:
            _name_dtype(folder / "config.json", policy.dtype)
        written = {name for file in folder.glob("*.safetensors")
                   for name in versions.tensor_shapes(file)}
        if not written <= set(state):  # a model whose files have other names than its modules
            return {}
        return _checksums({name: state[name] for name in written})
    durable.save_tensors(folder / ADAPTER, state)
    settings = policy.peft.peft_config["default"].to_dict()
    settings["inference_mode"] = True
    plain = json.loads(json.dumps(settings, default=_plain))
    durable.save_json(folder / "adapter_config.json", plain)
    return _checksums(state)


def _name_dtype(file: Path, dtype: torch.dtype) -> None:
    """Transformers writes that of the modules, which in shards is that of the optimiser's truth."""
    values = json.loads(file.read_text(encoding="utf-8"))
    durable.save_json(file, values | {"dtype": str(dtype).removeprefix("torch.")})


def _checksums(state: Mapping[str, Tensor]) -> tensors.Checksums:
    # as bytes: numpy knows no bfloat16
    return {name: tensors.checksum(
        t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        for name, t in state.items()}


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def canary_logps(policy: Policy, ids: np.ndarray) -> np.ndarray:
    """float32 [n, L-1]: log softmax of each next id of `ids` [n, L], temperature 1."""
    pairs = [(row[:1], row[1:]) for row in ids]
    return np.stack(score.logps(policy, pairs, max_tokens=ids.size))


@torch.no_grad()
def load(policy: Policy, folder: Path) -> None:
    """Put a version's weights into the policy; its ema starts again from them.

    VersionError: the version is incomplete, damaged or of another kind of training.
    """
    from safetensors.torch import load_file

    manifest = versions.check_version(folder)
    if manifest.kind != policy.kind:
        raise versions.VersionError(
            "the version is of another kind", found=manifest.kind, allowed=policy.kind
        )
    if policy.peft is None:
        stored = sight.auto_class(folder).from_pretrained(
            folder, dtype=policy.dtype, local_files_only=True).state_dict()
    else:
        stored = load_file(folder / ADAPTER, device=str(policy.device))
    if policy.whole is not None:
        policy.fill(stored)
        return
    if policy.peft is None:
        policy.lm.load_state_dict(stored)
    else:
        import peft

        peft.set_peft_model_state_dict(policy.peft, stored)
    policy.restart_ema()


@faults.around("trainer.prune")
def prune(
    shelf: Shelf, known: Sequence[Version], keep: int, current: Version
) -> tuple[Version, ...]:
    """Remove all weights but the newest `keep`, the first version's and those of `current`.

    Returns the versions that are still on the disk, by number.
    """
    ordered = sorted(known, key=lambda v: v.number)
    stays = {current.number, *(v.number for v in (*ordered[:1], *ordered[-keep:]))}
    kept = tuple(v for v in ordered if v.number in stays)
    names = {str(v.number) for v in kept}
    for folder in shelf.folder.iterdir() if shelf.folder.exists() else ():
        if folder.name not in names:
            shutil.rmtree(folder, ignore_errors=True)
    return kept
