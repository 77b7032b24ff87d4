"""`python -m benchmarks.kernels`: the loss at the head, claw beside what else there is.

    python -m benchmarks.kernels                    the sizes for this machine, all variants
    python -m benchmarks.kernels --smoke            seconds, to see that everything runs
    python -m benchmarks.kernels --tokens 4096 --hidden 1024 --vocab 32000 --task hybrid

Every variant runs in a process of its own. It is compared with float64 on the first tokens, and
only if it is right its time (median) and its peak memory beyond the inputs are measured. On a GPU
the rates of a copy and of the bare product are measured in the same run, for comparison.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from benchmarks import heads
from benchmarks.machine import PeakMemory, describe

CHECKED_TOKENS = 64
ALLOWED = 1e-4
"""error of a gradient or log-prob; or twice that of full logits where that is more: in bfloat16,
and of confident tokens, whose p - 1 eager torch makes of rounded numbers"""
DTYPES = ("float32", "bfloat16")
LEAST, BUDGET_S = 2, 10.0
"""so many passes at least, and no further one after so many seconds of them"""
LONGEST_S = 100.0
"""a pass that would take longer, by the pace of the check, is left out"""


@dataclass(frozen=True)
class Size:
    tokens: int
    hidden: int
    vocab: int
    k: int = 20
    dtype: str = "float32"
    peaked: bool = True
    device: str = "cpu"
    repeat: int = 5
    """at most so often; passes of many seconds only twice"""

    def __str__(self) -> str:
        kind = "peaked" if self.peaked else "Gaussian"
        return f"T {self.tokens}, H {self.hidden}, V {self.vocab}, k {self.k}, {self.dtype}, {kind}"

    def case(self) -> heads.Case:
        return heads.make(self.tokens, self.hidden, self.vocab, self.k,
                          getattr(torch, self.dtype), self.device, self.peaked)  # fmt: skip


CPU = [Size(t, 1024, v, dtype=d) for t in (512, 4096) for v in (32_000, 151_936)
       for d in ("float32", "bfloat16")]  # fmt: skip
GPU = [Size(8192, h, 151_936, dtype="bfloat16", device="cuda", repeat=10) for h in (2560, 4096)]
SMOKE = [Size(32, 32, 2000, k=4, repeat=2)]


def sizes(options: argparse.Namespace) -> list[Size]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.smoke:
        return [replace(size, device=device) for size in SMOKE]
    if options.tokens is None:
        return GPU if device == "cuda" else CPU
    return [Size(options.tokens, options.hidden, options.vocab, options.k, options.dtype,
                 not options.gaussian, device, options.repeat)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--task", choices=heads.EVERY, action="append")
    parser.add_argument("--variant", choices=heads.VARIANTS, action="append")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--gaussian", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(_part(**json.loads(options.part))))
        return
    print(describe())
    for size in sizes(options):
        if size.device == "cuda":
            _print_rates(size)
        _compare(size, options.task or list(heads.EVERY), options.variant or list(heads.VARIANTS))


def _compare(size: Size, tasks: list[str], names: list[str]) -> None:
    """Run everything of a size, then print a table for each task."""
    rows: dict[str, list[str]] = {task: [] for task in tasks}
    for name in names:
        reasons = {task: heads.why_not(heads.VARIANTS[name], task, size.device) for task in tasks}
        for task, reason in reasons.items():
            if reason:
                rows[task].append(f"{name} | left out: {reason} | |")
        for task, row in _rows(name, [t for t in tasks if not reasons[t]], size).items():
            rows[task].append(f"{name} | {row}")
    for task, lines in rows.items():
        print(f"\n{task}: {size}\n\n| variant | time | peak beyond the inputs | error |")
        print("|---|---|---|---|", *(f"| {line} |" for line in lines), sep="\n", flush=True)


def _rows(name: str, tasks: list[str], size: Size) -> dict[str, str]:
    """One process on a GPU, for the sake of its start; on a CPU one for each task."""
    groups = [tasks] if size.device != "cpu" else [[task] for task in tasks]
    found: dict[str, Any] = {}
    for group in filter(None, groups):
        part = _in_process("both", name, group, size)
        found |= {task: part.get(task, part) for task in group}
    return {task: _row(found[task]) for task in tasks}


def _row(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"left out: {found['failed']} | |"
    error = ", ".join(f"{what} {value:.1e}" for what, value in found["errors"].items())
    if not found["right"]:
        return f"not timed, it is wrong | | {error}"
    return f"{found['seconds'] * 1e3:.1f} ms | {found['bytes'] / 1e6:.0f} MB | {error}"


def _print_rates(size: Size) -> None:
    found = _in_process("rates", "", [], size)
    if "failed" in found:
        sys.exit(f"the bare product failed: {found['failed']}")
    print(f"\n{size}: one bare product {found['product'] * 1e3:.1f} ms, copy of the logits "
          f"{found['copy'] * 1e3:.2f} ms, {found['bandwidth'] / 1e12:.2f} TB/s")  # fmt: skip


def _in_process(what: str, name: str, tasks: list[str], size: Size) -> dict[str, Any]:
    part = json.dumps({"what": what, "name": name, "tasks": tasks, "size": asdict(size)})
    done = subprocess.run([sys.executable, "-m", "benchmarks.kernels", "--part", part],
                          capture_output=True, text=True, timeout=900)  # fmt: skip
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"failed": lines[-1][:100].replace("|", "/")}
    return json.loads(done.stdout.splitlines()[-1])


def _part(what: str, name: str, tasks: list[str], size: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own finds: {task: what is known of it}, or the rates."""
    case = Size(**size).case()
    if what == "rates":
        return _rates(case)
    found: dict[str, Any] = {}
    for task in tasks:
        found[task] = _check(heads.VARIANTS[name], case, task)
        pace_s = found[task]["pass_s"] * size["tokens"] / CHECKED_TOKENS
        if found[task]["right"] and pace_s > LONGEST_S:
            found[task]["failed"] = f"a pass of about {pace_s:.0f} s"
        elif found[task]["right"]:
            found[task] |= _time(heads.VARIANTS[name], case, task, size)
    return found


