"""Packed rows: what comes out is what comes out of padded ones, and no sequence sees another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bench import config, near, one, policy
from some_samples import batch, ids
from tiny import tiny_llama

from claw.engine.trainer import model
from claw.errors import UsageError


@pytest.fixture(scope="module")
def windowed_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mistral whose layers see eight tokens back."""
    from transformers import MistralConfig, MistralForCausalLM

    folder = tiny_llama(tmp_path_factory.mktemp("windowed"))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        MistralForCausalLM(MistralConfig(
            vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
            initializer_range=0.2, sliding_window=8,
        )).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["tiny_llama_dir", "tiny_qwen3_dir", "windowed_dir"])
@pytest.mark.parametrize("lora", [0, 4])
def test_packed_and_padded_steps_have_the_same_losses_and_gradients(
    request: pytest.FixtureRequest, name: str, lora: int
) -> None:
    folder, found = request.getfixturevalue(name), []
    for packing in (False, True):
        c = config(lora={"rank": lora}, train={"packing": packing, "micro_tokens": 128},
                   loss={"kl_coef": 0.05, "teacher": "base"})
        p = policy(folder, c)
        done, optim = one(p, near(p, batch(7)), c)
        found.append((done.loss, optim.seen))
    (padded, a), (packed, b) = found
    for part in ("total", "rl", "opd", "kl"):
        assert getattr(packed, part) == pytest.approx(getattr(padded, part), abs=1e-6, rel=1e-6)
    assert padded.opd and padded.rl and padded.kl
    flat_a, flat_b = (torch.cat([g.flatten() for g in x.values()]) for x in (a, b))
    # what other micro-batches of padded rows differ by as well: up to 8e-7 of the norm
    assert (flat_b - flat_a).norm() <= 2e-6 * flat_a.norm()


@pytest.mark.parametrize("name", ["tiny_llama_dir", "windowed_dir"])
def test_a_packed_sequence_sees_nothing_of_its_neighbours(
    request: pytest.FixtureRequest, name: str
) -> None:
    p = policy(request.getfixturevalue(name), config(train={"packing": True}))
    rng = np.random.default_rng(0)
    middle = (ids(rng, 9), ids(rng, 20))

    def read(before: Any, after: Any) -> torch.Tensor:
        micro = p.lay([before, middle, after])
        with torch.no_grad():
            hidden_TH = micro.at_replies(p.hidden(micro.ids_BL, bounds=micro.bounds))
        return micro.per_sequence(hidden_TH)[1]

    pairs = [(ids(rng, 11), ids(rng, 5)) for _ in range(4)]
    assert torch.equal(read(pairs[0], pairs[1]), read(pairs[2], pairs[3]))
    longer = read((ids(rng, 30), ids(rng, 7)), pairs[1])
    torch.testing.assert_close(longer, read(pairs[0], pairs[1]), rtol=0, atol=1e-5)


def test_a_model_that_carries_something_over_is_refused(tmp_path: Path) -> None:
    from transformers import Lfm2Config, Lfm2ForCausalLM

    tiny_llama(tmp_path)
    Lfm2ForCausalLM(Lfm2Config(  # a convolution over the row
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, layer_types=["conv", "full_attention"],
        max_position_embeddings=512, initializer_range=0.2,
    )).save_pretrained(tmp_path)
    model.load(tmp_path, config())
    with pytest.raises(UsageError, match="several sequences in one row"):
        model.load(tmp_path, config(train={"packing": True}))


def test_a_model_that_sees_is_refused(tiny_qwen3_vl_dir: Path) -> None:
    with pytest.raises(UsageError, match="and padded"):
        model.load(tiny_qwen3_vl_dir, config(train={"packing": True}))
