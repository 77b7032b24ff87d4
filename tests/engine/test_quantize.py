"""A base in 4 bits: what is asked for, and what is refused."""

from pathlib import Path

import pytest
import torch

from claw import config as settings
from claw.engine import quantize
from claw.engine.report import play
from claw.errors import UsageError


def test_without_quantize_nothing_is_asked_of_transformers() -> None:
    assert quantize.loading("none", torch.device("cpu"), torch.float32) == {}


def test_a_missing_bitsandbytes_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="bitsandbytes") as caught:
        quantize.loading("nf4", torch.device("cpu"), torch.float32)
    assert "pip install 'claw-rl[qlora]'" in str(caught.value)


def test_a_run_that_needs_it_does_not_start_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="bitsandbytes"):
        play([f"runs='{tmp_path}'"], plugin="personal", model="", resume=None, preset="8gb")
    assert not list(tmp_path.iterdir())


def test_a_device_that_it_does_not_run_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "find_spec", lambda name: object())
    with pytest.raises(UsageError, match="cannot run on this device"):
        quantize.loading("nf4", torch.device("mps"), torch.float32)


def test_a_layer_of_four_bits_computes_alike_with_gradients_and_without() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.support_avx512bf16_for_cpu = True  # as bitsandbytes' layers have it on such a CPU
    quantize.settle(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(layer)))
    assert layer.support_avx512bf16_for_cpu is False


@pytest.mark.parametrize("sections, words", [
    ({"lora": {"rank": 0, "quantize": "nf4"}}, "needs an adapter"),
    ({"lora": {"quantize": "nf4"}, "train": {"ranks": 2}}, "cannot be split"),
    ({"lora": {"quantize": "nf4"}, "worker": {"kind": "sglang"}}, "no effect on worker.kind"),
])
def test_four_bits_that_cannot_be_honoured_are_refused(sections: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings.parse(sections)
