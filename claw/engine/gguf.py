"""`python -m claw.engine.gguf FILE.gguf FOLDER`: dequantise a GGUF file into safetensors."""

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write float32 weights, tokenizer and chat template of `gguf` into `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    # dequantize: otherwise transformers keeps the weights packed, and they cannot be trained
    model = AutoModelForCausalLM.from_pretrained(
        **source, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    tokenizer = AutoTokenizer.from_pretrained(**source)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
