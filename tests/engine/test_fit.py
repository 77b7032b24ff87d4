"""What a model is expected to need, against real tensors and the files of real models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from claw import config as settings
from claw.cli import app
from claw.engine import fit
from claw.errors import UsageError

TOKENS = 64


def parts(folder: Path, **sections: Any) -> dict[tuple[str, str], float]:
    values: dict[str, Any] = {"train": {"micro_tokens": TOKENS, "device": "cpu"},
                              "worker": {"device": "cpu"}}
    for name, section in sections.items():
        values[name] = values.get(name, {}) | section
    return {(p.process, p.what): p.num_bytes
            for p in fit.estimate(str(folder), settings.parse(values))}


@pytest.mark.parametrize("name", ["tiny_llama_dir", "tiny_qwen3_dir"])
def test_the_weights_are_as_large_as_their_file(
    request: pytest.FixtureRequest, name: str
) -> None:
    folder: Path = request.getfixturevalue(name)
    size = (folder / "model.safetensors").stat().st_size
    header = int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little") + 8
    found = parts(folder)
    assert found["trainer", "weights"] == found["worker", "weights"] == size - header


def test_an_adapter_costs_its_two_matrices_of_each_layer_16_bytes_a_weight(
    tiny_llama_dir: Path,
) -> None:
    found = parts(tiny_llama_dir, lora={"rank": 4, "targets": ("q_proj",)})
    # 2 layers of 32 x 32: A is 4 x 32, B is 32 x 4
    assert found["trainer", "adapter and its optimiser"] == 2 * (4 * 32 + 32 * 4) * 16


def test_full_training_in_bfloat16_costs_float32_masters_gradients_and_moments(
    tiny_llama_dir: Path,
) -> None:
    plain = parts(tiny_llama_dir, lora={"rank": 0})
    weights = plain["trainer", "weights"] / 4
    assert plain["trainer", "optimiser and gradients"] == 12 * weights
    half = parts(tiny_llama_dir, lora={"rank": 0}, train={"dtype": "bfloat16"})
    assert half["trainer", "weights"] == 2 * weights
    assert half["trainer", "optimiser and gradients"] == 16 * weights
    assert ("trainer", "first weights, for the loss") in parts(
        tiny_llama_dir, lora={"rank": 0}, loss={"teacher": "base"})
    assert ("trainer", "first weights, for the loss") not in plain


def test_activations_are_what_a_real_forward_pass_keeps(tiny_llama_dir: Path) -> None:
    from transformers import AutoModelForCausalLM

    lm = AutoModelForCausalLM.from_pretrained(tiny_llama_dir)
    weights = {p.untyped_storage().data_ptr() for p in lm.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.arange(TOKENS)[None] % 200
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        out = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    real = sum(t.untyped_storage().nbytes() for t in kept.values())
    assert out.requires_grad
    found = parts(tiny_llama_dir, lora={"rank": 0})["trainer", "activations"]
    assert found == pytest.approx(real, rel=0.05)


def test_checkpointing_keeps_one_state_per_layer_and_the_activations_of_one(
    tiny_llama_dir: Path,
) -> None:
    whole = parts(tiny_llama_dir)["trainer", "activations"]
    found = parts(tiny_llama_dir, train={"gradient_checkpointing": True})
    assert found["trainer", "activations, checkpointed"] == 2 * TOKENS * 32 * 4 + whole / 2


def test_four_bits_are_counted_for_linear_layers_alone(tiny_qwen3_dir: Path) -> None:
    found = parts(tiny_qwen3_dir, lora={"quantize": "nf4"})["trainer", "weights"]
    from safetensors.torch import load_file

    tensors = load_file(tiny_qwen3_dir / "model.safetensors")
    small = sum(t.numel() for n, t in tensors.items() if "_proj" in n)
    others = sum(t.numel() * 4 for n, t in tensors.items() if "_proj" not in n)
    assert others > 0
    assert found == pytest.approx(others + small * 0.5158691, rel=1e-6)


def test_keys_and_values_grow_with_slots_and_context(tiny_llama_dir: Path) -> None:
    def cache(slots: int, context: int) -> float:
        found = parts(tiny_llama_dir, worker={"slots": slots, "context": context},
                      rollout={"max_tokens": 8})
        [size] = [n for (_, what), n in found.items() if what.startswith("keys and values")]
        return size

    # keys and values of 2 layers, 2 heads of 8, float32; one column more for the padding
    assert cache(4, 64) == 4 * 65 * 2 * 2 * 2 * 8 * 4
    assert cache(8, 64) == 2 * cache(4, 64)


def test_the_table_has_a_line_for_each_card_and_says_which_fit(tiny_llama_dir: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--fit", str(tiny_llama_dir)])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if "gb " in line and "│" in line]
    assert len(lines) == 4 and all("yes" in line for line in lines)


def test_a_model_that_does_not_fit_a_card_is_said_with_an_exit_code(tmp_path: Path) -> None:
    from transformers import LlamaConfig

    LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
                intermediate_size=14336, vocab_size=128256).save_pretrained(tmp_path)
    done = CliRunner().invoke(app, ["doctor", "--fit", str(tmp_path), "--preset", "8gb"])
    assert done.exit_code == 1
    assert "it does not fit" in done.output and "keys and values" in done.output


@pytest.mark.parametrize("other", [["--fit", "smollm2-135m"], ["--preset", "8gb"]])
def test_a_run_is_asked_for_alone_rather_than_ignoring_the_rest(other: list[str]) -> None:
    done = CliRunner().invoke(app, ["doctor", "--run", "runs/any", *other])
    assert isinstance(done.exception, UsageError) and other[0] in str(done.exception)


@pytest.mark.parametrize("name, words", [("nonsense", "no model 'nonsense'"),
                                         ("EMPTY", "config.json cannot be read")])
def test_what_is_no_model_is_refused_in_words(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit.skeleton(name.replace("EMPTY", str(tmp_path)), torch.float32)


def test_several_ranks_are_refused_rather_than_counted_as_one(tiny_llama_dir: Path) -> None:
    with pytest.raises(UsageError, match="holds all weights"):
        parts(tiny_llama_dir, train={"ranks": 2})
