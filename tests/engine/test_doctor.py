"""What `claw doctor` says of the code that runs here."""

import pytest

from claw.engine import doctor
from claw.kernels import backend


def test_it_names_the_backend_and_the_attention_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CLAW_KERNELS", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    backend._chosen.cache_clear()
    lines = dict(line.split(maxsplit=1) for line in doctor.report())
    assert lines["kernels"] == "torch, in chunks: no GPU that triton supports (cpu)"
    assert lines["attention"] == "sdpa: flash-attn needs a GPU"
    with backend.use("triton"):
        lines = dict(line.split(maxsplit=1) for line in doctor.report())
    assert lines["kernels"].startswith("none: ") and "CLAW_KERNELS=torch" in lines["kernels"]
