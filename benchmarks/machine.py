"""What a benchmark says of the machine, and the memory that something takes beyond what was there.

Owns: the line above a table, peaks of a process and of a GPU, processor time.
Does not own: clocks, tables.
"""

import ctypes
import os
import platform
import resource
import sys
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def describe() -> str:
    """Return processor or GPU, threads, versions: the line that numbers are read with."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else _processor()
    return (f"{where}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
            f"Python {platform.python_version()}, torch {torch.__version__}")  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has taken so far, in seconds (Linux)."""
    # the command's name, in brackets, may hold anything
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """Bytes at the highest point since this object was made, above what was there then.

    On Linux the process's own high-water mark is set back first; elsewhere it never falls, so what
    was freed before hides what came after.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
            return
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # what malloc keeps for itself is not in use
            CLEAR.write_text("5")
        self._before = self._resident("VmRSS")

    def beyond(self) -> int:
        if self._device == "cuda":
            return torch.cuda.max_memory_allocated() - self._before
        return max(self._resident("VmHWM") - self._before, 0)

    def _resident(self, field: str) -> int:
        if sys.platform == "linux":
            lines = STATUS.read_text(encoding="ascii").splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024
        scale = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
