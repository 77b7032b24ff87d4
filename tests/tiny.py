"""Tiny random causal language models with a byte-level tokenizer, for tests.

Owns: model folders that load like any other: weights, tokenizer, chat template.
Does not own: anything that such a model would say that makes sense.
"""

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>")
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
VOCAB = 300
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


VISION_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for content in message.content %}
            {%- if content.type == 'image' or 'image' in content or 'image_url' in content %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in content %}
                {{- content.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
"""the parts of Qwen3-VL's own template that concern content"""


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


def tiny_qwen3_vl(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a Qwen3-VL that sees: a tower of 2 layers on patches of 4 pixels, 2 language layers.

    One token is 8 x 8 pixels; pictures are brought to between 256 and 4096 of them. `changes` go to
    the language model's config.
    """
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    special = (*SPECIAL, *VISION)
    text = _sizes() | {
        "head_dim": 8, "vocab_size": VOCAB,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                            "mrope_section": [2, 1, 1], "mrope_interleaved": True},
    } | changes
    config = Qwen3VLConfig(
        text_config=text, tie_word_embeddings=True,
        vision_config={
            "depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2,
            "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "out_hidden_size": 32, "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0], "initializer_range": 0.2,
        },
        **{f"{name}_token_id": special.index(token) for name, token in zip(
            ("vision_start", "vision_end", "image", "video"), VISION, strict=True)},
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = 3
    model.save_pretrained(folder)
    Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2,
        size={"shortest_edge": 256, "longest_edge": 4096},
        image_mean=[0.5, 0.5, 0.5], image_std=[0.5, 0.5, 0.5],
    ).save_pretrained(folder)
    _write_tokenizer(Path(folder), special, VISION_TEMPLATE)
    return Path(folder)


def _write(
    folder: Path, seed: int, model_class: Any, config_class: Any, changes: dict[str, Any]
) -> Path:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config_class(**(_sizes() | changes)))
    model.save_pretrained(folder)
    _write_tokenizer(Path(folder))
    return Path(folder)


def _sizes() -> dict[str, Any]:
    return {
        "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "initializer_range": 0.2,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 3, "attention_dropout": 0.0,
    }


def _write_tokenizer(
    folder: Path, special: tuple[str, ...] = SPECIAL, template: str = CHAT_TEMPLATE
) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    spares = range(VOCAB - len(letters) - len(special))
    words = [*special, *letters, *(f"<|spare{i}|>" for i in spares)]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "pad_token": SPECIAL[0],
        "bos_token": SPECIAL[1], "eos_token": SPECIAL[3], "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