def _check(variant: heads.Variant, case: heads.Case, task: str) -> dict[str, Any]:
    part = case.part(CHECKED_TOKENS)
    found, pass_s = heads.errors(variant, part, task)
    eager, _ = heads.errors(heads.VARIANTS["eager, full logits"], part, task)
    case.weight.grad = None
    bounds = {what: max(ALLOWED, 2 * eager.get(what, 0.0)) for what in found} | {"top": 0.0}
    right = all(value <= bounds[what] for what, value in found.items())
    return {"errors": found, "right": right, "pass_s": pass_s}


def _time(
    variant: heads.Variant, case: heads.Case, task: str, size: dict[str, Any]
) -> dict[str, Any]:
    def once() -> None:
        case.hidden.grad = case.weight.grad = None
        result = variant.run(case, task)
        if task != "score":
            result.backward()

    once()  # warm up: compile, pick algorithms, import
    case.hidden.grad = case.weight.grad = None
    return _measure(once, size["device"], size["repeat"])


def _measure(once: Callable[[], object], device: str, repeat: int) -> dict[str, float]:
    """Median seconds, and the peak of bytes above what was there before."""
    peak = PeakMemory(device)
    seconds: list[float] = []
    while len(seconds) < repeat and (len(seconds) < LEAST or sum(seconds) < BUDGET_S):
        seconds.append(_clock(once, device))
    return {"seconds": statistics.median(seconds), "bytes": peak.beyond()}


def _clock(once: Callable[[], object], device: str) -> float:
    if device == "cpu":
        started = time.perf_counter()
        once()
        return time.perf_counter() - started
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    once()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


@torch.no_grad()
def _rates(case: heads.Case) -> dict[str, float]:
    logits = case.hidden @ case.weight.t()
    other = torch.empty_like(logits)
    torch.mm(case.hidden, case.weight.t(), out=logits)  # warm up
    product = _measure(lambda: torch.mm(case.hidden, case.weight.t(), out=logits), "cuda", 10)
    copy = _measure(lambda: other.copy_(logits), "cuda", 10)
    size = 2 * logits.numel() * logits.element_size()
    return {"product": product["seconds"], "copy": copy["seconds"],
            "bandwidth": size / copy["seconds"]}  # fmt: skip


if __name__ == "__main__":
    main()
