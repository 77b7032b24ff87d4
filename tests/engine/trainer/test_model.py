"""Loading, adapters, hidden states, and whose weights answer."""

import json
from pathlib import Path

import pytest
import torch
from bench import config, policy
from tiny import tiny_llama

from claw.engine.trainer import model
from claw.errors import UsageError
from claw.kernels import backend

IDS = torch.arange(5, 17)[None]


@pytest.mark.parametrize("name", ["tiny_llama_dir", "tiny_qwen3_dir"])
@pytest.mark.parametrize("rank", [0, 4])
def test_hidden_states_times_the_head_are_the_logits(
    request: pytest.FixtureRequest, name: str, rank: int
) -> None:
    p = policy(request.getfixturevalue(name), config(lora={"rank": rank}))
    with torch.no_grad():
        logits = p.lm(input_ids=IDS).logits
        torch.testing.assert_close(p.hidden(IDS) @ p.head.T, logits, rtol=1e-4, atol=1e-4)
    tied = p.head.data_ptr() == p.lm.get_input_embeddings().weight.data_ptr()
    assert tied is (name == "tiny_llama_dir")


def test_full_training_trains_all_and_lora_the_adapter_alone(tiny_llama_dir: Path) -> None:
    full = policy(tiny_llama_dir, config())
    lora = policy(tiny_llama_dir, config(lora={"rank": 4}))
    assert len(full.parameters) == len(list(full.lm.parameters()))
    assert all("lora_" in name for name in lora.parameters) and len(lora.parameters) == 2 * 7 * 2
    assert (full.kind, lora.kind) == ("full", "lora")
    assert not lora.head.requires_grad


@pytest.mark.parametrize("targets, words", [
    (("q_proj", "w_proj"), "'w_proj'"), (("all-linear",), "'all-linear'"),
    (("lm_head",), "head"), ((), "empty"), (("proj",), "'proj'"),
])
def test_targets_that_match_nothing_are_refused_by_name(
    tiny_llama_dir: Path, targets: tuple[str, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        model.load(tiny_llama_dir, config(lora={"rank": 4, "targets": targets}))
    if "proj" in words:
        assert "gate_proj" in str(caught.value)


def test_one_target_word_is_not_read_letter_by_letter(tiny_llama_dir: Path) -> None:
    p = model.load(tiny_llama_dir, config(lora={"rank": 4, "targets": ["v_proj"]}))
    assert {n.split(".")[4] for n in p.parameters} == {"v_proj"}


def test_kernels_that_cannot_run_here_stop_the_trainer_at_its_start(tiny_llama_dir: Path) -> None:
    with backend.use("triton"), pytest.raises(UsageError, match="kernels cannot run") as caught:
        model.load(tiny_llama_dir, config())
    assert "found: no GPU" in str(caught.value) or "not installed" in str(caught.value)


@pytest.mark.parametrize("rank", [0, 4])
def test_base_current_and_ema_weights_differ_and_come_back(tiny_llama_dir: Path, rank: int) -> None:
    c = config(lora={"rank": rank}, loss={"teacher": "ema", "kl_coef": 0.1})
    p, first = policy(tiny_llama_dir, c), model.load(tiny_llama_dir, config())
    seen = {}
    for who in ("current", "base", "ema", "current"):
        with p.weights_of(who) as weights:
            seen[who] = weights.hidden(IDS)
    assert torch.equal(seen["base"], first.hidden(IDS))
    for a, b in (("current", "base"), ("current", "ema"), ("base", "ema")):
        assert (seen[a] - seen[b]).abs().max() > 1e-3
    assert torch.equal(seen["current"], p.hidden(IDS))


def test_a_copy_of_the_first_weights_is_kept_only_when_the_loss_asks(tiny_llama_dir: Path) -> None:
    asks = [{"kl_coef": 0.1}, {"teacher": "base"}]
    assert all(model.load(tiny_llama_dir, config(loss=x)).first is not None for x in asks)
    p = model.load(tiny_llama_dir, config())
    assert p.first is None and not p.ema
    with pytest.raises(ValueError, match="not kept"), p.weights_of("base"):
        pass


def test_the_ema_follows_slowly(tiny_llama_dir: Path) -> None:
    p = model.load(tiny_llama_dir, config(loss={"teacher": "ema", "ema_decay": 0.9}))
    name = next(iter(p.parameters))
    before = p.ema[name].clone()
    with torch.no_grad():
        p.parameters[name].add_(1.0)
    p.update_ema()
    torch.testing.assert_close(p.ema[name], before + 0.1)


def test_dropout_of_the_base_is_off_and_checkpointing_changes_nothing(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, attention_dropout=0.5)
    p = model.load(folder, config())
    q = model.load(folder, config(train={"gradient_checkpointing": True}))
    grads = []
    for x in (p, q):
        hidden = x.student(IDS)
        torch.testing.assert_close(hidden, x.hidden(IDS))
        hidden.square().sum().backward()
        grads.append(next(iter(x.parameters.values())).grad)
    torch.testing.assert_close(*grads)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        model.load(tmp_path, config())


def test_a_model_with_more_than_a_head_on_its_logits_is_refused(tmp_path: Path) -> None:
    from transformers import CohereConfig, CohereForCausalLM

    CohereForCausalLM(CohereConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, logit_scale=0.0625,
    )).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["logit_scale"] == 0.0625
    with pytest.raises(UsageError, match="logits are not"):
        model.load(tmp_path, config())
