"""`claw doctor`: what this machine has, in lines that can be pasted into a report."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from claw.engine import environment, models
from claw.sdk import registry

if TYPE_CHECKING:
    import torch

PACKAGES = ("claw-rl", "torch", "triton", "flash-attn", "transformers", "peft", "safetensors",
            "pyzmq", "msgpack", "pluggy", "starlette", "docker", "openai")


def report(sglang_python: str = "") -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"python        {sys.version.split()[0]} on {platform.system()} {platform.machine()}"
    yield f"cores         {os.cpu_count()}, memory {_memory_gb():.1f} GB free"
    yield f"disk          {shutil.disk_usage('.').free / 1e9:.0f} GB free here"
    for name in PACKAGES:
        yield f"{name:<13} {_version(name)}"
    yield from _devices()
    yield from environment.lines(sglang_python)
    for name, model in models.KNOWN.items():
        is_here = (models.cache_dir() / name / models.DONE).exists()
        where = "in the cache" if is_here else "not fetched yet"
        yield f"model         {name}: {where}; {model.note}"
    yield from _sandboxes()
    for found in registry.installed():
        yield f"plugin        {found.name} ({found.distribution} {found.version})"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _memory_gb() -> float:
    """What programs could still get: on Linux more than what lies idle, as caches give way."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1e6
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") / 1e9


def _devices() -> Iterator[str]:
    if not find_spec("torch"):
        yield "device        none: torch is not installed"
        return
    import torch

    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            p = torch.cuda.get_device_properties(i)
            yield f"device        cuda:{i} {p.name}, {p.total_memory / 1e9:.0f} GB"
    else:
        yield "device        cpu (no GPU that torch can use)"
    yield from _code(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def _sandboxes() -> Iterator[str]:
    """The container engine and the base image, or why there are none."""
    from claw.sdk.sandbox import SandboxError, engine, spec

    try:
        yield f"sandboxes     {engine.version()}"
        with engine.speaking("looking for the base image", spec.BASE_IMAGE):
            engine.api().inspect_image(spec.BASE_IMAGE)
        yield f"image         {spec.BASE_IMAGE}"
    except SandboxError as error:
        yield f"sandboxes     none: {error.what}; {error.do or error.found}"
    yield f"bubblewrap    {shutil.which('bwrap') or 'not installed'}"


def _code(device: "torch.device") -> Iterator[str]:
    """What runs attention and the training loss there, and why."""
    import torch

    from claw.engine.trainer import attention
    from claw.kernels import backend

    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    name, why = attention.choose(device, dtype)
    yield f"attention     {name}: {why}"
    yield f"kernels       {backend.explain(device.type)}"
