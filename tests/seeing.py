"""Pictures for tests, and plain transformers' answer to them: processor, model, nothing of ours.

Owns: PNGs by seed, prompts with pictures as token ids, the reference forward.
Does not own: anything that the code under test computes.
"""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image


def picture(seed: int, width: int = 40, height: int = 24) -> Image.Image:
    """Noise in blocks, so that resizing keeps something of it."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.NEAREST)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def part(image: Image.Image | bytes, kind: str = "png") -> dict[str, Any]:
    """A content part in OpenAI's shape."""
    data = image if isinstance(image, bytes) else encoded(image, kind)
    url = f"data:image/{kind};base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def processor(folder: Path) -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil.from_pretrained(folder)


def image_id(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["image_token_id"])


def inputs(folder: Path, ids: Sequence[int], images: Sequence[Image.Image]) -> dict[str, Any]:
    """What the model's own forward takes for one sequence; the first picture tokens are real."""
    found: dict[str, Any] = {"input_ids": torch.tensor([list(ids)])}
    if images:
        found |= processor(folder)(images=list(images), return_tensors="pt")
        is_image = found["input_ids"] == image_id(folder)
        num_real = int(found["image_grid_thw"].prod(1).sum()) // 4
        found["mm_token_type_ids"] = (is_image & (is_image.cumsum(1) <= num_real)).int()
    return found


def forward(model: Any, folder: Path, ids: Sequence[int], images: Sequence[Image.Image]) -> Any:
    """Transformers' own forward.

    It takes each picture token for a picture's, also one that a policy sampled, and then finds
    too few features: only in that case it is told which ones are real.
    """
    given = inputs(folder, ids, images)
    model.model.rope_deltas = None
    is_real = given.get("mm_token_type_ids", torch.zeros_like(given["input_ids"])).bool()
    if torch.equal(is_real, given["input_ids"] == image_id(folder)):
        return model(**given, use_cache=False)
    masks = (is_real[..., None], torch.zeros_like(is_real)[..., None])
    with mock.patch.object(model.model, "get_placeholder_mask", lambda *_, **__: masks):
        return model(**given, use_cache=False)


def plain(folder: Path) -> Any:
    from transformers import Qwen3VLForConditionalGeneration

    return Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def plain_logps(
    model: Any, folder: Path, ids: Sequence[int], images: Sequence[Image.Image],
    temperature: float = 1.0,
) -> np.ndarray:
    """[L - 1, V] by one whole forward of transformers' model, pictures and all."""
    with torch.no_grad():
        logits = forward(model, folder, ids, images).logits[0].float()
    return torch.log_softmax(logits / (temperature or 1.0), -1)[:-1].numpy()


def prompt(folder: Path, *pieces: str | Image.Image) -> list[int]:
    """Token ids of text and pictures, one after the other, as the processor expands them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        grid = processor(folder)(images=[piece])["image_grid_thw"][0]
        text += "<|vision_start|>" + "<|image_pad|>" * (int(np.prod(grid)) // 4) + "<|vision_end|>"
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


class Looking:
    """Transformers' model over ids alone: the pictures are those of the prompt they begin with."""

    def __init__(
        self, lm: Any, folder: Path, shown: dict[tuple[int, ...], list[Image.Image]]
    ) -> None:
        self.lm, self.folder, self.shown = lm, folder, shown

    def __call__(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
        ids = input_ids[0].tolist()
        known = [p for p in self.shown if tuple(ids[: len(p)]) == p]
        assert not use_cache
        return forward(self.lm, self.folder, ids, self.shown[max(known, key=len)])
