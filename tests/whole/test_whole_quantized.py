"""QLoRA in the whole system: bitsandbytes' 4-bit base below the adapter, in trainer and worker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from system import System, until
from talk import people

pytestmark = pytest.mark.slow


@pytest.fixture
def quantized(whole_model: Path, tmp_path: Path, bits_path: str) -> Iterator[System]:
    made = System(tmp_path, whole_model, "lora.quantize=nf4", "worker.threads=1")
    made.extra = {"PYTHONPATH": bits_path}
    try:
        yield made.start()
    finally:
        made.stop()


def test_a_base_in_four_bits_learns_while_it_serves(quantized: System) -> None:
    with people(quantized, 4) as talkers:
        assert until(lambda: quantized.status()["served_version"] >= 3, 150, 1.0)
    assert not [f for person in talkers for f in person.failures]
    # the worker's log-probs of what it sampled are the trainer's: both hold the same 4 bits
    gaps = [m["mismatch/logp_abs_mean"] for m in quantized.metrics("mismatch/logp_abs_mean")]
    assert gaps and gaps[0] < 1e-3
    assert quantized.count("versions WHERE status = 'refused'") == 0
    assert [v for v in (quantized.run / "versions/default/default").iterdir()
            if (v / "adapter_model.safetensors").exists()]
