"""Write a version where other programs can load it."""

import shutil
from pathlib import Path

from claw.config import RunConfig
from claw.engine.actor import exporting
from claw.engine.actor.why import versions
from claw.engine.models import resolve
from claw.engine.rundir import RunDir
from claw.errors import UsageError
from claw.records import DEFAULT_OWNER, Version, VersionStatus


def write(
    run: Path, number: int, folder: Path, *, merged: bool = False, owner: str = DEFAULT_OWNER
) -> str:
    """Write version `number` of an owner (-1: the newest good one) into `folder`; say so.

    A LoRA version becomes a peft folder, or with `merged` a whole model; a full version is
    always a whole model with its tokenizer.
    """
    exporting.check_empty(folder)
    _, config = RunDir.open(run)
    version = _pick([v for v in versions(run) if v.owner == owner], number)
    if version.kind == "lora" and not merged:
        exporting.copy_adapter(version, folder)
        return f"v{version.number}: peft adapter for {config.model} in {folder}"
    _whole_model(config, version, folder)
    return f"v{version.number}: whole model in {folder}"


def _pick(known: list[Version], number: int) -> Version:
    here = [v for v in known if v.path and Path(v.path).is_dir()]
    good = [v for v in here if v.status == VersionStatus.PUBLISHED]
    # one that was rolled back may still be wanted, by its number
    asked = good[-1:] if number < 0 else [
        v for v in here if v.number == number and v.status != VersionStatus.REFUSED
    ]
    if asked:
        return asked[0]
    raise UsageError(
        "no such version on disk", found=f"v{number}" if number >= 0 else "no version yet",
        allowed=", ".join(f"v{v.number}" for v in good) or "none yet; train first",
    )


def _whole_model(config: RunConfig, version: Version, folder: Path) -> None:
    model_dir = resolve(config.model)
    ignore = shutil.ignore_patterns("*.safetensors", "*.index.json", "claw-model.json")
    shutil.copytree(model_dir, folder, dirs_exist_ok=True, ignore=ignore)
    if version.kind == "full":
        shutil.copy(Path(version.path) / "model.safetensors", folder)
        return
    import torch
    from peft import PeftModel

    from claw.engine.sight import auto_class

    base = auto_class(model_dir).from_pretrained(model_dir, dtype=torch.float32)
    PeftModel.from_pretrained(base, version.path).merge_and_unload().save_pretrained(folder)
