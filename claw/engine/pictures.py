"""Pictures as a vision-language model reads them: bytes -> pixels -> patches, tokens, positions.

Owns: which models take pictures, the sizes, what each picture's tokens stand for in a prompt.
Does not own: requests (`actor/album.py`), the forward (`sight.py`). numpy and PIL only: the actor
imports no torch, so transformers' own processor cannot be asked; its numbers are the test.

A picture is stored as what was sent (PNG or JPEG); to workers and the trainer it goes as uint8
pixels [H, W, 3] in the size that the model reads, an eighth of the float patches.
P tokens of a prompt, M picture tokens, N patches, D numbers of a patch.
"""

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from claw.errors import ClawError

MODEL_TYPES = ("qwen3_vl",)
"""`model_type` of the models whose pictures are understood here"""
MAX_PICTURES = 64
"""of one prompt"""
MAX_BYTES = 16 * 1024 * 1024
"""of one picture as it is sent"""
MAX_PIXELS = 4096 * 4096
"""of one picture, before and after it is brought to the model's size"""
MAX_RATIO = 200
"""longer side to shorter side"""
KINDS = {"png": "PNG", "jpeg": "JPEG"}
_NEEDS = ("size", "patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")


class BadPicture(ValueError):
    """What was sent is no picture that can be shown to a model."""


