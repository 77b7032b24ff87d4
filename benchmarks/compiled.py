"""`python -m benchmarks.compiled`: registers, spills and size of the kernels, for GPUs not here.

    python -m benchmarks.compiled              every kernel for every target, as a table
    python -m benchmarks.compiled sm_90        for one

Owns: the signatures that the wrappers launch at a real size, the budgets, reading what came out.
Does not own: whether the numbers are right (tests/kernels), how fast they are made (kernels.py).
Needs triton and no GPU; triton's own tools read the machine code.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCAB = 151_936
TARGETS = {
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "sm_120": ("cuda", 120, 32),
    "gfx942": ("hip", "gfx942", 64),
}


@dataclass(frozen=True)
class Kernel:
    """A launch at a real size: arguments in the kernel's order, and what it may cost."""

    name: str
    module: str
    function: str
    signature: dict[str, str]
    """types; what starts with * or is a stride is divisible by 16, as the wrappers make it"""
    constants: dict[str, Any]
    warps: int
    most_registers: int
    """of a thread on NVIDIA; 65,536 / (32 * warps * registers) programs share a processor"""


@dataclass(frozen=True)
class Cost:
    registers: int
    spilled: int
    """bytes of stack on NVIDIA, registers on AMD"""
    shared: int
    """bytes"""
    size: int
    """bytes of machine code with its container"""
    seconds: float = field(compare=False)
    """to compile it for the first time"""


def kernels() -> list[Kernel]:
    """What a training and a scoring pass launch in bfloat16, with and without their options."""
    groups = 1187  # of 128 columns
    read = {
        "X": "*bf16", "INV_TAU": "*fp32", "IDS": "*i64", "PEAK": "*fp32", "SUM": "*fp32",
        "DOT": "*fp32", "PICKED": "*fp32", "MAXIMA": "*fp32", "stride_x": "i32", "stride_m": "i32",
    }  # fmt: skip
    top = {
        "X": "*bf16", "MAXIMA": "*fp32", "TOP": "*fp32", "TOP_IDS": "*i64",
        "stride_x": "i32", "stride_m": "i32",
    }  # fmt: skip
    dense = {
        "X": "*bf16", "INV_TAU": "*fp32", "PEAK": "*fp32", "OFFSET": "*fp32", "BASE": "*fp32",
        "SLOPE": "*fp32", "stride_x": "i32",
    }  # fmt: skip
    at_ids = {
        "X": "*bf16", "IDS": "*i64", "GRAD": "*fp32", "LOGP": "*fp32", "BASE": "*fp32",
        "SLOPE": "*fp32", "stride_x": "i32",
    }  # fmt: skip
    shared = {
        "STUDENT": "*i64", "TEACHER": "*i64", "MASK": "*i8", "COUNTS": "*i64", "BEST": "*i64",
        "T": "i32",
    }  # fmt: skip

    def reading(ids: int, with_maxima: bool) -> dict[str, Any]:
        return {"V": VOCAB, "J": ids, "JP": 32, "WITH_MAXIMA": with_maxima, "GROUP": 128,
                "GROUPS": 32}  # fmt: skip

    def selecting(k: int, slots: int) -> dict[str, Any]:
        return {"V": VOCAB, "K": k, "CHOSEN": min(k, groups), "SLOTS": slots, "GROUP": 128,
                "GROUPS": 2048}  # fmt: skip

    where = "claw.kernels.triton_"
    return [
        Kernel("read", where + "read", "read_rows", read, reading(21, False), 8, 64),
        Kernel("read + maxima", where + "read", "read_rows", read, reading(21, True), 8, 64),
        Kernel("top 4", where + "read", "top_of_groups", top, selecting(4, 4), 8, 64),
        Kernel("top 20", where + "read", "top_of_groups", top, selecting(20, 32), 8, 64),
        Kernel("top 50", where + "read", "top_of_groups", top, selecting(50, 64), 8, 128),
        Kernel("gradient", where + "gradient", "dense_gradient", dense,
               {"V": VOCAB, "WITH_SLOPE": False, "BLOCK": 4096}, 8, 64),
        Kernel("gradient + entropy", where + "gradient", "dense_gradient", dense,
               {"V": VOCAB, "WITH_SLOPE": True, "BLOCK": 4096}, 8, 64),
        Kernel("gradient at ids", where + "gradient", "gradient_at_ids", at_ids,
               {"J": 21, "JP": 32, "WITH_SLOPE": True}, 1, 96),
        Kernel("overlap", where + "overlap", "count_shared", shared,
               {"N": 3, "K": 20, "KP": 32, "TOKENS": 16}, 4, 64),
    ]  # fmt: skip


def compile_for(kernel: Kernel, target: str) -> Cost:
    """Compile in this process into the current cache; it must be empty for an honest time."""
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from claw.kernels.triton_launch import options

    function = getattr(importlib.import_module(kernel.module), kernel.function)
    signature = kernel.signature | dict.fromkeys(kernel.constants, "constexpr")
    # Without these every load is of one number and the figures are of code that never runs.
    even = [i for i, n in enumerate(signature) if signature[n][0] == "*" or n.startswith("stride")]
    source = ASTSource(
        fn=function, signature=signature, constexprs=kernel.constants,
        attrs={(i,): [["tt.divisibility", 16]] for i in even},
    )  # fmt: skip
    started = time.perf_counter()
    built = triton.compile(
        source, target=GPUTarget(*TARGETS[target]), options=options(kernel.warps)
    )
    seconds = time.perf_counter() - started
    if TARGETS[target][0] == "hip":
        registers, spilled = _amd(built.asm["amdgcn"])
        return Cost(registers, spilled, built.metadata.shared, len(built.asm["hsaco"]), seconds)
    registers, spilled = _nvidia(built.asm["cubin"])
    return Cost(registers, spilled, built.metadata.shared, len(built.asm["cubin"]), seconds)


def _amd(text: str) -> tuple[int, int]:
    def number(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", text).group(1))  # type: ignore[union-attr]

    return number("vgpr_count"), number("vgpr_spill_count") + number("sgpr_spill_count")


def _nvidia(cubin: bytes) -> tuple[int, int]:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    found = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout)
    if found is None:
        raise ValueError(f"cuobjdump: found {done.stdout!r}; allowed: a line with REG and STACK")
    return int(found.group(1)), int(found.group(2))


def table(targets: list[str]) -> str:
    """Markdown: kernels down, targets across; registers / spills / shared bytes / kB / seconds."""
    import triton

    lines = [
        f"triton {triton.__version__}, V {VOCAB:,}, bfloat16: registers / spills / shared bytes / "
        "kB of code / seconds to compile",
        "",
        "| kernel | " + " | ".join(targets) + " |",
        "|---" * (len(targets) + 1) + "|",
    ]
    for kernel in kernels():
        costs = [compile_for(kernel, target) for target in targets]
        cells = [
            f"{c.registers} / {c.spilled} / {c.shared} / {c.size / 1e3:.0f} / {c.seconds:.1f}"
            for c in costs
        ]
        lines.append(f"| {kernel.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    targets = parser.parse_args().targets or list(TARGETS)
    if unknown := [name for name in targets if name not in TARGETS]:
        sys.exit(f"target: found {', '.join(unknown)}; allowed: {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        print(table(targets))


if __name__ == "__main__":
    main()
