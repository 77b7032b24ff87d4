"""Imports go one way: records, errors <- config, sdk, kernels <- engine <- cli."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "claw/records.py": (),
    "claw/errors.py": (),
    "claw/config.py": ("claw.errors",),
    "claw/sdk": ("claw.sdk", "claw.records", "claw.errors", "claw.config"),
    "claw/kernels": ("claw.kernels",),
    "claw/engine": ("claw",),
    "claw/engine/actor": (
        "claw.records", "claw.errors", "claw.config", "claw.sdk", "claw.engine.actor",
        "claw.engine.wire", "claw.engine.port", "claw.engine.monitor", "claw.engine.process",
        "claw.engine.parent", "claw.engine.people", "claw.engine.pictures", "claw.engine.faults",
        "claw.engine.pulse", "claw.engine.cipher",
    ),
    "claw/engine/runner": (
        "claw.records", "claw.errors", "claw.config", "claw.sdk", "claw.engine.runner",
        "claw.engine.wire", "claw.engine.port", "claw.engine.process", "claw.engine.parent",
        "claw.engine.people", "claw.engine.pulse",
    ),
    "claw/engine/worker": (
        "claw.records", "claw.errors", "claw.config", "claw.engine.worker", "claw.engine.wire",
        "claw.engine.versions", "claw.engine.tensors", "claw.engine.buckets", "claw.engine.process",
        "claw.engine.parent", "claw.engine.scratch", "claw.kernels", "claw.engine.pictures",
        "claw.engine.sight", "claw.engine.faults", "claw.engine.quantize", "claw.engine.pulse",
        "claw.engine.devices",
    ),
    "plugins": ("claw.sdk",),
}
NO_TORCH = ("claw/records.py", "claw/errors.py", "claw/config.py", "claw/sdk", "claw/engine/actor",
            "claw/engine/runner", "plugins")
HEAVY = {"torch", "transformers", "sglang", "peft"}


def sources() -> list[Path]:
    files = [*ROOT.glob("claw/**/*.py"), *ROOT.glob("plugins/*/claw_env_*/**/*.py")]
    return sorted(f for f in files if "shipped" not in f.parts)  # the files of tasks are data


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {_taken(node.module or "", alias.name) for alias in node.names}
    return names


def _taken(module: str, name: str) -> str:
    """`from claw import config` takes claw.config; `from claw.config import load` claw.config."""
    inner = ROOT / module.replace(".", "/") / name
    return f"{module}.{name}" if inner.is_dir() or inner.with_suffix(".py").exists() else module


def rule_of(path: Path) -> tuple[str, tuple[str, ...]] | None:
    name = path.relative_to(ROOT).as_posix()
    fitting = [r for r in MAY_IMPORT if name == r or name.startswith(r + "/")]
    return (max(fitting, key=len), MAY_IMPORT[max(fitting, key=len)]) if fitting else None


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_file_imports_only_from_below(path: Path) -> None:
    rule = rule_of(path)
    if rule is None:  # claw/__init__.py, cli.py and __main__.py stand above all
        return
    own = {n for n in imports(path) if n == "claw" or n.startswith("claw.")}
    wrong = {n for n in own if not any(n == a or n.startswith(a + ".") for a in rule[1])}
    assert not wrong, f"{path.name} imports {sorted(wrong)}; {rule[0]} may import {rule[1]}"


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_actor_side_and_the_sdk_name_no_torch(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    if any(name == p or name.startswith(p + "/") for p in NO_TORCH):
        found = {n.split(".")[0] for n in imports(path)} & HEAVY
        assert not found, f"{name} imports {sorted(found)}"


@pytest.mark.parametrize("module", [
    "claw.sdk", "claw.sdk.registry", "claw.cli", "claw.engine.wire", "claw.engine.actor.actor",
    "claw.engine.runner.host", "claw.engine.launch",
])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted({HEAVY | {'docker'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