@dataclass(frozen=True, slots=True)
class Lens:
    """How one model reads pictures: its image processor's settings."""

    image_id: int
    """the token that stands for a piece of a picture"""
    patch: int
    merge: int
    """patches of a side that become one token"""
    frames: int
    """a still picture is shown so many times"""
    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float
    resample: int

    @property
    def factor(self) -> int:
        """Both sides of a picture are multiples of it."""
        return self.patch * self.merge

    # --- one picture -------------------------------------------------------------------------

    def pixels(self, data: bytes) -> np.ndarray:
        """Decode a PNG or JPEG to uint8 [H, W, 3] in the model's size. BadPicture: it cannot be."""
        from PIL import Image, ImageOps, UnidentifiedImageError

        try:
            image = Image.open(io.BytesIO(data), formats=tuple(KINDS.values()))
            if image.width * image.height > MAX_PIXELS:  # before anything is decoded
                raise BadPicture(f"it has {image.width} x {image.height} pixels; at most "
                                 f"{MAX_PIXELS} are taken")
            image = ImageOps.exif_transpose(image)
            rgb = _opaque(image)
            height, width = self.size(rgb.height, rgb.width)
            rgb = rgb.resize((width, height), resample=Image.Resampling(self.resample))
        except BadPicture:
            raise
        except UnidentifiedImageError:
            raise BadPicture("it is neither PNG nor JPEG") from None
        except Exception as error:  # PIL raises many kinds for a broken file
            raise BadPicture(f"it cannot be decoded: {error}") from error
        return np.asarray(rgb, np.uint8)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) that the model reads: multiples of `factor`, within its pixels."""
        if max(height, width) > MAX_RATIO * min(height, width):
            raise BadPicture(f"{width} x {height} is longer than {MAX_RATIO} to 1")
        least, most, f = self.min_pixels, min(self.max_pixels, MAX_PIXELS), self.factor
        h, w = round(height / f) * f, round(width / f) * f
        if h * w > most:
            by = math.sqrt(height * width / most)
            return (max(f, math.floor(height / by / f) * f), max(f, math.floor(width / by / f) * f))
        if h * w < least:
            by = math.sqrt(least / (height * width))
            return math.ceil(height * by / f) * f, math.ceil(width * by / f) * f
        return h, w

    def problem(self, picture: np.ndarray) -> str:
        """Why an array is no picture in the model's size; empty when it is one."""
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            return f"a picture is uint8 [H, W, 3]; got {picture.dtype.name}{list(picture.shape)}"
        height, width, _ = picture.shape
        if height % self.factor or width % self.factor or not 0 < height * width <= MAX_PIXELS:
            return f"{width} x {height} is no size of this model's pictures"
        return ""

    def grid(self, picture: np.ndarray) -> tuple[int, int]:
        """Rows and columns of tokens of a picture."""
        return picture.shape[0] // self.factor, picture.shape[1] // self.factor

    def num_tokens(self, picture: np.ndarray) -> int:
        rows, columns = self.grid(picture)
        return rows * columns

    def patches(self, pictures: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """What the model's forward takes: pixel_values float32 [N, D] and image_grid_thw [I, 3]."""
        values = np.concatenate([self._patches(p) for p in pictures])
        sizes = [(1, p.shape[0] // self.patch, p.shape[1] // self.patch) for p in pictures]
        return values, np.array(sizes, np.int64)

    def _patches(self, picture: np.ndarray) -> np.ndarray:
        scaled = (picture.astype(np.float64) * self.scale).astype(np.float32)
        image = (scaled - np.float32(self.mean)) / np.float32(self.std)
        (rows, columns), m, p = self.grid(picture), self.merge, self.patch
        blocks = image.reshape(rows, m, p, columns, m, p, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        repeated = np.repeat(blocks[:, :, :, :, :, None], self.frames, axis=5)
        return repeated.reshape(rows * columns * m * m, -1)

    # --- in a prompt -------------------------------------------------------------------------

    def places(self, ids: np.ndarray, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """int64 [P]: the number of the picture token at each position, -1 for text.

        The first M picture tokens of a prompt are those of its pictures, in order; later ones were
        sampled by a policy and show nothing. ValueError: there are fewer, or one is torn apart.
        """
        sizes = [self.num_tokens(p) for p in pictures]
        at = np.flatnonzero(np.asarray(ids) == self.image_id)[: sum(sizes)]
        if len(at) < sum(sizes):
            raise ValueError(f"{len(at)} tokens stand for pictures; they have {sum(sizes)}")
        places = np.full(len(ids), -1, np.int64)
        places[at] = np.arange(len(at))
        for part in np.split(at, np.cumsum(sizes)[:-1]):
            if len(part) and part[-1] - part[0] != len(part) - 1:
                raise ValueError("the tokens of one picture do not follow each other")
        return places

    def positions(self, places: np.ndarray, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """int64 [3, P]: time, row and column of each token, as M-RoPE wants them.

        Text goes on by one in all three. A picture's tokens share one time; its rows and columns
        count from there, and the text after it goes on from the larger of the two.
        """
        found = np.empty((3, len(places)), np.int64)
        at = position = 0
        for picture in pictures:
            rows, columns = self.grid(picture)
            start = at + int(np.argmax(places[at:] >= 0))
            found[:, at:start] = position + np.arange(start - at)
            position += start - at
            at = start + rows * columns
            row, column = np.divmod(np.arange(rows * columns), columns)
            found[:, start:at] = position + np.stack([np.zeros_like(row), row, column])
            position += max(rows, columns)
        found[:, at:] = position + np.arange(len(places) - at)
        return found

    def names(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """int64 [M]: for each picture token a negative number that names its picture."""
        return np.concatenate([np.full(self.num_tokens(p), _name(p)) for p in pictures])


def _opaque(image: Any) -> Any:
    """In red, green and blue; what is transparent shows white."""
    from PIL import Image

    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _name(picture: np.ndarray) -> int:
    digest = blake2b(repr(picture.shape).encode(), digest_size=8)
    digest.update(np.ascontiguousarray(picture))
    return -1 - (int.from_bytes(digest.digest(), "little") >> 2)


def sees(folder: Path) -> bool:
    """Whether the model of a folder, or of a version's, is one whose pictures are understood."""
    return _read(folder / "config.json").get("model_type") in MODEL_TYPES


def lens_of(folder: Path) -> Lens | None:
    """How the model in `folder` reads pictures; None for one that reads text only."""
    if not sees(folder):
        return None
    config = _read(folder / "config.json")
    found = _read(folder / "preprocessor_config.json") or _read(
        folder / "processor_config.json").get("image_processor") or {}
    size = found.get("size") or {}
    lacks = [name for name in _NEEDS if not found.get(name)]
    if lacks or not {"shortest_edge", "longest_edge"} <= set(size):
        raise ClawError(
            "the vision-language model does not say how it reads pictures",
            found=f"{folder}: preprocessor_config.json lacks {', '.join(lacks) or 'its sizes'}",
            do="put the model's own preprocessor_config.json into the folder",
        )
    return Lens(
        int(config["image_token_id"]), int(found["patch_size"]), int(found["merge_size"]),
        int(found["temporal_patch_size"]), int(size["shortest_edge"]), int(size["longest_edge"]),
        tuple(found["image_mean"]), tuple(found["image_std"]),
        float(found.get("rescale_factor", 1 / 255)), int(found.get("resample", 3)),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
