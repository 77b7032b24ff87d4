"""The Triton kernels compile for GPUs that are not here, within stated budgets."""

from pathlib import Path

import pytest

from benchmarks import compiled

pytestmark = pytest.mark.usefixtures("needs_triton")


@pytest.mark.parametrize("target", compiled.TARGETS)
def test_every_kernel_compiles_for_it_within_its_budget(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # empty: the time is that of a first run
    for kernel in compiled.kernels():
        cost = compiled.compile_for(kernel, target)
        assert cost.spilled == 0, (kernel.name, cost)
        assert 0 < cost.registers <= kernel.most_registers, (kernel.name, cost)
        assert 0 < cost.size < 200_000, (kernel.name, cost)
        assert cost.seconds < 10, (kernel.name, cost)


def test_a_kernel_that_holds_too_much_is_seen_to_spill(tmp_path, monkeypatch) -> None:
    """The gates measure: a turn of 32,768 columns does not fit the registers of a program."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    read = compiled.kernels()[0]
    wide = compiled.Kernel(
        **{**vars(read), "constants": read.constants | {"GROUPS": 256}, "warps": 4}
    )
    cost = compiled.compile_for(wide, "sm_90")
    assert cost.spilled > 0


def test_the_budgets_are_of_every_kernel_there_is() -> None:
    folder = Path(compiled.__file__).parents[1] / "claw" / "kernels"
    launched = {kernel.function for kernel in compiled.kernels()}
    for path in folder.glob("triton_*.py"):
        for part in path.read_text(encoding="utf-8").split("@triton.jit\ndef ")[1:]:
            name = part.split("(")[0]
            assert name in launched or name.startswith("_"), f"{path.name}: {name}"
