"""Tiny random causal language models with a byte-level tokenizer, for tests.

Owns: model folders that load like any other: weights, tokenizer, chat template.
Does not own: anything that such a model would say that makes sense.
"""

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>")
VOCAB = 300
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_llama(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a Llama of 2 layers, hidden size 32, tied embeddings; `changes` go to its config."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = {"tie_word_embeddings": True} | changes
    return _write(folder, seed, LlamaForCausalLM, LlamaConfig, settings)


def tiny_qwen3(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a Qwen3 of 2 layers, hidden size 32, an output head of its own."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return _write(
        folder, seed, Qwen3ForCausalLM, Qwen3Config,
        {"tie_word_embeddings": False, "head_dim": 8} | changes,
    )


def _write(
    folder: Path, seed: int, model_class: Any, config_class: Any, changes: dict[str, Any]
) -> Path:
    import torch

    settings = {
        "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "initializer_range": 0.2,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 3, "attention_dropout": 0.0,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config_class(**(settings | changes)))
    model.save_pretrained(folder)
    _write_tokenizer(Path(folder))
    return Path(folder)


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*SPECIAL, *letters, *(f"<|spare{i}|>" for i in range(VOCAB - len(letters) - 4))]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": SPECIAL[0],
        "bos_token": SPECIAL[1], "eos_token": SPECIAL[3], "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
