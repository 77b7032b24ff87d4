"""Which code works on a chunk's logits: chunked torch, or Triton beside torch's matrix products.

Chosen once for each kind of device: Triton on a GPU, torch elsewhere. A GPU without a Triton that
works is an error, not a slower run that nobody asked for. CLAW_KERNELS or `use` override it.
"""

import importlib.util
import os
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from claw.kernels.check import refuse

NAMES = ("torch", "triton")
VARIABLE = "CLAW_KERNELS"
TRITON = ">=3.6,<4"
"""the versions that work"""

_used: list[str] = []


@contextmanager
def use(name: str):
    """Take this backend inside the `with`, whatever the device and the environment say."""
    if name not in NAMES:
        refuse("backend", repr(name), " or ".join(map(repr, NAMES)))
    _used.append(name)
    try:
        yield
    finally:
        _used.pop()


def choose(device_type: str) -> str:
    """The backend for tensors on this type of device ("cuda" also means ROCm).

    RuntimeError: Triton is wanted and cannot run there. ValueError: CLAW_KERNELS is not a backend.
    """
    if _used:
        return _checked(_used[-1], device_type, "use()")
    return _chosen(device_type)


@cache
def _chosen(device_type: str) -> str:
    asked = os.environ.get(VARIABLE, "")
    if asked and asked not in NAMES:
        refuse(VARIABLE, repr(asked), " or ".join(map(repr, NAMES)))
    if asked:
        return _checked(asked, device_type, VARIABLE)
    return _checked("triton" if device_type == "cuda" else "torch", device_type, "a GPU")


def _checked(name: str, device_type: str, who: str) -> str:
    if name == "triton" and (fault := _fault(device_type)):
        raise RuntimeError(f"kernels on {device_type}: {who} asks for triton; {fault}")
    return name


def _fault(device_type: str) -> str:
    """Why Triton cannot run on the device, with what to do; empty if it can."""
    instead = f"or set {VARIABLE}=torch, which is slower and needs more memory"
    install = f"install 'triton{TRITON}', {instead}"
    if importlib.util.find_spec("triton") is None:
        return f"found: not installed; {install}"
    if device_type != "cuda" and not interpreted():
        return f"found: no GPU; set {VARIABLE}=torch, or TRITON_INTERPRET=1 to run it very slowly"
    import triton

    found = tuple(int(part) for part in triton.__version__.split(".")[:2])
    return "" if (3, 6) <= found < (4, 0) else f"found: {triton.__version__}; {install}"


def interpreted() -> bool:
    """Triton's kernels run in its interpreter, on any device and for tests only."""
    return os.environ.get("TRITON_INTERPRET", "0") in ("1", "true", "on")


def explain(device_type: str) -> str:
    """One line for a report: the backend and why, or what stands against it."""
    try:
        name = choose(device_type)
    except (RuntimeError, ValueError) as error:
        return f"none: {error}"
    if os.environ.get(VARIABLE):
        return f"{name}: {VARIABLE} says so"
    if name == "torch":
        return f"torch, in chunks: no GPU that triton supports ({device_type})"
    return f"triton {_version('triton')}: a GPU"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
