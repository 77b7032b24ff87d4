"""Which backend works where, and what stands in its way."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from claw.engine.trainer import attention
from claw.kernels import backend, hybrid_loss, score
from claw.kernels.chunk import rows_of


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch):
    """No choice made before, none in the environment, and a triton that works."""
    monkeypatch.delenv("CLAW_KERNELS", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    install(monkeypatch, "3.7.1")
    backend._chosen.cache_clear()
    yield
    backend._chosen.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    found = None
    if version is not None:
        found = ModuleType("triton")
        found.__version__, found.__spec__ = version, ModuleSpec("triton", None)
    monkeypatch.setitem(sys.modules, "triton", found)


def test_a_gpu_gets_triton_and_a_cpu_torch() -> None:
    assert backend.choose("cuda") == "triton"
    assert backend.choose("cpu") == backend.choose("mps") == "torch"
    assert "a GPU" in backend.explain("cuda")
    assert "no GPU" in backend.explain("cpu")


@pytest.mark.parametrize(
    ("version", "found"), [(None, "not installed"), ("3.5.1", "3.5.1"), ("4.0.0", "4.0.0")]
)
def test_a_gpu_without_a_triton_that_works_is_an_error(monkeypatch, version, found) -> None:
    install(monkeypatch, version)
    with pytest.raises(RuntimeError, match=f"found: {found}.*'triton>=3.6,<4'.*set CLAW"):
        backend.choose("cuda")
    assert backend.explain("cuda").startswith("none: ")
    assert backend.choose("cpu") == "torch"


def test_a_gpu_runs_torch_only_when_asked_to(monkeypatch) -> None:
    install(monkeypatch, None)
    monkeypatch.setenv("CLAW_KERNELS", "torch")
    assert backend.choose("cuda") == "torch"
    assert "CLAW_KERNELS says so" in backend.explain("cuda")


def test_a_cpu_runs_triton_only_in_its_interpreter(monkeypatch) -> None:
    monkeypatch.setenv("CLAW_KERNELS", "triton")
    with pytest.raises(RuntimeError, match="found: no GPU; set CLAW_KERNELS=torch"):
        backend.choose("cpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert backend.choose("cpu") == "triton"


def test_an_unknown_backend_is_refused_by_name(monkeypatch) -> None:
    monkeypatch.setenv("CLAW_KERNELS", "cuda")
    with pytest.raises(
        ValueError, match="CLAW_KERNELS: found 'cuda'; allowed: 'torch' or 'triton'"
    ):
        backend.choose("cpu")
    with pytest.raises(ValueError, match="backend: found 'jax'"), backend.use("jax"):
        pass


def test_it_is_chosen_once_and_use_overrides_it_for_a_while(monkeypatch) -> None:
    assert backend.choose("cuda") == "triton"
    monkeypatch.setenv("CLAW_KERNELS", "torch")
    assert backend.choose("cuda") == "triton"
    with backend.use("torch"):
        assert backend.choose("cuda") == "torch"
    assert backend.choose("cuda") == "triton"


def test_the_public_functions_take_the_chosen_backend() -> None:
    one, ids = torch.ones(1), torch.zeros(1, dtype=torch.int64)
    args = {"ids": ids, "old_logp": one, "advantage": one, "rl_weight": one}
    with backend.use("triton"):
        with pytest.raises(RuntimeError, match=r"use\(\) asks for triton; found: no GPU"):
            score(torch.ones(1, 2), torch.ones(3, 2))
        with pytest.raises(RuntimeError, match=r"use\(\) asks for triton; found: no GPU"):
            hybrid_loss(torch.ones(1, 2), torch.ones(3, 2), **args)


def gpu_rows(vocab: int, dtype: torch.dtype) -> int:
    """The default chunk on a GPU, from all that is asked of hidden."""

    class Hidden:
        device = torch.device("cuda")

        def element_size(self) -> int:
            return dtype.itemsize

    return rows_of(None, Hidden(), vocab)


def test_a_chunk_on_a_gpu_has_2048_to_4096_rows_and_fits_a_budget() -> None:
    assert gpu_rows(151_936, torch.bfloat16) == 4096
    assert gpu_rows(32_000, torch.bfloat16) == 4096
    assert gpu_rows(1_000_000, torch.float32) == 2048
    between = gpu_rows(248_320, torch.bfloat16)
    assert 2048 < between < 4096 and between % 128 == 0
    with backend.use("torch"):
        assert gpu_rows(151_936, torch.bfloat16) == 2048


def test_a_chunk_on_a_cpu_has_256_rows_and_an_asked_size_stays() -> None:
    hidden = torch.ones(1, 2)
    assert rows_of(None, hidden, 151_936) == 256
    assert rows_of(3, hidden, 151_936) == 3


@pytest.mark.parametrize(
    ("dtype", "has_flash", "chosen", "why"),
    [
        (torch.bfloat16, True, "flash_attention_2", "installed"),
        (torch.float32, True, "sdpa", "no torch.float32"),
        (torch.bfloat16, False, "sdpa", "not installed"),
    ],
)
def test_attention_is_flash_where_it_can_run(monkeypatch, dtype, has_flash, chosen, why) -> None:
    module = ModuleType("flash_attn")
    module.__spec__ = ModuleSpec("flash_attn", None)
    monkeypatch.setitem(sys.modules, "flash_attn", module if has_flash else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    name, reason = attention.choose(torch.device("cuda"), dtype)
    assert name == chosen and why in reason
    assert attention.choose(torch.device("cpu"), dtype)[0] == "sdpa"


def test_attention_on_an_old_gpu_is_not_flash(monkeypatch) -> None:
    module = ModuleType("flash_attn")
    module.__spec__ = ModuleSpec("flash_attn", None)
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert attention.choose(torch.device("cuda"), torch.float16) == (
        "sdpa",
        "flash-attn needs compute capability 8.0",
    )
