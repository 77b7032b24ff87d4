"""`claw view`: the screens of an episode as one strip, or as an animated picture.

Owns: reading a trajectory folder (step_0.png, step_1.png, ..., traj.jsonl, result.txt), drawing it.
Does not own: writing such folders; plugins with a screen do.
"""

import json
import re
from pathlib import Path
from typing import Any

from claw.errors import ClawError, UsageError

MAX_STEPS = 200
CAPTION = 18
"""pixels below each screen for what was done"""
FRAME_MS = 900
KINDS = (".png", ".gif")
_STEP = re.compile(r"step_(\d+)(?:_.*)?\.png\Z")


def write(folder: Path, out: Path, *, width: int = 480, columns: int = 3) -> Path:
    """Write the picture and return its path."""
    if out.suffix.lower() not in KINDS:
        raise UsageError("a view is a strip or an animated picture", found=str(out),
                         allowed="a name that ends in " + " or ".join(KINDS))
    screens = _screens(folder)
    said = _captions(folder)
    frames = [_frame(path, said.get(step, "start" if step == 0 else ""), width)
              for step, path in screens]
    if out.suffix.lower() == ".gif":
        frames[0].save(out, save_all=True, append_images=frames[1:], duration=FRAME_MS, loop=0,
                       optimize=True)
    else:
        _strip(frames, columns).save(out, optimize=True)
    return out


def _screens(folder: Path) -> list[tuple[int, Path]]:
    found = [(int(match[1]), path) for path in folder.glob("step_*.png")
             if (match := _STEP.match(path.name))]
    if not found:
        raise UsageError("no screens of an episode are there", found=str(folder),
                         allowed="a trajectory folder with step_0.png, step_1.png, ...",
                         do="set plugin.gui.trajectories, and name one of the folders in it")
    return sorted(found)[:MAX_STEPS]


def _captions(folder: Path) -> dict[int, str]:
    """Return what was done at each step; empty where it is not written."""
    path = folder / "traj.jsonl"
    if not path.is_file():
        return {}
    made = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            step = json.loads(line)
            made[int(step["step_num"])] = _caption(step)
        except (ValueError, KeyError, TypeError):  # a line that a crash cut short
            continue
    return made


def _caption(step: dict[str, Any]) -> str:
    actions = step.get("action")
    if not isinstance(actions, list):
        return f"{step['step_num']}  {actions}"
    words = [" ".join([str(a.get("kind")), *(str(v) for v in (a.get("args") or {}).values())])
             for a in actions if isinstance(a, dict)]
    return f"{step['step_num']}  {'; '.join(words) or (step.get('info') or {}).get('kind', '')}"


def _frame(path: Path, caption: str, width: int) -> Any:
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise ClawError("pictures need Pillow", do="pip install pillow") from None

    with Image.open(path) as screen:
        height = round(screen.height * width / screen.width)
        made = Image.new("RGB", (width, height + CAPTION), "white")
        made.paste(screen.convert("RGB").resize((width, height), Image.Resampling.LANCZOS), (0, 0))
    text = caption.replace("\n", " ").encode("latin-1", "replace").decode("latin-1")
    ImageDraw.Draw(made).text((4, height + 3), text[: width // 6], fill="black")
    return made.quantize(96)


def _strip(frames: list[Any], columns: int) -> Any:
    from PIL import Image

    columns = min(columns, len(frames))
    width = max(frame.width for frame in frames)
    height = max(frame.height for frame in frames)
    rows = -(-len(frames) // columns)
    made = Image.new("RGB", (columns * width, rows * height), "white")
    for at, frame in enumerate(frames):
        made.paste(frame.convert("RGB"), (at % columns * width, at // columns * height))
    return made.quantize(96)
